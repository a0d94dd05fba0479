package tenant

// Namespace is what the tree needs to know of a Kubernetes namespace.
type Namespace struct {
	Name, UID string
	Labels    map[string]string
	// Terminating is true from the moment the namespace is being deleted.
	Terminating bool
	// SubnamespaceOf is the annotation hnc.x-k8s.io/subnamespace-of.
	SubnamespaceOf string
	// HNCHalted is true while the namespace's HierarchyConfiguration has the
	// condition ActivitiesHalted: its parent is missing, or it is in a cycle.
	HNCHalted bool
}

// Namespaces are a cluster's namespaces by name.
type Namespaces map[string]Namespace

// Provider knows where namespaces stand in the tree and what they declare. It
// answers the same for the same input, and nothing changes it.
type Provider interface {
	// Parents returns the namespaces right above the named one: none for a
	// root, else one. With a fault it returns every namespace that may be the
	// parent, in any order: the use below counts at each of them. The name may
	// be one that some namespace calls its parent and that does not exist.
	Parents(name string, all Namespaces) ([]string, *Fault)
	// Budgets returns what the namespace's level declares, in any order. A
	// fault stands for a declaration that cannot be read as a whole.
	Budgets(name string) ([]Declaration, *Fault)
}

// Declaration is one key of a budget, as written.
type Declaration struct {
	Source    string // "ResourceQuota tenant-acme/gpus"
	Key, Text string
}
