package alloc

// Simulation is what would be if nodes and devices were changed and a set were
// asked for.
type Simulation struct {
	Settled  Settled  // who would move, lose units or have them again
	Decision Decision // where the set would go, unless Err says why not
	Err      error    // as Decide's
	// Nodes are those on which the set would fit with nobody moved, in Decide's
	// order, at most as many as asked for.
	Nodes []string
}

// Simulate answers what Decide would after the changes: no changes for whether
// an order or a VM fits now, Drain for a node that is taken away, PutNode for one
// that is bought. It lists up to so many nodes that would do.
func Simulate(s *Snapshot, changes []Change, r Request, list int) Simulation {
	var out Simulation
	s, out.Settled = Settle(s.With(changes...), r.May)
	out.Decision, out.Err = Decide(s, r)
	if list <= 0 {
		return out
	}
	for name := range Ranked(s, r) {
		out.Nodes = append(out.Nodes, name)
		if len(out.Nodes) == list {
			break
		}
	}
	return out
}

// Drain returns the changes that take a node away: what is reserved there moves,
// and who runs there loses their units.
func Drain(node string) []Change { return []Change{DropNode(node)} }
