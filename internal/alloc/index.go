package alloc

import (
	"cmp"
	"slices"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// index finds the nodes for one resource name. It never changes once it is in
// a snapshot.
type index struct {
	resource gpu.ResourceName
	fit      tree[*pool, byFree] // of open nodes
	loose    tree[*pool, byRoom] // of these, those where something may be moved
	free     int64               // on all open nodes
	raw      int64               // of pods that are no device's, on these
	closed   int                 // nodes that serve units and are closed
	sizes    []size              // of nodes that serve units, closed ones included; by units
	pools    int
}

// size is how many nodes serve so many units.
type size struct {
	units int64
	nodes int
}

// link adds a pool, and unlink takes it out.
func (x *index) link(n *node, p *pool) {
	x.pools++
	x.resize(p.served, 1)
	switch {
	case n.open():
		x.fit = x.fit.put(p)
		if p.loose > 0 {
			x.loose = x.loose.put(p)
		}
		x.free += max(0, p.free())
		x.raw += p.raw
	case p.served > 0:
		x.closed++
	}
}

func (x *index) unlink(n *node, p *pool) {
	x.pools--
	x.resize(p.served, -1)
	switch {
	case n.open():
		x.fit = x.fit.remove(p)
		if p.loose > 0 {
			x.loose = x.loose.remove(p)
		}
		x.free -= max(0, p.free())
		x.raw -= p.raw
	case p.served > 0:
		x.closed--
	}
}

func (x *index) resize(units int64, by int) {
	if units == 0 {
		return
	}
	i, found := slices.BinarySearchFunc(x.sizes, units, func(s size, units int64) int { return cmp.Compare(s.units, units) })
	next := slices.Clone(x.sizes)
	if !found {
		next = slices.Insert(next, i, size{units: units})
	}
	if next[i].nodes += by; next[i].nodes == 0 {
		next = slices.Delete(next, i, i+1)
	}
	if len(next) == 0 {
		next = nil
	}
	x.sizes = next
}

// largest returns how many units a node serves at most.
func (x *index) largest() int64 {
	if x == nil || len(x.sizes) == 0 {
		return 0
	}
	return x.sizes[len(x.sizes)-1].units
}

// most returns how many units are free on an open node, at most.
func (x *index) most() int64 {
	b := x.fit.root
	if b == nil {
		return 0
	}
	for b.right != nil {
		b = b.right
	}
	return max(0, b.item.free())
}

// freeFrom is a probe before all pools with that many free units.
func freeFrom(units int64) *pool { return &pool{served: units, side: -1} }

// first returns the first pool with at least that many free units, or nil. It is a
// tree's search without a probe, which would be allocated.
func (x *index) first(units int64) (found *pool) {
	for b := x.fit.root; b != nil; {
		if b.item.free() >= units {
			found, b = b.item, b.left
		} else {
			b = b.right
		}
	}
	return found
}

// enough returns how many open nodes have that many units free.
func (x *index) enough(units int64) int { return x.fit.countFrom(freeFrom(units)) }

// level yields the pools with exactly that many free units: those first that
// have the units on one NUMA node, tightest first, then those that spread them
// over the fewest; then by name. It reports that it was not stopped.
func (x *index) level(free, units int64, yield func(*pool) bool) bool {
	stopped := false
	span := func(side int64, same bool) {
		x.fit.since(&pool{served: free, side: side}, func(p *pool) bool {
			if p.free() != free || same && p.side != side {
				return false
			}
			stopped = !yield(p)
			return !stopped
		})
	}
	span(units, false)
	for side := units; !stopped; {
		p, ok := x.fit.before(&pool{served: free, side: side})
		if !ok || p.free() != free {
			break
		}
		side = p.side
		span(side, true)
	}
	return !stopped
}

// ranked yields the pools with at least that many free units, best first: those
// with the fewest free.
func (x *index) ranked(units int64, yield func(*pool) bool) {
	for p := x.first(units); p != nil; {
		first, free := p, p.free()
		// The first is the best if it has the units on one NUMA node, and is mostly
		// taken: then the level is not searched.
		best := first.side >= units
		if best && !yield(first) {
			return
		}
		if !x.level(free, units, func(p *pool) bool { return best && p == first || yield(p) }) {
			return
		}
		p = x.first(free + 1)
	}
}
