package diagnose

import (
	"maps"
	"slices"
	"strings"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// nodeViews counts the GPUs of one node by resource name. A node without any, and
// that is not meant to have one, has none.
func (x *index) nodeViews(n *gpu.Node, findings []*Finding) []NodeView {
	cards := map[gpu.ResourceName]int64{} // physical ones by the name that they have, or would have
	h := x.hosts[n.Name]
	if h != nil {
		for _, m := range x.matched(n) {
			cards[m.Name] += int64(m.Count)
		}
		if !forOthers(n, h) {
			x.unbound(h, n, cards)
		}
	}
	names := maps.Clone(cards)
	for name := range n.Allocatable {
		if n.Allocatable[name] > 0 && x.isGPU(name) {
			names[name] += 0
		}
	}
	_, meant := Unserved(n, h)
	meant = meant && !forOthers(n, h)
	if len(names) == 0 && !meant {
		return nil
	}
	if len(names) == 0 {
		names[""] = 0
	}
	var out []NodeView
	for _, name := range slices.Sorted(maps.Keys(names)) {
		count, known := cards[name]
		out = append(out, NodeView{Node: n.Name, Resource: name, Tally: x.unitsOf(n, name, count, known), Users: x.usersOn(n.Name, name)})
	}
	x.note(n, out, findings)
	return out
}

// isGPU reports a name of GPUs or vGPUs: NVIDIA's, and others that the table has for
// NVIDIA's cards.
func (x *index) isGPU(name gpu.ResourceName) bool {
	if name.IsNVIDIA() {
		return name.MayBeGPU()
	}
	for _, e := range x.table().Entries {
		if id, ok := e.ID(); ok && e.Name == name && id.IsNVIDIA() && gpu.IsGPUDevice(id.Device) {
			return true
		}
	}
	return false
}

// unbound adds the cards that are on no vfio driver, under the name that they would
// have.
func (x *index) unbound(h *gpu.Host, n *gpu.Node, cards map[gpu.ResourceName]int64) {
	names := map[gpu.DeviceID]gpu.ResourceName{}
	for _, m := range x.matched(n) {
		names[m.Device] = m.Name
	}
	for _, f := range h.GPUs() {
		if f.Driver.IsVFIO() {
			continue
		}
		name, ok := names[f.ID.Device]
		if !ok {
			name = x.releaseOf(n).Name(f.ID.Device)
		}
		cards[name]++
	}
}

// unitsOf counts the units of a name on a node; cards is how many cards stand behind
// it, where that is known.
func (x *index) unitsOf(n *gpu.Node, name gpu.ResourceName, cards int64, known bool) Tally {
	served := n.Allocatable[name]
	u := Tally{Used: min(x.used[n.Name][name], served)}
	rest := served - u.Used
	sound := rest // of what is not used
	if known && !name.IsVGPU() {
		sound = min(rest, max(x.sound(n, name, cards)-u.Used, 0))
		u.Unusable = rest - sound
		u.Unusable += max(cards-served, 0)
	}
	switch {
	case x.table().Set && !x.table().Permits(name), n.Cordoned:
		u.Unusable += sound
	case n.NotReady, !x.PodsKnown:
		u.Unknown = sound
	default:
		u.Free = sound
	}
	return u
}

// sound counts the cards of a name that nothing is wrong with.
func (x *index) sound(n *gpu.Node, name gpu.ResourceName, cards int64) int64 {
	ids := x.cardsOf(n, name)
	bad := int64(0)
	for _, v := range x.judged(n.Name) {
		if v.Function.IsGPU() && !v.Usable && slices.Contains(ids, v.Function.ID.Device) {
			bad++
		}
	}
	return cards - bad
}

// note says on each row what is most wrong with it.
func (x *index) note(n *gpu.Node, rows []NodeView, findings []*Finding) {
	for i := range rows {
		r := &rows[i]
		switch {
		case n.NotReady:
			r.Note = "node is not ready"
		case n.Cordoned:
			r.Note = "node is cordoned"
		case r.Resource != "" && x.served[r.Resource] > 0 && n.Allocatable[r.Resource] > 0 && x.table().Set && !x.table().Permits(r.Resource):
			r.Note, r.Code = "not permitted", "GPU0302"
		}
	}
	for _, f := range findings {
		if f.Severity.Level() < Warning.Level() || f.Code == "GPU0105" {
			continue
		}
		if i := slices.IndexFunc(rows, func(r NodeView) bool { return r.Note == "" && r.fits(f) }); i >= 0 {
			entry, _ := Lookup(string(f.Code))
			rows[i].Note, rows[i].Code = entry.Title, f.Code
			if card := addressPattern.FindString(f.Message); card != "" {
				rows[i].Note = card + ": " + entry.Title
			}
		}
	}
}

// fits reports whether a finding about the node belongs to the row: one that names a
// resource belongs to the row of that name.
func (r *NodeView) fits(f *Finding) bool {
	name := nameIn(f.Message)
	return name == "" || gpu.ResourceName(name) == r.Resource || r.Unusable > 0 && strings.Contains(f.Message, r.Resource.Short())
}
