package usage

import (
	"strings"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// DeviceClass is a DeviceClass of Kubernetes' dynamic resource allocation, by which
// pods can ask for devices as for an extended resource (KEP-5004).
type DeviceClass struct {
	Name     string
	Extended gpu.ResourceName // spec.extendedResourceName; "" when it has none
	GPU      bool             // it is known to give out GPUs that a VM can have
}

// implicit is the resource name that Kubernetes gives every DeviceClass
// (k8s.io/api/resource/v1, ResourceDeviceClassPrefix).
func (c DeviceClass) implicit() gpu.ResourceName {
	return gpu.ResourceName("deviceclass.resource.kubernetes.io/" + c.Name)
}

// NameFacts is what resource names are collected from.
type NameFacts struct {
	Listed        []gpu.ResourceName // the hoster's gpu.resourceNames
	Offered       []gpu.ResourceName // those of the classes
	Devices       []Device
	Nodes         []Node
	Table         gpu.Table
	DeviceClasses []DeviceClass
}

// EffectiveNames collects the names whose units count. Another vendor's PCI entry,
// a ConnectX VF, adds none, and what a node shows under a name that the table has
// for such entries only is no GPU either. NVIDIA's container resources count only
// where the hoster lists them or has a class of them.
func EffectiveNames(f NameFacts) Names {
	n := Names{sources: map[gpu.ResourceName][]Source{}, base: map[gpu.ResourceName]gpu.ResourceName{}}
	for _, name := range f.Listed {
		n.add(name, Listed)
	}
	for _, name := range f.Offered {
		n.add(name, Offered)
	}
	for i := range f.Devices {
		if d := &f.Devices[i]; d.Node != "" {
			n.add(d.Resource, Held)
		}
	}
	for i := range f.Nodes {
		n.report(&f.Nodes[i])
		for name := range f.Nodes[i].Facts.Allocatable {
			if belongsToGPU(name, f.Table) {
				n.add(name, Allocatable)
			}
		}
	}
	for _, e := range f.Table.Entries {
		if e.List == gpu.ListMdev || e.List == gpu.ListPCI && selectsNVIDIA(e) {
			n.guess(e.Name, Permitted)
		}
	}
	n.addDRA(f.DeviceClasses)
	return n
}

// report adds what the device plugin calls the GPUs, virtual functions and vGPU
// types of the node, bound to a driver or not: drivers come and go.
func (n Names) report(node *Node) {
	if node.Host == nil {
		return
	}
	for i := range node.Host.Functions {
		f := &node.Host.Functions[i]
		if role := f.Role(); f.IsNVIDIA() && (role == gpu.RoleGPU || role == gpu.RoleVF) {
			n.add(node.Facts.Plugin.Name(f.ID.Device), Reported)
		}
		for _, t := range f.MdevTypes {
			n.reportType(t.Name)
		}
	}
	for i := range node.Host.Mdevs {
		n.reportType(node.Host.Mdevs[i].TypeName)
	}
}

func (n Names) reportType(name string) {
	if name != "" {
		n.add(gpu.MdevResource(name), Reported)
	}
}

// addDRA adds both names of each DeviceClass that gives out GPUs: because it is
// known to, or because one of its names counts already.
func (n Names) addDRA(classes []DeviceClass) {
	for again := true; again; {
		again = false
		for _, c := range classes {
			known := len(n.sources)
			if c.GPU || n.Has(c.Extended) || n.Has(c.implicit()) {
				n.guess(c.implicit(), Claimable)
				n.guess(c.Extended, Claimable)
			}
			again = again || len(n.sources) > known
		}
	}
	for _, c := range classes {
		if n.Has(c.Extended) {
			n.base[c.implicit()] = c.Extended
		}
	}
}

// belongsToGPU judges a name that a node shows.
func belongsToGPU(name gpu.ResourceName, t gpu.Table) bool {
	return name.MayBeGPU() && (!isOthers(name, t) || len(gpu.DeviceIDs(name)) > 0)
}

// isOthers reports a name that the table has only for PCI devices of other vendors.
func isOthers(name gpu.ResourceName, t gpu.Table) bool {
	others := false
	for _, e := range t.Entries {
		if e.Name != name {
			continue
		}
		if e.List != gpu.ListPCI || selectsNVIDIA(e) {
			return false
		}
		others = true
	}
	return others
}

// selectsNVIDIA judges an entry by its vendor alone: a selector that KubeVirt never
// matches permits its name all the same.
func selectsNVIDIA(e gpu.Entry) bool {
	vendor, _, _ := strings.Cut(strings.TrimSpace(e.Selector), ":")
	return strings.EqualFold(vendor, gpu.VendorNVIDIA.String())
}
