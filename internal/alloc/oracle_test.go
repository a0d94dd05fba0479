package alloc

import (
	"errors"
	"math/rand/v2"
	"testing"
)

// TestOracle compares Decide with all that could be done in small clusters: it
// tries every node for the set, and every node for every reservation.
func TestOracle(t *testing.T) {
	instances := 150_000
	if testing.Short() {
		instances = 2_000
	}
	source := rand.New(rand.NewPCG(7, 7))
	var direct, refused, could, did int
	for i := range instances {
		c := draw(source.IntN, false)
		s := c.snapshot()
		d, err := Decide(s, c.request)
		if err == nil {
			if wrong := checkSound(s, c.request, d); wrong != nil {
				t.Fatalf("instance %d: %+v: %v\n%s", i, d, wrong, shown(s))
			}
		}
		still := c.request
		still.Effort = -1
		_, errStill := Decide(s, still)
		can := c.possible(false)
		if (errStill == nil) != can {
			t.Fatalf("instance %d, nobody moves: possible %v, got %v\n%s", i, can, errStill, shown(s))
		}
		if can {
			direct++
			if err != nil || d.Moves != nil {
				t.Fatalf("instance %d fits as it is: %+v %v", i, d, err)
			}
			continue
		}
		switch possible := c.possible(true); {
		case possible:
			could++
			if err == nil {
				did++
			}
		case err == nil:
			t.Fatalf("instance %d: %+v is not possible\n%s", i, d, shown(s))
		default:
			refused++
			if r := (*Refusal)(nil); !errors.As(err, &r) {
				t.Fatal(err)
			}
		}
	}
	share := float64(did) / float64(could)
	t.Logf("%d instances: %d fit as they are, %d never; repacking could make %d fit and makes %d: %.3f %%", instances, direct, refused, could, did, 100*share)
	if share < 0.99 || could < instances/50 {
		t.Errorf("repacking finds %.3f %% of %d", 100*share, could)
	}
}

// possible tries all nodes for the set; with repacking all nodes for each
// reservation, too.
func (c cluster) possible(repack bool) bool {
	free := map[string]map[string]int64{}
	for _, n := range c.nodes {
		free[n.Name] = map[string]int64{}
		for _, served := range n.Serves {
			free[n.Name][string(served.Resource)] = served.Units
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
