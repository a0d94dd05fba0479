package alloc

import (
	"cmp"
	"slices"
)

const (
	maxTargets = 32 // nodes that are tried for a set
	maxChain   = 3  // moves that make room for one another
	maxSubsets = 64 // ways to make room on one node

	// looks is how many nodes that a device may not be moved to, or sums of
	// units on a node, are as much as one step.
	looks = 64
)

// repacker looks for reservations that can be moved to make room. What it
// tries are snapshots, so that going back costs nothing.
type repacker struct {
	q     *query
	set   []*Device // members that hold units: they stay until the set is placed
	looks int       // that are left
}

// target is a node where the set would fit if units were moved.
type target struct {
	node    string
	missing int64
}

// repack finds the node where moving reservations makes room for the set, and
// the moves. exhausted says that it gave up, so that there may be one.
func (q *query) repack() (d Decision, ok, exhausted bool) {
	r := &repacker{q: q, looks: looks * cmp.Or(q.Effort, DefaultEffort)}
	for _, m := range q.Set {
		if d := q.s.find(m.UID); d != nil {
			r.set = append(r.set, d)
		}
	}
	if r.looks < 0 || !q.enoughFree() {
		return Decision{}, false, false
	}
	// 1. The nodes that would do, those first where the fewest units must move.
	targets, more := r.targets()
	// 2. Moves that need no other moves first: they are the fewest.
	for chain := range maxChain + 1 {
		for _, t := range targets {
			if moved, ok := r.clear(t.node, chain); ok {
				return Decision{Node: t.node, Moves: moved}, true, false
			}
			if r.looks <= 0 {
				return Decision{}, false, true
			}
		}
	}
	return Decision{}, false, more
}

// enoughFree reports that open nodes have enough units free between them:
// without, no moves help.
func (q *query) enoughFree() bool {
	for _, a := range q.asks {
		var most int64
		for i := range q.own {
			most = max(most, q.own[i].units(a.Resource))
		}
		if x := q.s.index(a.Resource); x == nil || x.free+most < a.Units {
			return false
		}
	}
	return true
}

// without is the snapshot with the set gone from a node.
func (r *repacker) without(node string) *Snapshot {
	if !r.q.isOwn(node) {
		return r.q.s
	}
	var changes []Change
	for _, d := range r.set {
		if d.Node == node && !d.Lost {
			changes = append(changes, DropDevice(d.UID))
		}
	}
	return r.q.s.With(changes...)
}

// targets returns the nodes where the set may run and would fit if reservations
// were elsewhere. more says that there are others still.
func (r *repacker) targets() (out []target, more bool) {
	add := func(t target) bool {
		if !r.q.among(t.node) {
			return true
		}
		if len(out) == maxTargets {
			more = true
			return false
		}
		if r.q.verdict(t.node) == "" {
			out = append(out, t)
		}
		return true
	}
	if len(r.q.asks) > 1 {
		for _, t := range r.mixedTargets() {
			if !add(t) {
				break
			}
		}
		return out, more
	}
	for i := range r.q.own {
		if t, ok := r.target(r.q.own[i].node); ok && r.q.s.at(t.node).open() {
			add(t)
		}
	}
	ask := r.q.asks[0]
	x := r.q.s.index(ask.Resource)
	x.roomy(ask.Units, func(p *pool) bool { return r.q.isOwn(p.node) || add(target{p.node, ask.Units - p.free()}) })
	return out, more
}

// target returns the node with what must move there; ok is false where that would
// not do, or nothing needs to.
func (r *repacker) target(node string) (t target, ok bool) {
	t.node = node
	s := r.without(node)
	for _, a := range r.q.asks {
		p := s.pool(node, a.Resource)
		if p == nil || p.room() < a.Units {
			return t, false
		}
		t.missing += max(0, a.Units-p.free())
	}
	return t, t.missing > 0
}

// roomy yields the pools that have fewer units free and would have as many if
// all that may be moved were elsewhere; those with the most free first.
func (x *index) roomy(units int64, yield func(*pool) bool) {
	probe := func(free, room int64) *pool { return &pool{served: free, loose: room - free} }
	for p, ok := x.loose.before(probe(units, units)); ok; {
		free, stopped := p.free(), false
		x.loose.since(probe(free, units), func(p *pool) bool {
			if p.free() != free {
				return false
			}
			stopped = !yield(p)
			return !stopped
		})
		if stopped {
			return
		}
		p, ok = x.loose.before(probe(free, free))
	}
}

// mixedTargets looks through all nodes that serve the first resource name.
func (r *repacker) mixedTargets() (out []target) {
	r.q.s.index(r.q.asks[0].Resource).fit.all(func(first *pool) bool {
		if t, ok := r.target(first.node); ok {
			out = append(out, t)
		}
		return true
	})
	slices.SortFunc(out, func(a, b target) int {
		return cmp.Or(cmp.Compare(a.missing, b.missing), cmp.Compare(a.node, b.node))
	})
	return out
}

// clear makes room on the node for the set, one resource name after the other:
// they are in nobody's way.
func (r *repacker) clear(name string, chain int) (out []Move, ok bool) {
	s := r.without(name)
	for _, a := range r.q.asks {
		set := &Device{UID: "\x00set", Resource: a.Resource, Units: a.Units, Node: name, State: Attached}
		moved, ok := r.squeeze(s, set, name, state{placed: r.set}, chain)
		if !ok {
			return nil, false
		}
		moves, _ := r.inOrder(moved)
		out = append(out, moves...)
	}
	return out, true
}

// inOrder returns the moves that bring devices where they were placed, each to where
// there is room by then; ok is false where some would wait for one another.
func (r *repacker) inOrder(placed []*Device) (out []Move, ok bool) {
	var left []*Device
	for _, d := range placed {
		if was := r.q.s.find(d.UID); was != nil && was.Node != d.Node {
			left = append(left, d)
		}
	}
	slices.SortFunc(left, func(a, b *Device) int { return cmp.Compare(a.UID, b.UID) })
	s := r.q.s
	for len(left) > 0 {
		i := slices.IndexFunc(left, func(d *Device) bool { return s.Free(d.Node, d.Resource) >= d.Units })
		if i < 0 {
			return nil, false
		}
		out = append(out, Move{UID: left[i].UID, From: s.find(left[i].UID).Node, To: left[i].Node})
		s = s.With(PutDevice(*left[i]))
		left = slices.Delete(left, i, i+1)
	}
	return out, true
}

// state is how far the search has come.
type state struct {
	homeless []*Device // that must leave and have no other node yet
	placed   []*Device // with the nodes they have
}

// squeeze puts the device on the node and houses elsewhere what must leave for
// it: the ways first that move the fewest units.
func (r *repacker) squeeze(s *Snapshot, d *Device, name string, at state, chain int) ([]*Device, bool) {
	p := s.pool(name, d.Resource)
	var loose []*Device
	for _, other := range p.devices {
		if other.State == Held && !contains(at.placed, other) {
			loose = append(loose, other)
		}
	}
	slices.SortFunc(loose, largestFirst)
	here := *d
	here.Node = name
	at.placed = append(slices.Clip(at.placed), &here)
	tried := 0
	var out []*Device
	for total := max(0, d.Units-p.free()); total <= p.loose && r.looks > 0 && tried < maxSubsets && out == nil; total++ {
		r.subsets(loose, total, nil, func(leave []*Device) bool {
			tried++
			changes := []Change{PutDevice(here)}
			for _, other := range leave {
				changes = append(changes, DropDevice(other.UID))
			}
			next := at
			next.homeless = slices.Concat(at.homeless, leave)
			slices.SortFunc(next.homeless, largestFirst)
			out, _ = r.house(s.With(changes...), next, chain)
			return out == nil && r.looks > 0 && tried < maxSubsets
		})
	}
	return out, out != nil
}

func contains(list []*Device, d *Device) bool {
	return slices.ContainsFunc(list, func(other *Device) bool { return other.UID == d.UID })
}

// subsets yields the devices, largest first, whose units add up to the total,
// and of those with as many units each one only once. It reports that it was
// not stopped. Each step of it is a look, for there may be very many.
func (r *repacker) subsets(list []*Device, total int64, chosen []*Device, yield func([]*Device) bool) bool {
	if total == 0 {
		return yield(chosen)
	}
	r.looks--
	if r.looks <= 0 {
		return false
	}
	var rest int64
	for _, d := range list {
		rest += d.Units
	}
	for i, d := range list {
		if rest < total {
			return true
		}
		rest -= d.Units
		if d.Units > total || d.Units == 0 || i > 0 && list[i-1].Units == d.Units {
			continue
		}
		if !r.subsets(list[i+1:], total-d.Units, append(slices.Clip(chosen), d), yield) {
			return false
		}
	}
	return true
}

// house finds a node for each of the homeless, largest first, and returns all
// that were placed. It tries the tightest node of each number of free units,
// then, if the chain allows, nodes where others make room in turn. Nobody moves
// twice.
func (r *repacker) house(s *Snapshot, at state, chain int) ([]*Device, bool) {
	if len(at.homeless) == 0 {
		_, ok := r.inOrder(at.placed)
		return at.placed, ok
	}
	if r.looks -= looks; r.looks < 0 {
		return nil, false
	}
	d := at.homeless[0]
	at.homeless = at.homeless[1:]
	x := s.index(d.Resource)
	for p := x.first(d.Units); p != nil; {
		free := p.free()
		if p = r.firstAllowed(x, d, free); p != nil {
			there := *d
			there.Node = p.node
			next := at
			next.placed = append(slices.Clip(at.placed), &there)
			if out, ok := r.house(s.With(PutDevice(there)), next, chain); ok {
				return out, true
			}
		}
		p = x.first(free + 1)
	}
	if chain == 0 {
		return nil, false
	}
	var out []*Device
	x.roomy(d.Units, func(p *pool) bool {
		if r.allowed(d, p.node) {
			out, _ = r.squeeze(s, d, p.node, at, chain-1)
		}
		return out == nil && r.looks > 0
	})
	return out, out != nil
}

// firstAllowed returns the best of the nodes with that many units free.
func (r *repacker) firstAllowed(x *index, d *Device, free int64) (found *pool) {
	x.level(free, d.Units, func(p *pool) bool {
		if r.allowed(d, p.node) {
			found = p
		}
		return found == nil && r.looks > 0
	})
	return found
}

func (r *repacker) allowed(d *Device, name string) bool {
	if r.q.May == nil || r.q.May(*d, name) {
		return true
	}
	r.looks--
	return false
}
