package binding

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// run is an exploration: all states that were seen, and how each was first reached.
type run struct {
	world  *world
	states []key
	from   []uint32
	onward []uint32 // where progress without faults leads; the state itself: nowhere
	table  []uint32 // open addressing; 0 is empty, else an index + 1
	steps  uint64
	spent  time.Duration
}

func hash(k key) uint64 {
	h := k[0]*0x9E3779B97F4A7C15 ^ (k[1]+0x165667B19E3779F9)*0xC2B2AE3D27D4EB4F
	h ^= h >> 29
	h *= 0xBF58476D1CE4E5B9
	return h ^ h>>32
}

// find returns where a state is in the table, or where it belongs.
func (r *run) find(k key) int {
	mask := uint64(len(r.table) - 1)
	for i := hash(k) & mask; ; i = (i + 1) & mask {
		if at := r.table[i]; at == 0 || r.states[at-1] == k {
			return int(i)
		}
	}
}

// add returns the index of a state, which may be new.
func (r *run) add(k key, from uint32) uint32 {
	if 2*len(r.states) >= len(r.table) {
		r.table = make([]uint32, 2*len(r.table))
		for i, k := range r.states {
			r.table[r.find(k)] = uint32(i + 1)
		}
	}
	at := r.find(k)
	if r.table[at] == 0 {
		r.states = append(r.states, k)
		r.from = append(r.from, from)
		r.table[at] = uint32(len(r.states))
	}
	return r.table[at] - 1
}

func (r *run) unpack(i int) state { return r.world.unpack(r.states[i]) }

// next has each state that follows in its one form.
func (r *run) next(s *state, out emit) {
	r.world.next(s, func(n state, rank uint8, t step) {
		r.world.settle(&n)
		n.canonical()
		out(n, rank, t)
	})
}

// explore goes through all states, the nearest first, and then tries from each whether
// things come to rest well. The error is a promise that was broken, and how.
func explore(w world) (*run, error) {
	began := time.Now()
	r := &run{world: &w, table: make([]uint32, 1<<16)}
	defer func() { r.spent = time.Since(began) }()
	first := state{w: &w}
	first.dev[0].phase, first.dev[1].phase = live, live
	first.canonical()
	r.add(first.pack(), 0)
	for len(r.onward) < len(r.states) {
		i := len(r.onward)
		s := r.unpack(i)
		if err := w.broken(&s); err != nil {
			return r, fmt.Errorf("%w\n%s", err, r.trace(i))
		}
		best, to := happening, uint32(i)
		r.next(&s, func(n state, rank uint8, _ step) {
			r.steps++
			at := r.add(n.pack(), uint32(i))
			if rank < best {
				best, to = rank, at
			}
		})
		r.onward = append(r.onward, to)
	}
	err := r.rest()
	return r, err
}

// rest lets all that was begun go on without faults, from every state: of what can go on,
// that of the lowest rank does.
func (r *run) rest() error {
	well := make([]bool, len(r.states))
	for i := range r.states {
		at, steps := i, 0
		for ; !well[at] && int(r.onward[at]) != at; at = int(r.onward[at]) {
			steps++
			if steps > 200 {
				return fmt.Errorf("%w\n%s", errBusy, r.trace(i))
			}
		}
		if !well[at] {
			s := r.unpack(at)
			if err := r.world.atRest(&s); err != nil {
				return fmt.Errorf("%w\n%s  …  and %d steps later without faults %s", err, r.trace(i), steps, &s)
			}
		}
		for to := i; !well[to]; to = int(r.onward[to]) {
			well[to] = true
		}
	}
	return nil
}

// trace tells how a state was reached. It goes the way anew without swapping what is
// alike, so that a leader keeps its number.
func (r *run) trace(i int) string {
	var keys []key
	for ; i != 0; i = int(r.from[i]) {
		keys = append(keys, r.states[i])
	}
	slices.Reverse(keys)
	var b strings.Builder
	s := r.unpack(0)
	for k, want := range keys {
		var to state
		var what step
		r.world.next(&s, func(n state, _ uint8, t step) {
			r.world.settle(&n)
			alike := n
			alike.canonical()
			if alike.pack() == want {
				to, what = n, t
			}
		})
		s = to
		fmt.Fprintf(&b, "%3d  %-52s %s\n", k+1, what, &s)
	}
	return b.String()
}

var (
	errNode   = errors.New("a node holds more units than it has")
	errBudget = errors.New("a budget is exceeded")
	errSet    = errors.New("a VMI that is stored has not its set")
	errSplit  = errors.New("the set of a VMI that is stored is not on one node")
	errOrphan = errors.New("at rest something is left over")
	errLost   = errors.New("at rest an order that fits is not placed")
	errBusy   = errors.New("it never comes to rest")
)

// broken says which promise a state breaks.
func (w *world) broken(s *state) error {
	v := s.look()
	for n := uint8(1); n <= nodes; n++ {
		if v.used(n) > w.room[n] {
			return errNode
		}
	}
	if v.placed() > w.budget {
		return errBudget
	}
	for vm, i := range s.vmi {
		if i == 0 || s.forged(vm) && !s.running(vm) {
			continue // who forges an id may have launchers refused
		}
		for _, m := range w.sets[vm] {
			d := s.dev[m]
			if d.phase < live || d.att != s.carried(i) || d.claim != 0 && d.claim != i {
				return errSet
			}
			if d.node == 0 || d.answer != d.node || d.node != s.dev[w.sets[vm][0]].node {
				return errSplit
			}
		}
	}
	return nil
}

// forged reports that VMIs of the VM have one id because its owner has forged it.
func (s *state) forged(vm int) bool {
	return s.w.forged && (s.adopted[2*vm+1] || s.adopted[2*vm+2])
}

// atRest says what is wrong when nothing goes on any more.
func (w *world) atRest(s *state) error {
	v := s.look()
	for m, d := range s.dev {
		used := d.claim != 0 && s.vmi[d.claim.vm()] == d.claim
		if d.att != 0 && !used || d.phase == deleting && !used || m == template && d.phase != absent && !used {
			return errOrphan
		}
		if d.phase != live || d.node != 0 {
			continue
		}
		for n := uint8(1); n <= nodes; n++ {
			to := v
			to[m] = 1 << n
			if w.fits(to) {
				return errLost
			}
		}
	}
	for h := range s.hooks {
		if s.hooks[h].at != idle {
			return errOrphan
		}
	}
	for i := start(1); i <= starts; i++ {
		if s.create[i] != unused && s.create[i] != over {
			return errOrphan
		}
	}
	for vm, i := range s.vmi {
		for _, m := range w.sets[vm] {
			if i != 0 && s.dev[m].claim != i && !s.forged(vm) {
				return errOrphan
			}
		}
	}
	return nil
}
