package alloc

import (
	"cmp"
	"slices"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// Request asks for one node for a set.
type Request struct {
	Set []Member
	// Fits says whether the launcher could run on the node, GPUs aside; nil:
	// everywhere. It is asked only about nodes where units would do, best first,
	// and must say the same when it is asked again.
	Fits func(node string) Verdict
	// Among says which nodes count at all: the others are as if they were not there.
	// nil: all do.
	Among func(node string) bool
	// May says whether another device may be moved to the node; nil: to each that
	// has room.
	May func(d Device, node string) bool
	// Budget is asked first, and its error is the answer: mostly a tenant.Use's
	// Check. nil: the set needs no more than its tenant has.
	Budget func() error
	// Effort limits the steps of looking for what to move: 0 is DefaultEffort,
	// and below 0 nothing is moved.
	Effort int
}

// DefaultEffort is how many steps are tried to move reservations; one takes
// some 10 µs. What Fits and May take comes on top.
const DefaultEffort = 192

// Member is one device of a set. A new order has no UID, or one that is not in
// the snapshot. What a member holds there is free for its set.
type Member struct {
	UID      string
	Resource gpu.ResourceName
	Units    int64
}

// Verdict is why a launcher cannot run on a node, like "untolerated taint"; ""
// where it can. Nodes are counted by it: it names no node.
type Verdict string

// Ask is a number of units of one resource name.
type Ask struct {
	Resource gpu.ResourceName
	Units    int64
}

// query is a request as it is worked on.
type query struct {
	Request
	s    *Snapshot
	asks []Ask // the most units first
	own  []own // nodes where members hold units, best first
}

// own is a node where members of the set hold units.
type own struct {
	node  string
	holds []Ask
	all   int64
}

// units returns what the set holds there of a resource name.
func (o *own) units(r gpu.ResourceName) int64 {
	for _, a := range o.holds {
		if a.Resource == r {
			return a.Units
		}
	}
	return 0
}

// newQuery sums up what is asked, or says why it cannot be asked for.
func newQuery(s *Snapshot, r Request) (query, *Refusal) {
	q := query{Request: r, s: s, asks: make([]Ask, 0, 2)}
	for i, m := range r.Set {
		twice := m.UID != "" && slices.ContainsFunc(r.Set[:i], func(other Member) bool { return other.UID == m.UID })
		if m.Units <= 0 || m.Units > gpu.MaxUnits || m.Resource == "" || twice {
			return q, &Refusal{Kind: Invalid, Asks: []Ask{{m.Resource, m.Units}}}
		}
		q.asks = addTo(q.asks, Ask{m.Resource, m.Units})
		if d := s.find(m.UID); d != nil && !d.Lost {
			q.holds(d)
		}
	}
	if len(q.asks) == 0 {
		return q, &Refusal{Kind: Invalid}
	}
	slices.SortFunc(q.asks, func(a, b Ask) int {
		return cmp.Or(cmp.Compare(b.Units, a.Units), cmp.Compare(a.Resource, b.Resource))
	})
	slices.SortFunc(q.own, q.compareOwn)
	return q, nil
}

func addTo(asks []Ask, a Ask) []Ask {
	for i := range asks {
		if asks[i].Resource == a.Resource {
			asks[i].Units += a.Units
			return asks
		}
	}
	return append(asks, a)
}

func (q *query) holds(d *Device) {
	i := slices.IndexFunc(q.own, func(o own) bool { return o.node == d.Node })
	if i < 0 {
		i = len(q.own)
		q.own = append(q.own, own{node: d.Node})
	}
	q.own[i].holds = addTo(q.own[i].holds, Ask{d.Resource, d.Units})
	q.own[i].all += d.Units
}

// compareOwn puts the node first where the most of the set is, then the tighter.
func (q *query) compareOwn(a, b own) int {
	first := q.asks[0].Resource
	return cmp.Or(cmp.Compare(b.all, a.all), cmp.Compare(q.free(a.node, first), q.free(b.node, first)), cmp.Compare(a.node, b.node))
}

// free returns the units that the set may have on a node.
func (q *query) free(name string, r gpu.ResourceName) int64 {
	var units int64
	if p := q.s.pool(name, r); p != nil {
		units = p.free()
	}
	for i := range q.own {
		if q.own[i].node == name {
			units += q.own[i].units(r)
		}
	}
	return units
}

func (q *query) isOwn(name string) bool {
	for i := range q.own {
		if q.own[i].node == name {
			return true
		}
	}
	return false
}

// hasRoom reports that the node has all that is asked.
func (q *query) hasRoom(name string) bool {
	for _, a := range q.asks {
		if q.free(name, a.Resource) < a.Units {
			return false
		}
	}
	return true
}

func (q *query) among(name string) bool { return q.Among == nil || q.Among(name) }

func (q *query) verdict(name string) Verdict {
	if q.Fits == nil {
		return ""
	}
	return q.Fits(name)
}
