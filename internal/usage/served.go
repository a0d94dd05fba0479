package usage

import (
	"github.com/gpuctl/gpuctl/internal/gpu"
)

// Node is what is known of one node.
type Node struct {
	Facts gpu.Node
	Host  *gpu.Host // what its agent reported last; nil when it never did
	// Silent says that the Lease of its agent has run out: Host may be old.
	Silent bool
}

// Supply is what one node serves.
type Supply struct {
	Node  string
	Units map[gpu.ResourceName]int64 // by name, 0 and more
	// Open says that new units may be placed there.
	Open bool
	// Certain says that something can be concluded from the units: that held ones
	// are lost, or that lost ones have returned. Where it is false, what was served
	// when it was last true holds for both.
	Certain bool
}

// Served returns what a node serves under each name of its allocatable: that many,
// but no more than its agent reports healthy. A name of which the report says
// nothing, or a node without an agent, is taken at its allocatable. Raw use takes
// nothing away here: what is taken says CapacityUse.
//
//	node       units                          new ones   conclusions
//	NotReady   as kubelet and agent last said no         none: VMs may run on, and after a reboot
//	                                                     kubelet shows 0 until plugins are back
//	cordoned   as ever                        no         as ever
//	silent     as the agent last said, which  yes        none: a GPU that was broken is not
//	           only takes away                           healed by silence
//
// The table says which ids and types stand behind names that somebody made up.
func Served(n *Node, table gpu.Table) Supply {
	s := Supply{
		Node: n.Facts.Name, Units: map[gpu.ResourceName]int64{},
		Open:    !n.Facts.NotReady && !n.Facts.Cordoned,
		Certain: !n.Facts.NotReady && (n.Host == nil || !n.Silent),
	}
	var report *report
	if n.Host != nil {
		report = newReport(n, table)
	}
	for name, units := range n.Facts.Allocatable {
		if report != nil {
			if healthy, says := report.healthy(name); says {
				units = min(units, healthy)
			}
		}
		s.Units[name] = max(0, units)
	}
	return s
}

// report is what an agent says of the units of its node.
type report struct {
	table    gpu.Table
	ids      map[gpu.DeviceID]int64              // healthy units for passthrough
	types    map[gpu.ResourceName]int64          // instances of vGPU types, by the plugin's name for them
	tied     map[gpu.ResourceName][]gpu.DeviceID // what the node's own names were found to be
	nameless int64                               // healthy units of ids without a known name: any may be theirs
}

func newReport(n *Node, table gpu.Table) *report {
	r := &report{table: table, ids: map[gpu.DeviceID]int64{}, types: map[gpu.ResourceName]int64{}, tied: map[gpu.ResourceName][]gpu.DeviceID{}}
	for _, g := range n.Facts.Plugin.Registrations(n.Host) {
		for i := range g.Units {
			if u := &g.Units[i]; u.Function != nil && wholeUnit(&g, u) {
				r.ids[u.Function.ID.Device]++
			}
		}
	}
	for _, m := range gpu.MatchNames(n.Host, &n.Facts, n.Facts.Plugin, table) {
		if m.How == gpu.Unmatched && m.Expected.Short() == m.Device.String() {
			r.nameless += r.ids[m.Device] // a plugin newer than all known here has a name for it
		}
		r.tied[m.Name] = append(r.tied[m.Name], m.Device)
	}
	off := map[gpu.Address]bool{}
	for i := range n.Host.Functions {
		f := &n.Host.Functions[i]
		off[f.Address] = f.OffBus
		if servesVGPU(f) {
			r.ids[f.ID.Device]++
		}
		for _, t := range f.MdevTypes {
			room := 0 // the type is known, even without
			if !f.OffBus {
				room = max(0, t.Available)
			}
			r.types[gpu.MdevResource(t.Name)] += int64(room)
		}
	}
	for i := range n.Host.Mdevs {
		if m := &n.Host.Mdevs[i]; !off[m.Parent] {
			r.types[gpu.MdevResource(m.TypeName)]++
		}
	}
	return r
}

// healthy returns how many units of the name are healthy; says is false where the
// report cannot know. A passthrough unit is one function, or, before v1.5.0 of the
// plugin, one IOMMU group; a vGPU unit is a mediated device that exists or that its
// parent has room for. Types share their parent's room, so the units of several names
// are not to be added up.
func (r *report) healthy(name gpu.ResourceName) (units int64, says bool) {
	ids := map[gpu.DeviceID]bool{}
	for _, id := range append(gpu.DeviceIDs(name), r.tied[name]...) {
		ids[id] = true
	}
	types := map[gpu.ResourceName]bool{name: true}
	_, says = r.types[name]
	says = says || name.IsVGPU()
	for _, e := range r.table.Entries {
		if e.Name != name {
			continue
		}
		if id, ok := e.ID(); ok && id.IsNVIDIA() {
			ids[id.Device] = true
		}
		if e.List == gpu.ListMdev {
			types[gpu.MdevResource(e.Selector)] = true
			says = true
		}
	}
	for id := range ids {
		units += r.ids[id]
	}
	for t := range types {
		units += r.types[t]
	}
	if len(r.tied[name]) == 0 && !name.IsVGPU() {
		units += r.nameless
	}
	return units, says || len(ids) > 0
}

// wholeUnit reports that a VM can have the unit: its function, or all of a group
// that is one unit, answers, and the device node is there, which a plugin may
// overlook.
func wholeUnit(g *gpu.Registration, u *gpu.Unit) bool {
	functions := u.Group
	if g.Release.ListsAddresses() {
		functions = []*gpu.Function{u.Function}
	}
	for _, f := range functions {
		if f.OffBus || f.VFIONode == gpu.Absent {
			return false
		}
	}
	return !u.Unhealthy && !u.AllocateFails
}

// servesVGPU reports a virtual function that KubeVirt serves as a vGPU: a type is
// set on it, and it stays on NVIDIA's own driver.
func servesVGPU(f *gpu.Function) bool {
	return f.IsNVIDIA() && f.CurrentVGPU != "" && !f.OffBus && !f.Driver.IsVFIO()
}
