package diagnose

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// Link is one link of the chain that a GPU goes through on its way into a VM.
type Link string

// The links, in the order in which one depends on the other.
const (
	LinkFunction    Link = "function"    // the card answers on the PCI bus
	LinkDriver      Link = "driver"      // and is bound to a vfio driver
	LinkGroup       Link = "group"       // in an IOMMU group that VFIO can hand out
	LinkPlugin      Link = "plugin"      // the device plugin registers it
	LinkAllocatable Link = "allocatable" // the node serves its units
	LinkTable       Link = "table"       // KubeVirt permits the name
	LinkGate        Link = "gate"        // and host devices at all
	LinkSpec        Link = "spec"        // the VM asks for it rightly
	LinkInstance    Link = "instance"    // KubeVirt takes the VMI and makes a launcher
	LinkPlacement   Link = "placement"   // the scheduler finds a node with units free
	LinkLauncher    Link = "launcher"    // kubelet and virt-launcher get the device
	LinkDomain      Link = "domain"      // QEMU starts with it
)

// The links of an order: VMs that name one come to it first.
const (
	LinkOrder  Link = "order"  // what was ordered is there
	LinkClass  Link = "class"  // it is offered, and to this tenant
	LinkBudget Link = "budget" // each level allows it
	LinkUse    Link = "use"    // a VM can start with it
)

// Links returns the chain.
func Links() []Link {
	return []Link{
		LinkFunction, LinkDriver, LinkGroup, LinkPlugin, LinkAllocatable, LinkTable, LinkGate,
		LinkSpec, LinkInstance, LinkPlacement, LinkLauncher, LinkDomain,
	}
}

// order returns the link's place in the chain; what is on no link comes last.
func (l Link) order() int {
	if i := slices.Index(Links(), l); i >= 0 {
		return i
	}
	return len(Links())
}

// first are the codes that cause others of their own link.
var first = []Code{
	"GPU0213", // a driver on the host keeps vfio-manager from its work
	"GPU0212", // the node's mode says that nobody is to bind the cards
	"GPU0216",
	"GPU0219",
	"GPU0315", // with the legacy ConfigMap nothing in the CR counts
	"GPU0333", // what is written back is taken away again
	"GPU0303", // a block in the wrong place is not there
	"GPU0405", // what cannot be registered is not served
	"GPU0406",
	"GPU0416",
	"GPU0410",
	"GPU0310",
	"GPU0301",
}

// rank orders the codes of one link.
func rank(c Code) int {
	if i := slices.Index(first, c); i >= 0 {
		return i
	}
	return len(first)
}

// link returns the link that a finding belongs to.
func (f *Finding) link() Link {
	if e, ok := catalogIndex()[f.Code]; ok {
		return e.Link
	}
	return ""
}

// SortCausal puts findings into the order of cause: errors first, then warnings, and
// within them along the chain. Findings that only differ in severity are merged into
// the gravest.
func SortCausal(findings []Finding) []Finding {
	slices.SortStableFunc(findings, func(a, b Finding) int {
		return cmp.Or(
			cmp.Compare(b.Severity.Level(), a.Severity.Level()),
			cmp.Compare(a.link().order(), b.link().order()),
			cmp.Compare(rank(a.Code), rank(b.Code)),
			cmp.Compare(a.Code, b.Code),
			strings.Compare(a.Object, b.Object),
			strings.Compare(a.Message, b.Message),
			strings.Compare(a.Hint, b.Hint),
		)
	})
	type key struct {
		code            Code
		object, message string
	}
	seen := map[key]bool{}
	return slices.DeleteFunc(findings, func(f Finding) bool {
		k := key{f.Code, f.Object, f.Message}
		again := seen[k]
		seen[k] = true
		return again
	})
}

// count returns "1 node" or "3 nodes".
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}
