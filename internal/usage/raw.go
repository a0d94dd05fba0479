package usage

import (
	"cmp"
	"maps"
	"slices"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// Raw is what one pod uses of one resource name without a device.
type Raw struct {
	Pod, Namespace, Name string // Pod is the UID
	Node                 string // "" until it is scheduled
	VMI                  string // UID of the VMI whose launcher it is; "" when it is none
	Resource             gpu.ResourceName
	Units                int64
}

// RawUse returns what pods use of effective names beyond the coverage, by pod and
// name. Pods that are done use nothing; one that waits for a node does. Where the
// coverage is too small for all launchers of a VMI, those on the devices' node have
// it first, and then the smaller UID.
func RawUse(pods []Pod, l Launchers, c Coverage) []Raw {
	var out []Raw
	for i := range pods {
		p := &pods[i]
		for name, units := range p.gpus(c.names) {
			out = append(out, Raw{Pod: p.UID, Namespace: p.Namespace, Name: p.Name, Node: p.Node, VMI: l.VMI(p), Resource: name, Units: units})
		}
	}
	slices.SortFunc(out, func(a, b Raw) int {
		return cmp.Or(cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.Node, b.Node), cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Units, b.Units))
	})
	left := Coverage{here: maps.Clone(c.here), all: maps.Clone(c.all)}
	for _, anywhere := range []bool{false, true} {
		for i := range out {
			if c.anywhere || !anywhere {
				left.cover(&out[i], anywhere)
			}
		}
	}
	return slices.DeleteFunc(out, func(r Raw) bool { return r.Units == 0 })
}
