package gpu

// Node is what Kubernetes says about one node, as far as GPUs go.
type Node struct {
	Name        string
	Labels      map[string]string // facts of a diagnosis have NVIDIA's and those of PCI devices only
	Capacity    map[ResourceName]int64
	Allocatable map[ResourceName]int64
	// Plugin is the release of the KubeVirt device plugin seen running on the
	// node; the zero Release when none was seen.
	Plugin Release
	// NotReady and Cordoned say that nothing new is placed on the node.
	NotReady, Cordoned bool
}
