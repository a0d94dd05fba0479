package alloc

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
)

// TestOracle compares Decide with all that could be done in small clusters: it
// tries every node for the set, and every node for every reservation.
func TestOracle(t *testing.T) {
	cases := map[string]struct {
		instances int
		draw      func(below func(int) int) cluster
	}{
		"any cluster":       {150_000, func(below func(int) int) cluster { return draw(below, false) }},
		"full reservations": {50_000, tight},
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
			if share < 0.99 || found.could < tc.instances/50 {
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
	case !c.possible(true):
		if err == nil {
			return fmt.Errorf("%+v is not possible\n%s", d, shown(s))
		}
		f.never++
	default:
		f.could++
		if err == nil {
			f.did++
		}
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

// possible tries all nodes for the set; with repacking all nodes for each
// reservation, too.
func (c cluster) possible(repack bool) bool {
	free := map[string]map[string]int64{}
	for _, n := range c.nodes {
		free[n.Name] = map[string]int64{}
		for _, served := range n.Serves {
			free[n.Name][string(served.Resource)] = max(0, served.Units-served.Raw)
		}
	}
	var loose []Device
	for _, d := range c.devices {
		member := false
		for _, m := range c.request.Set {
			member = member || m.UID == d.UID
		}
		switch {
		case member:
		case d.State == Held && repack:
			loose = append(loose, d)
		default:
			free[d.Node][string(d.Resource)] -= d.Units
		}
	}
	for _, n := range c.nodes {
		if n.Closed || c.request.Fits != nil && c.request.Fits(n.Name) != "" {
			continue
		}
		for _, m := range c.request.Set {
			free[n.Name][string(m.Resource)] -= m.Units
		}
		ok := free[n.Name][string(h200)] >= 0 && free[n.Name][string(l40s)] >= 0 && c.house(free, loose)
		for _, m := range c.request.Set {
			free[n.Name][string(m.Resource)] += m.Units
		}
		if ok {
			return true
		}
	}
	return false
}

func (c cluster) house(free map[string]map[string]int64, loose []Device) bool {
	if len(loose) == 0 {
		return true
	}
	d := loose[0]
	for _, n := range c.nodes {
		if n.Closed && d.Node != n.Name || free[n.Name][string(d.Resource)] < d.Units {
			continue
		}
		free[n.Name][string(d.Resource)] -= d.Units
		ok := c.house(free, loose[1:])
		free[n.Name][string(d.Resource)] += d.Units
		if ok {
			return true
		}
	}
	return false
}
