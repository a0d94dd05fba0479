package gpu

// Table is a host device table: what a KubeVirt CR or a HyperConverged permits.
type Table struct {
	// Set is false while the table is missing or null; KubeVirt then checks
	// no device name at all. An empty table permits nothing.
	Set     bool
	Entries []Entry
}

// List names one of the table's lists.
type List string

// The lists of a table, by KubeVirt's field names.
const (
	ListPCI  List = "pciHostDevices"
	ListMdev List = "mediatedDevices"
	ListUSB  List = "usb"
)

// Entry is one entry of a host device table, as written.
type Entry struct {
	List     List
	Index    int    // position in its list
	Selector string // verbatim; "" for USB entries
	Name     ResourceName
	External bool // externalResourceProvider is true
	Disabled bool // HyperConverged: the administrator switched the entry off
	Odd      bool // a field is missing, of another kind or unknown; the rest was read
}

// ID returns the PCI id an entry selects; ok is false for another list and for
// a selector that KubeVirt would never match.
func (e Entry) ID() (id ID, ok bool) {
	if e.List != ListPCI {
		return ID{}, false
	}
	id, err := ParseID(e.Selector)
	return id, err == nil
}

// Permits reports whether the name is permitted. KubeVirt compares names exactly,
// over all lists, whatever the selector.
func (t Table) Permits(name ResourceName) bool {
	for _, e := range t.Entries {
		if e.Name == name && !e.Disabled {
			return true
		}
	}
	return false
}

// Has reports whether an entry, disabled or not, pairs the id with the name.
func (t Table) Has(id ID, name ResourceName) bool {
	for _, e := range t.Entries {
		if got, ok := e.ID(); ok && got == id && e.Name == name {
			return true
		}
	}
	return false
}

// Of returns the PCI entries that select the id.
func (t Table) Of(id ID) []Entry {
	var out []Entry
	for _, e := range t.Entries {
		if got, ok := e.ID(); ok && got == id {
			out = append(out, e)
		}
	}
	return out
}

// Workload is an object whose devices KubeVirt checks against the table: a
// VirtualMachine, its instance, a pool, a replica set or an instancetype.
type Workload struct {
	Kind, Namespace, Name string
	Devices               []Device
	Running               bool   // an instance that holds its devices now
	Active                bool   // an instance that is not finished
	Owner                 string // "NodePool guest-a": who writes the object, "" when nobody else does
}

// Device is one gpus or hostDevices entry of a workload.
type Device struct {
	Field string // "gpus" or "hostDevices"
	Name  ResourceName
}

// Ref returns "VirtualMachine tenant-a/trainer".
func (w Workload) Ref() string {
	if w.Namespace == "" {
		return w.Kind + " " + w.Name
	}
	return w.Kind + " " + w.Namespace + "/" + w.Name
}

// Names returns the workload's device names, each once, in order.
func (w Workload) Names() []ResourceName {
	var out []ResourceName
	seen := map[ResourceName]bool{}
	for _, d := range w.Devices {
		if !seen[d.Name] {
			seen[d.Name] = true
			out = append(out, d.Name)
		}
	}
	return out
}
