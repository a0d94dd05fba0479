package alloc

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// TestOracle compares Decide with all that could be done in small clusters: it
// tries every node for the set, and every way to move reservations.
func TestOracle(t *testing.T) {
	cases := map[string]struct {
		instances int
		draw      func(below func(int) int) cluster
	}{
		"any cluster":       {150_000, func(below func(int) int) cluster { return draw(below, false) }},
		"full reservations": {25_000, tight},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if testing.Short() {
				tc.instances /= 50
			}
			below := rand.New(rand.NewPCG(7, 7)).IntN
			var found tally
			for i := range tc.instances {
				if err := found.add(tc.draw(below)); err != nil {
					t.Fatalf("instance %d: %v", i, err)
				}
			}
			share := float64(found.did) / float64(found.could)
			t.Logf("%d instances: %d fit as they are, %d never; repacking could make %d fit and makes %d: %.3f %%",
				tc.instances, found.direct, found.never, found.could, found.did, 100*share)
			if share < 0.99 || found.could < tc.instances/60 {
				t.Errorf("repacking finds %.3f %% of %d", 100*share, found.could)
			}
		})
	}
}

// tally counts instances. could is those where repacking helps, did those where
// it was found.
type tally struct{ direct, never, could, did int }

func (f *tally) add(c cluster) error {
	s := c.snapshot()
	d, err := Decide(s, c.request)
	if r := (*Refusal)(nil); err != nil && !errors.As(err, &r) {
		return err
	}
	if err == nil {
		if wrong := checkSound(s, c.request, d); wrong != nil {
			return fmt.Errorf("%+v: %w\n%s", d, wrong, shown(s))
		}
	}
	still := c.request
	still.Effort = -1
	_, errStill := Decide(s, still)
	can := c.possible(false)
	switch {
	case (errStill == nil) != can:
		return fmt.Errorf("nobody moves: possible %v, got %w\n%s", can, errStill, shown(s))
	case can && (err != nil || d.Moves != nil):
		return fmt.Errorf("it fits as it is: %+v %w\n%s", d, err, shown(s))
	case can:
		f.direct++
	case err == nil: // and sound
		f.could++
		f.did++
	case c.possible(true):
		f.could++
	default:
		f.never++
	}
	return nil
}

// tight is a cluster full of reservations, with about as much free as is asked.
func tight(below func(int) int) cluster {
	var c cluster
	var free []int64
	all := int64(0)
	for i := range 3 + below(2) {
		units := int64(4 + below(5))
		c.nodes = append(c.nodes, serves(string(rune('a'+i)), units))
		free = append(free, units)
		all += units
	}
	ask := int64(3 + below(5))
	for i := range 24 {
		at, units := below(len(free)), int64(1+below(4))
		if len(c.devices) == 8 || free[at] < units || all-units < ask {
			continue
		}
		free[at], all = free[at]-units, all-units
		state := Held
		if below(12) == 0 {
			state = Attached
		}
		c.devices = append(c.devices, holds(fmt.Sprint("d", i), c.nodes[at].Name, units, state))
	}
	c.request.Set = set(ask)
	return c
}

// possible tries all nodes for the set; with repacking also all that reservations
// can do, one move after the other, each to where there is room. What the set holds
// elsewhere it holds until it is placed.
func (c cluster) possible(repack bool) bool {
	free := map[[2]string]int64{}
	for _, n := range c.nodes {
		for _, served := range n.Serves {
			free[[2]string{n.Name, string(served.Resource)}] = max(0, served.Units-served.Raw)
		}
	}
	var loose []Device
	for _, d := range c.devices {
		member := slices.ContainsFunc(c.request.Set, func(m Member) bool { return m.UID == d.UID })
		if d.State == Held && repack && !member {
			loose = append(loose, d)
		}
		free[[2]string{d.Node, string(d.Resource)}] -= d.Units
	}
	return c.search(free, loose, map[whereabouts]bool{})
}

// whereabouts are where up to 8 reservations are.
type whereabouts [8]byte

// search looks whether the set fits, or does after more moves. seen has where the
// reservations were.
func (c cluster) search(free map[[2]string]int64, loose []Device, seen map[whereabouts]bool) bool {
	var where whereabouts
	for i, d := range loose {
		where[i] = d.Node[0]
	}
	if seen[where] {
		return false
	}
	seen[where] = true
	if slices.ContainsFunc(c.nodes, func(n Node) bool { return c.fits(free, n) }) {
		return true
	}
	for i := range loose {
		d := &loose[i]
		was := d.Node
		for _, n := range c.nodes {
			to := [2]string{n.Name, string(d.Resource)}
			if n.Closed || n.Name == was || free[to] < d.Units {
				continue
			}
			free[to] -= d.Units
			free[[2]string{was, string(d.Resource)}] += d.Units
			d.Node = n.Name
			found := c.search(free, loose, seen)
			d.Node = was
			free[to] += d.Units
			free[[2]string{was, string(d.Resource)}] -= d.Units
			if found {
				return true
			}
		}
	}
	return false
}

// fits reports that the set fits on the node, with what it holds there.
func (c cluster) fits(free map[[2]string]int64, n Node) bool {
	if n.Closed || c.request.Fits != nil && c.request.Fits(n.Name) != "" {
		return false
	}
	needs := map[gpu.ResourceName]int64{}
	for _, m := range c.request.Set {
		needs[m.Resource] += m.Units
		for _, d := range c.devices {
			if d.UID == m.UID && d.Node == n.Name && d.Resource == m.Resource {
				needs[m.Resource] -= d.Units
			}
		}
	}
	for r, units := range needs {
		if free[[2]string{n.Name, string(r)}] < units {
			return false
		}
	}
	return true
}
