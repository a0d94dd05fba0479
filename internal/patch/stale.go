package patch

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// Idle is what a plan needs to know to take gpuctl's own stale entries away: for how
// long no node has served a name, as far as somebody has watched, and how long is
// long enough. The zero Idle takes nothing away.
type Idle struct {
	For   map[gpu.ResourceName]time.Duration
	Limit time.Duration
}

// long reports a name that was served by nobody for long enough.
func (i Idle) long(name gpu.ResourceName) bool {
	unserved, watched := i.For[name]
	return i.Limit > 0 && watched && unserved >= i.Limit
}

// prune takes away gpuctl's own entries that an upgrade of the device plugin or the
// end of a card has left behind. A node that is silent or shows 0 is no reason: each
// that could serve the name has to serve its devices under another one, or none is
// left. Nobody may use the name, and nobody may have served it for long.
func (p *planner) prune(wants []want) {
	if p.in.Idle.Limit <= 0 || !p.in.WorkloadsKnown {
		return
	}
	for _, e := range slices.Backward(p.table.Entries) {
		if !p.owns(e) || p.named(e) || !p.in.Idle.long(e.Name) || wanted(wants, e) || p.used(e.Name) {
			continue
		}
		var why string
		switch to := p.movedTo(e); {
		case to != "":
			why = fmt.Sprintf("no node serves the name any more, they serve the devices as %s", to)
		case p.gone(e):
			why = "no node has such a device any more"
		default:
			continue
		}
		p.forget(e, fmt.Sprintf("%s; unused for %s", why, p.in.Idle.Limit))
	}
}

// supersede takes away the own entries of the selector of w that are in its way, where
// the list is keyed by the selector and all nodes have moved on to the new name.
func (p *planner) supersede(w want) {
	if !p.schema.keyed || w.how > gpu.Inferred || w.how == gpu.Explicit || !p.in.WorkloadsKnown {
		return
	}
	for _, e := range slices.Backward(p.table.Entries) {
		id, ok := e.ID()
		if ok && id == w.id && e.Name != w.name && p.owns(e) && !p.used(e.Name) && p.movedTo(e) == w.name {
			p.forget(e, fmt.Sprintf("no node serves the name any more, and the list holds one a selector: %s takes its place", w.name))
		}
	}
}

// leaving is an own entry that is to go.
type leaving struct {
	gpu.Entry
	why string
}

// forget takes an own entry away, and out of the record.
func (p *planner) forget(e gpu.Entry, why string) {
	p.leaving = append(p.leaving, leaving{e, why})
	p.record.Entries = slices.DeleteFunc(p.record.Entries, func(w wired) bool { return w.is(e) })
	p.table.Entries = slices.DeleteFunc(slices.Clone(p.table.Entries), func(o gpu.Entry) bool { return o == e })
	p.dirty = true
}

// dropLeaving makes the edits for the entries that go, the last of each list first.
func (p *planner) dropLeaving() {
	slices.SortFunc(p.leaving, func(a, b leaving) int { return cmp.Or(cmp.Compare(a.List, b.List), b.Index-a.Index) })
	for _, l := range p.leaving {
		p.drop(p.schema.list(l.List), l.Index, l.Entry)
		p.changes[len(p.changes)-1].Why = l.why
	}
}

// is reports that the record speaks of the entry, and of its provider.
func (w wired) is(e gpu.Entry) bool {
	return w.List == e.List && strings.EqualFold(w.Selector, e.Selector) && w.Name == e.Name && w.InTree == !e.External
}

// owns reports an entry that gpuctl wrote and nobody has changed since.
func (p *planner) owns(e gpu.Entry) bool {
	return !e.Disabled && slices.ContainsFunc(p.record.Entries, func(w wired) bool { return w.is(e) })
}

// named reports an own entry that somebody named: racks may come that need it.
func (p *planner) named(e gpu.Entry) bool {
	return slices.ContainsFunc(p.record.Entries, func(w wired) bool { return w.Explicit && w.is(e) })
}

func wanted(wants []want, e gpu.Entry) bool {
	id, _ := e.ID()
	return slices.ContainsFunc(wants, func(w want) bool {
		return w.name == e.Name && (e.List == gpu.ListMdev || w.mdev == "" && w.id == id)
	})
}

// used reports a workload, running or not, that asks for the name.
func (p *planner) used(name gpu.ResourceName) bool {
	return slices.ContainsFunc(p.in.Workloads, func(w gpu.Workload) bool { return slices.Contains(w.Names(), name) })
}

// movedTo returns the name under which all nodes that could serve the entry's devices
// serve them now; "" when one of them serves the old name or none at all.
func (p *planner) movedTo(e gpu.Entry) (to gpu.ResourceName) {
	id, ok := e.ID()
	if !ok {
		return ""
	}
	for _, place := range p.places() {
		if !p.concerns(place, e) && p.serving[id][place] == "" {
			continue
		}
		now := p.serving[id][place]
		if now == "" || now == e.Name || p.nodes[place].Allocatable[e.Name] > 0 {
			return ""
		}
		to = now
	}
	return to
}

// gone reports that no node has or shows what the entry permits.
func (p *planner) gone(e gpu.Entry) bool {
	return len(p.nodes) > 0 && !slices.ContainsFunc(p.places(), func(place string) bool { return p.concerns(place, e) })
}

// concerns reports a node that has a device of the entry, or ever showed its name.
func (p *planner) concerns(place string, e gpu.Entry) bool {
	if n := p.nodes[place]; n != nil {
		_, shown := n.Capacity[e.Name]
		if _, allocatable := n.Allocatable[e.Name]; shown || allocatable {
			return true
		}
	}
	h := p.hosts[place]
	if h == nil {
		return false
	}
	if id, ok := e.ID(); ok {
		return slices.ContainsFunc(h.Functions, func(f gpu.Function) bool { return f.ID == id })
	}
	return offersMdev(h, e.Name)
}

// offersMdev reports a host that has, or could make, mediated devices which are served
// under the name.
func offersMdev(h *gpu.Host, name gpu.ResourceName) bool {
	if slices.ContainsFunc(h.Mdevs, func(m gpu.Mdev) bool { return gpu.MdevResource(m.TypeName) == name }) {
		return true
	}
	return slices.ContainsFunc(h.Functions, func(f gpu.Function) bool {
		return slices.ContainsFunc(f.MdevTypes, func(t gpu.MdevType) bool { return gpu.MdevResource(t.Name) == name })
	})
}
