package usage

import (
	"maps"
	"slices"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// report is what an agent says of the units of its node.
type report struct {
	table    gpu.Table
	ids      map[gpu.DeviceID]int64              // healthy units for passthrough
	types    map[gpu.ResourceName]int64          // instances of vGPU types, by the plugin's name for them
	tied     map[gpu.ResourceName][]gpu.DeviceID // what the node's own names were found to be
	nameless int64                               // healthy units of ids without a known name: any may be theirs
	numa     map[gpu.DeviceID]map[int]int64      // of ids: healthy units by NUMA node, where that is known
}

func newReport(n *Node, table gpu.Table) *report {
	r := &report{
		table: table, ids: map[gpu.DeviceID]int64{}, types: map[gpu.ResourceName]int64{}, tied: map[gpu.ResourceName][]gpu.DeviceID{},
		numa: map[gpu.DeviceID]map[int]int64{},
	}
	for _, g := range n.Facts.Plugin.Registrations(n.Host) {
		for i := range g.Units {
			if u := &g.Units[i]; u.Function != nil && wholeUnit(&g, u) {
				r.add(u.Function)
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
			r.add(f)
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

// add counts a healthy unit of a function's id.
func (r *report) add(f *gpu.Function) {
	id := f.ID.Device
	r.ids[id]++
	if f.NUMA == nil {
		return
	}
	if r.numa[id] == nil {
		r.numa[id] = map[int]int64{}
	}
	r.numa[id][*f.NUMA]++
}

// sides returns how many of a name's units are at each NUMA node, in the order of
// these; nil where that is not known of all of them.
func (r *report) sides(name gpu.ResourceName, units int64) []int64 {
	sums := map[int]int64{}
	known := int64(0)
	for id := range r.idsOf(name) {
		for numa, n := range r.numa[id] {
			sums[numa] += n
			known += n
		}
	}
	if known != units || units == 0 {
		return nil
	}
	var out []int64
	for _, numa := range slices.Sorted(maps.Keys(sums)) {
		out = append(out, sums[numa])
	}
	return out
}

// idsOf returns the ids that stand behind a name.
func (r *report) idsOf(name gpu.ResourceName) map[gpu.DeviceID]bool {
	ids := map[gpu.DeviceID]bool{}
	for _, id := range append(gpu.DeviceIDs(name), r.tied[name]...) {
		ids[id] = true
	}
	for _, e := range r.table.Entries {
		if id, ok := e.ID(); ok && e.Name == name && id.IsNVIDIA() {
			ids[id.Device] = true
		}
	}
	return ids
}

// healthy returns how many units of the name are healthy; says is false where the
// report cannot know. A passthrough unit is one function, or, before v1.5.0 of the
// plugin, one IOMMU group; a vGPU unit is a mediated device that exists or that its
// parent has room for. Types share their parent's room, so the units of several names
// are not to be added up.
func (r *report) healthy(name gpu.ResourceName) (units int64, says bool) {
	ids := r.idsOf(name)
	types := map[gpu.ResourceName]bool{name: true}
	_, says = r.types[name]
	says = says || name.IsVGPU()
	for _, e := range r.table.Entries {
		if e.Name == name && e.List == gpu.ListMdev {
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
