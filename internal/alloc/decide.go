package alloc

import (
	"cmp"
	"iter"
	"slices"
)

// Decision is where a set is placed.
type Decision struct {
	Node string
	// Moves are the reservations of others that must be moved first, one after the
	// other: each has room once those before it are made, while the set still holds
	// what it holds elsewhere. None is attached or bound.
	Moves []Move
}

// Move takes a device from one node to another.
type Move struct{ UID, From, To string }

// Decide says on which node the whole set is placed. An error is the Budget's,
// or a *Refusal. The same snapshot and request always get the same answer.
//
// A set stays where it is if it can: nodes that hold units of it come first,
// the most units first. Among others the fullest that has room is best, by the
// resource name of which the most is asked; among these one that has the units
// on one NUMA node; among these the first by name. Only if no node has room are
// reservations moved, as few units as possible from the node that gets the set.
func Decide(s *Snapshot, r Request) (Decision, error) {
	// 1. What is asked, and may it be?
	if r.Budget != nil {
		if err := r.Budget(); err != nil {
			return Decision{}, err
		}
	}
	read, invalid := newQuery(s, r)
	if invalid != nil {
		return Decision{}, invalid
	}
	q := &read
	// 2. The first node, best first, where it fits as it is.
	var refused []Tally
	found := ""
	q.candidates(func(name string) bool {
		v := q.verdict(name)
		if v == "" {
			found = name
			return false
		}
		refused = count(refused, v)
		return true
	})
	if found != "" {
		return Decision{Node: found}, nil
	}
	// 3. Or one that others make room on.
	d, ok, exhausted := q.repack()
	if ok {
		return d, nil
	}
	// 4. Or why there is none.
	refusal := q.released().refuse(refused)
	refusal.Exhausted = exhausted
	for _, o := range q.own {
		if v := q.verdict(o.node); v != "" && q.among(o.node) {
			refusal.Stuck = append(refusal.Stuck, Stuck{o.node, v})
		}
	}
	return Decision{}, refusal
}

// Ranked yields the nodes on which the set fits as it is, in Decide's order. It
// yields none for a request that is invalid, and asks no budget.
func Ranked(s *Snapshot, r Request) iter.Seq[string] {
	return func(yield func(string) bool) {
		q, invalid := newQuery(s, r)
		if invalid != nil {
			return
		}
		q.candidates(func(name string) bool { return q.verdict(name) != "" || yield(name) })
	}
}

// Place returns the changes that make a decision true: the moves, and the set
// on its node as devices in the given state. A member that the snapshot does not
// have needs a UID.
func (d Decision) Place(s *Snapshot, set []Member, state State) []Change {
	changes := moves(s, d.Moves)
	for _, m := range set {
		now, _ := s.Device(m.UID)
		now.UID, now.Resource, now.Units = m.UID, m.Resource, m.Units
		if now.Node != d.Node {
			now.Running = 0
		}
		now.Node, now.State, now.Lost = d.Node, state, false
		changes = append(changes, PutDevice(now))
	}
	return changes
}

func moves(s *Snapshot, list []Move) []Change {
	var changes []Change
	for _, m := range list {
		if d, ok := s.Device(m.UID); ok {
			d.Node, d.Lost = m.To, false
			changes = append(changes, PutDevice(d))
		}
	}
	return changes
}

// candidates yields the nodes that have room for the set, best first.
func (q *query) candidates(yield func(string) bool) {
	for i := range q.own {
		name := q.own[i].node
		if n := q.s.at(name); n != nil && n.open() && q.hasRoom(name) && q.among(name) && !yield(name) {
			return
		}
	}
	others := func(p *pool) bool { return q.isOwn(p.node) || !q.among(p.node) || yield(p.node) }
	if len(q.asks) > 1 {
		q.mixed(others)
		return
	}
	if x := q.s.index(q.asks[0].Resource); x != nil {
		x.ranked(q.asks[0].Units, others)
	}
}

// few is how much scarcer another resource name must be than the first for its
// nodes to be looked through and sorted.
const few = 8

// mixed yields the pools of the first resource name on the nodes that have room
// for all, in the order in which they are ranked by the first.
func (q *query) mixed(yield func(*pool) bool) {
	var scarcest Ask
	least := -1
	for _, a := range q.asks {
		x := q.s.index(a.Resource)
		if x == nil {
			return
		}
		if n := x.enough(a.Units); least < 0 || n < least {
			scarcest, least = a, n
		}
	}
	first := q.asks[0]
	x := q.s.index(first.Resource)
	if x.enough(first.Units) <= few*least {
		x.ranked(first.Units, func(p *pool) bool { return !q.hasRoom(p.node) || yield(p) })
		return
	}
	fits := make([]*pool, 0, least)
	q.s.index(scarcest.Resource).fit.since(freeFrom(scarcest.Units), func(p *pool) bool {
		if q.hasRoom(p.node) {
			fits = append(fits, q.s.pool(p.node, first.Resource))
		}
		return true
	})
	slices.SortFunc(fits, func(a, b *pool) int {
		return cmp.Or(cmp.Compare(a.free(), b.free()), compareSides(a, b, first.Units), cmp.Compare(a.node, b.node))
	})
	for _, p := range fits {
		if !yield(p) {
			return
		}
	}
}

// compareSides puts the pool first that has the units on one NUMA node, the
// tighter of two; else the one that spreads them less.
func compareSides(a, b *pool, units int64) int {
	switch {
	case a.side >= units && b.side >= units:
		return cmp.Compare(a.side, b.side)
	default:
		return cmp.Compare(b.side, a.side)
	}
}

// released returns the query on a snapshot where the set holds nothing. What
// still runs of lost members stays taken.
func (q *query) released() *query {
	if len(q.own) == 0 {
		return q
	}
	var changes []Change
	for _, m := range q.Set {
		if d := q.s.find(m.UID); d != nil && !d.Lost {
			changes = append(changes, DropDevice(m.UID))
		}
	}
	return &query{Request: q.Request, s: q.s.With(changes...), asks: q.asks}
}
