package alloc

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Kind says why a set is refused, in a form that programs branch on.
type Kind string

// The kinds, those first that last longest.
const (
	Invalid     Kind = "Invalid"     // nothing is asked, or no positive number, or one device twice
	Unserved    Kind = "Unserved"    // no node serves one of the resource names
	TooLarge    Kind = "TooLarge"    // no node serves as many units, even with nobody there
	Constrained Kind = "Constrained" // nodes have the units free, and the launcher can run on none of them
	Full        Kind = "Full"        // no node has the units free
)

// Refusal is why a set has no node now.
type Refusal struct {
	Kind     Kind
	Asks     []Ask    // what the set needs on one node
	Supplies []Supply // what there is of each
	// Verdicts are why the nodes that have room were refused, the most nodes
	// first.
	Verdicts []Tally
	// Missing is what must be added for the set to fit; nil where no node would
	// do, whatever is added.
	Missing *Missing
	// Stuck are the nodes where the set holds units and the launcher cannot run.
	Stuck []Stuck
	// Exhausted says that looking for reservations to move was given up: there
	// may be a way.
	Exhausted bool
}

// Supply is what nodes have of one resource name.
type Supply struct {
	Ask
	Nodes   int   // that serve it
	Closed  int   // of them, that take nothing new
	Largest int64 // served by one node, at most
	Free    int64 // on all open nodes
	Raw     int64 // taken on these by pods without a device
	Most    int64 // free on one open node, at most
	Enough  int   // open nodes that have what is asked
}

// Tally is how many nodes were refused for the same reason.
type Tally struct {
	Verdict Verdict
	Nodes   int
}

// Missing is one node, the launcher could run there, and what more it would have
// to have free: the fewest units of all nodes.
type Missing struct {
	Node string
	Asks []Ask
}

// Stuck is a node where a set holds units, and why its launcher cannot run there.
type Stuck struct {
	Node    string
	Verdict Verdict
}

func (m *Missing) units() (sum int64) {
	for _, a := range m.Asks {
		sum += a.Units
	}
	return sum
}

// Error tells the operator everything.
func (r *Refusal) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "no node for %s", list(r.Asks))
	switch r.Kind {
	case Invalid:
		return fmt.Sprintf("%s cannot be asked for", cmp.Or(list(r.Asks), "nothing"))
	case Constrained:
		b.WriteString(" can run it")
	}
	for _, s := range r.Supplies {
		b.WriteString("; " + s.String())
	}
	for _, t := range r.Verdicts {
		fmt.Fprintf(&b, "; %s with room: %s", nodes(t.Nodes), t.Verdict)
	}
	for _, h := range r.Stuck {
		fmt.Fprintf(&b, "; it has units on %s and cannot run there: %s", h.Node, h.Verdict)
	}
	if r.Missing != nil {
		fmt.Fprintf(&b, "; %s would do with %s more", r.Missing.Node, list(r.Missing.Asks))
	}
	if r.Exhausted {
		b.WriteString("; reservations could perhaps be moved: not all ways were tried")
	}
	return b.String()
}

// String returns what there is, in words for the operator.
func (s Supply) String() string {
	if s.Nodes == 0 {
		return fmt.Sprintf("no node serves %s", s.Resource)
	}
	verb := "serve"
	if s.Nodes == 1 {
		verb = "serves"
	}
	text := fmt.Sprintf("%s: %s %s it, %d on one at most, %d free together, %d on one at most",
		s.Resource, nodes(s.Nodes), verb, s.Largest, s.Free, s.Most)
	if s.Raw > 0 {
		text += fmt.Sprintf(", %d taken by pods without a device", s.Raw)
	}
	if s.Closed > 0 {
		text += fmt.Sprintf(", %d closed", s.Closed)
	}
	return text
}

// ForTenant tells the tenant what they can act on, and names no node.
func (r *Refusal) ForTenant() string {
	what := list(r.Asks)
	switch r.Kind {
	case Invalid:
		return r.Error()
	case Unserved:
		for _, s := range r.Supplies {
			if s.Nodes == 0 {
				return fmt.Sprintf("no node has %s", s.Resource)
			}
		}
	case TooLarge:
		return fmt.Sprintf("no node is large enough for %s together: ask for fewer", what)
	case Constrained:
		why := make([]string, len(r.Verdicts))
		for i, t := range r.Verdicts {
			why[i] = string(t.Verdict)
		}
		return fmt.Sprintf("%s are free, but the VM cannot run there: %s", what, strings.Join(why, "; "))
	}
	if r.Missing != nil {
		return fmt.Sprintf("no node has %s free together now: %s too few", what, list(r.Missing.Asks))
	}
	return fmt.Sprintf("no node has %s free together now", what)
}

// list returns "4 of nvidia.com/X and 1 of nvidia.com/Y".
func list(asks []Ask) string {
	words := make([]string, len(asks))
	for i, a := range asks {
		words[i] = fmt.Sprintf("%d of %s", a.Units, a.Resource)
	}
	return strings.Join(words, " and ")
}

func nodes(n int) string {
	if n == 1 {
		return "1 node"
	}
	return fmt.Sprintf("%d nodes", n)
}

func count(tallies []Tally, v Verdict) []Tally {
	for i := range tallies {
		if tallies[i].Verdict == v {
			tallies[i].Nodes++
			return tallies
		}
	}
	return append(tallies, Tally{v, 1})
}

// refuse says why no node has room.
func (q *query) refuse(refused []Tally) *Refusal {
	slices.SortFunc(refused, func(a, b Tally) int {
		return cmp.Or(cmp.Compare(b.Nodes, a.Nodes), cmp.Compare(a.Verdict, b.Verdict))
	})
	r := &Refusal{Kind: Full, Asks: q.asks, Verdicts: refused, Supplies: make([]Supply, 0, len(q.asks))}
	for _, a := range q.asks {
		supply := q.supply(a)
		r.Supplies = append(r.Supplies, supply)
		switch {
		case supply.Nodes == 0:
			r.Kind = Unserved
		case r.Kind == Full && supply.Largest < a.Units:
			r.Kind = TooLarge
		}
	}
	if r.Kind == Full && len(q.asks) > 1 && !q.anyLarge() {
		r.Kind = TooLarge
	}
	if r.Kind == Full && len(refused) > 0 {
		r.Kind = Constrained
	}
	if r.Kind != Unserved {
		r.Missing = q.missing()
	}
	return r
}

func (q *query) supply(a Ask) Supply {
	if q.Among != nil {
		return q.supplyAmong(a)
	}
	x := q.s.index(a.Resource)
	if x == nil {
		return Supply{Ask: a}
	}
	out := Supply{Ask: a, Closed: x.closed, Largest: x.largest(), Free: x.free, Raw: x.raw, Most: x.most(), Enough: x.enough(a.Units)}
	for _, size := range x.sizes {
		out.Nodes += size.nodes
	}
	return out
}

// supplyAmong looks at all nodes: the indexes know nothing of those that count.
func (q *query) supplyAmong(a Ask) Supply {
	out := Supply{Ask: a}
	q.s.nodes.all(func(n *node) bool {
		p := n.pool(a.Resource)
		if p == nil || !q.among(n.name) {
			return true
		}
		out.Largest = max(out.Largest, p.served)
		if p.served > 0 {
			out.Nodes++
		}
		if !n.open() {
			out.Closed += min(1, int(p.served))
			return true
		}
		free := max(0, p.free())
		out.Free += free
		out.Raw += p.raw
		out.Most = max(out.Most, free)
		if free >= a.Units {
			out.Enough++
		}
		return true
	})
	return out
}

// anyLarge reports that some node serves all that is asked.
func (q *query) anyLarge() bool {
	large := false
	q.s.nodes.all(func(n *node) bool {
		large = q.among(n.name) && !slices.ContainsFunc(q.asks, func(a Ask) bool {
			p := n.pool(a.Resource)
			return p == nil || p.served < a.Units
		})
		return !large
	})
	return large
}

// missing returns the node that would do with the fewest units more.
func (q *query) missing() (found *Missing) {
	try := func(m *Missing) bool {
		if q.among(m.Node) && q.verdict(m.Node) == "" {
			found = m
		}
		return found == nil
	}
	if len(q.asks) > 1 {
		for _, m := range q.mixedMissing() {
			if !try(&m) {
				break
			}
		}
		return found
	}
	ask := q.asks[0]
	x := q.s.index(ask.Resource)
	for p, ok := x.fit.before(freeFrom(ask.Units)); ok && found == nil; {
		free := p.free()
		x.fit.since(freeFrom(free), func(p *pool) bool {
			return p.free() == free && try(&Missing{p.node, []Ask{{ask.Resource, ask.Units - free}}})
		})
		p, ok = x.fit.before(freeFrom(free))
	}
	return found
}

// mixedMissing looks through the nodes that serve the first resource name; those
// first that miss the fewest units.
func (q *query) mixedMissing() (out []Missing) {
	q.s.index(q.asks[0].Resource).fit.all(func(first *pool) bool {
		m := Missing{Node: first.node}
		for _, a := range q.asks {
			if n := a.Units - q.free(first.node, a.Resource); n > 0 {
				m.Asks = append(m.Asks, Ask{a.Resource, n})
			}
		}
		if len(m.Asks) > 0 {
			out = append(out, m)
		}
		return true
	})
	slices.SortStableFunc(out, func(a, b Missing) int {
		return cmp.Or(cmp.Compare(a.units(), b.units()), cmp.Compare(a.Node, b.Node))
	})
	return out
}
