package binding

import (
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
)

// full asks for all of it: up to 2 faults a run, and 2 starts of each VM.
const full = "GPUCTL_MODEL" // =full

var (
	shared = [vms][]uint8{{0, 1}, {1, template}}
	apart  = [vms][]uint8{{0, 1}, {template}}

	scarceUnits  = world{sets: shared, room: [nodes + 1]int{0, 2, 1}, budget: devices, starts: [vms]int{2, 1}, faults: 1}
	scarceBudget = world{sets: shared, room: [nodes + 1]int{0, devices, devices}, budget: 2, starts: [vms]int{1, 1}, faults: 1}
	apartUnits   = world{sets: apart, room: [nodes + 1]int{0, 2, 1}, budget: devices, starts: [vms]int{1, 1}, faults: 1}
	apartBudget  = world{sets: apart, room: [nodes + 1]int{0, devices, devices}, budget: 2, starts: [vms]int{1, 1}, faults: 1}
	forgedID     = world{sets: shared, room: [nodes + 1]int{0, 2, 1}, budget: devices, starts: [vms]int{2, 1}, faults: 1, forged: true}
)

func TestProtocol(t *testing.T) {
	var mu sync.Mutex
	seen, explored := map[string]bool{}, 0
	worlds := map[string]world{
		"a device of both VMs, units are scarce":     scarceUnits,
		"a device of both VMs, the budget is scarce": scarceBudget,
		"sets apart, units are scarce":               apartUnits,
		"sets apart, the budget is scarce":           apartBudget,
		"a tenant forges ids":                        forgedID,
	}
	t.Run("worlds", func(t *testing.T) {
		for name, w := range worlds {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				if os.Getenv(full) == "full" {
					w.faults, w.starts = 2, [vms]int{2, 2}
				}
				r, err := explore(w)
				if err != nil {
					t.Error(err)
				}
				t.Logf("%d states, %d steps, %s", len(r.states), r.steps, r.spent)
				mu.Lock()
				defer mu.Unlock()
				explored++
				r.cameTo(seen)
			})
		}
	})
	for what := range situations {
		if !seen[what] && explored == len(worlds) { // not when -run chose some
			t.Errorf("no run comes to this: %s", what)
		}
	}
}

// cameTo notes which situations are among the states.
func (r *run) cameTo(seen map[string]bool) {
	unseen := slices.DeleteFunc(slices.Collect(maps.Keys(situations)), func(what string) bool { return seen[what] })
	for i := range r.states {
		s := r.unpack(i)
		unseen = slices.DeleteFunc(unseen, func(what string) bool {
			seen[what] = situations[what](&s)
			return seen[what]
		})
		if len(unseen) == 0 {
			return
		}
	}
}

// situations are what runs must come to, or the promises hold for nothing.
var situations = map[string]func(*state) bool{
	"both VMs run":                       func(s *state) bool { return s.running(0) && s.running(1) },
	"VM 1 runs with its template device": func(s *state) bool { return s.running(1) },
	"a VMI with a forged id runs":        func(s *state) bool { return s.running(0) && s.adopted[2] },
	"a VMI with a forged id has nothing": func(s *state) bool { return s.vmi[0] == 2 && s.adopted[2] && s.dev[0].att != 1 },
	"VM 0 runs in its second start":      func(s *state) bool { return s.running(0) && s.vmi[0] == 2 },
	"a set is taken over": func(s *state) bool {
		return s.dev[0].att == 2 && s.dev[1].att == 1 && s.dev[1].claim == 1 && s.vmi[0] == 0
	},
	"a leader replays while the old one goes on writing": func(s *state) bool {
		a, b := s.leaders[0], s.leaders[1]
		return a.at == applying && b.at == applying && a.fresh != b.fresh && a.batch == b.batch && !none(a.batch)
	},
	"a part of a set is answered": func(s *state) bool {
		return s.asks(1, 0) && (s.dev[0].answer == 0) != (s.dev[1].answer == 0)
	},
	"a VMI is stored and not claimed, and its webhook is gone": func(s *state) bool {
		return s.vmi[0] != 0 && s.dev[0].claim == 0 && s.hooks == [2]webhook{}
	},
	"an order that is used is being deleted": func(s *state) bool { return s.running(0) && s.dev[1].phase == deleting },
	"a launcher's webhook claims for a VMI that is gone": func(s *state) bool {
		return s.dev[0].claim == 1 && s.dev[1].claim == 0 && s.vmi[0] == 0 && s.dev[1].att == 1
	},
	"a reservation is moved out of the way": func(s *state) bool {
		return s.ledger[0] == place(2) && s.dev[0].node == 1 && s.dev[0].att == 0
	},
}

func (s *state) running(vm int) bool {
	i := s.vmi[vm]
	for _, m := range s.w.sets[vm] {
		if i == 0 || s.dev[m].claim != i {
			return false
		}
	}
	return true
}

// TestPack sees that states which differ are not taken for one.
func TestPack(t *testing.T) {
	w := apartUnits
	w.starts = [vms]int{1, 1}
	r, err := explore(w)
	if err != nil {
		t.Fatal(err)
	}
	for i := range r.states {
		s := r.unpack(i)
		r.next(&s, func(n state, _ uint8, what step) {
			if got := r.world.unpack(n.pack()); got != n {
				t.Fatalf("%s: %+v is read back as %+v", what, n, got)
			}
		})
	}
}

// TestMistakes sees that the explorer finds what it is for.
func TestMistakes(t *testing.T) {
	for name, tc := range map[string]struct {
		mistake mistake
		world   world
		want    error
	}{
		"no ledger: units":                {noLedger, scarceUnits, errNode},
		"no ledger: budget":               {noLedger, scarceBudget, errBudget},
		"term checked, units":             {notCarried, scarceUnits, errNode},
		"term checked, budget":            {notCarried, scarceBudget, errBudget},
		"re-invocation by name":           {byName, scarceUnits, errSet},
		"collection by age alone":         {ageAlone, scarceUnits, errSet},
		"collection by a read alone":      {readAlone, scarceUnits, errSet},
		"a batch spends what it frees":    {spendsFreed, scarceUnits, errNode},
		"takeover of what is unclaimed":   {takesUnclaimed, scarceUnits, errSet},
		"webhook without resourceVersion": {blindAttach, scarceUnits, errSet},
		"binder without resourceVersion":  {blindBinder, scarceUnits, errSplit},
		"a new leader forgets the batch":  {batchForgotten, scarceUnits, errNode},
		"a promised device is moved":      {movesWhatStarts, apartUnits, errSplit},
		"nothing is collected":            {noCollector, scarceUnits, errOrphan},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.world.mistake = tc.mistake
			r, err := explore(tc.world)
			if !errors.Is(err, tc.want) {
				t.Fatalf("found %v, want %v (%d states)", err, tc.want, len(r.states))
			}
			t.Logf("%s: found among %d states after %d steps: %v", tc.mistake, len(r.states), strings.Count(err.Error(), "\n")-1, err)
		})
	}
}
