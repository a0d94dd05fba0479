package attach

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuctl/gpuctl/test/wire"
)

// given wants all that a start has taken to be given back by another process, when it is
// time, and not before.
func (w *world) given(c *process) {
	w.Helper()
	c.collects()
	before := w.still()
	w.passes(44 * time.Second)
	c.collects()
	if diff := cmp.Diff(before, w.taken()); diff != "" {
		w.Errorf("taken before it is time (-before +after):\n%s", diff)
	}
	w.passes(2 * time.Second)
	c.collects()
	c.collects() // what was made and is released
	w.become(freeSet)
}

// still are the devices that somebody has when what was sent has been done: of a start
// that is over, some writes may be under way.
func (w *world) still() (names []string) {
	w.Helper()
	for same := 0; same < 5; {
		now := w.taken()
		if slices.Equal(now, names) {
			same++
		} else {
			same, names = 0, now
		}
		time.Sleep(100 * time.Millisecond)
	}
	return names
}

// taken are the devices that somebody has.
func (w *world) taken() (names []string) {
	w.Helper()
	for _, d := range w.devices() {
		if d.Status.Attachment != nil {
			names = append(names, d.Name)
		}
	}
	return names
}

// What a start that stops at any of its writes has taken is given back.
func TestStartStops(t *testing.T) {
	taken := "Held vm starting"
	for name, tc := range map[string]struct {
		write   int
		handled bool
		want    map[string]string // nil: it depends on the UIDs
	}{
		"V1 checked":                 {0, false, freeSet},
		"V2 made, not known":         {0, true, map[string]string{"a": "Held", "b": "Held", "made": ""}},
		"V2 made":                    {1, false, map[string]string{"a": "Held", "b": "Held", "made": ""}},
		"V3 one of three, not known": {1, true, nil},
		"V3 two of three":            {3, false, nil},
		"V4 asked, not known":        {3, true, boundSet},
	} {
		t.Run(name, func(t *testing.T) {
			w := of3(t)
			p, c := w.replica(), w.replica()
			ctx := p.stopsAt(tc.write, tc.handled)
			if _, err := p.Start(ctx, w.vmi("vm", setOf3), false); err == nil {
				t.Fatal("it goes on")
			}
			if tc.want != nil {
				w.become(tc.want)
			} else if got := w.states(); got["a"] != taken && got["b"] != taken && got["made"] != "Pending vm starting" {
				t.Fatalf("devices %v", got)
			}
			w.given(c)
		})
	}
}

// What a rollback that stops at any of its writes has left is given back.
func TestRollbackStops(t *testing.T) {
	for _, handled := range []bool{false, true} {
		for write := range 4 {
			t.Run(fmt.Sprintf("V5 %d, handled %t", write, handled), func(t *testing.T) {
				w := of3(t)
				p, c := w.replica(), w.replica()
				p.Launcher = unreadable
				_, err := p.Start(p.stopsAt(4+write, handled), w.vmi("vm", setOf3), false)
				w.refused(err, "GPU0716", "")
				w.given(c)
			})
		}
	}
}

// A set that was given to a start goes to the VMI that is stored, and to nobody where none
// is.
func TestStartIsAdmitted(t *testing.T) {
	for name, tc := range map[string]struct {
		then func(w *world, p *process)
		want map[string]string
	}{
		"V6 stored": {func(w *world, p *process) { w.stores(p.starts(w.vmi("vm", setOf3))) }, attachedSet},
		"V6 denied": {func(w *world, p *process) { p.starts(w.vmi("vm", setOf3)) }, freeSet},
		"V6 another one of the name is stored": {func(w *world, p *process) {
			p.starts(w.vmi("vm", setOf3))
			w.stores(w.vmi("vm", setOf3))
		}, freeSet},
		"V6 stored, and it has ended": {func(w *world, p *process) {
			w.stores(p.starts(w.vmi("vm", setOf3)))
			w.cluster.SetVMIPhase(w.ns, "vm", "Failed")
		}, freeSet},
	} {
		t.Run(name, func(t *testing.T) {
			w := of3(t)
			p, c := w.replica(), w.replica()
			tc.then(w, p)
			w.are(boundSet)
			c.collects()
			w.passes(44 * time.Second)
			c.collects()
			w.are(boundSet)
			w.passes(2 * time.Second)
			c.collects()
			c.collects()
			w.become(tc.want)
		})
	}
}

// A claim that stops is gone on with by whoever is asked next, or by the collector.
func TestClaimStops(t *testing.T) {
	next := map[string]func(w *world, c *process, claim func(*process) error){
		"asked again": func(w *world, c *process, claim func(*process) error) { w.must(claim(c)) },
		"collected": func(w *world, c *process, _ func(*process) error) {
			c.collects()
			w.passes(51 * time.Second)
			c.collects()
		},
	}
	for name, goOn := range next {
		for claimed := range 3 {
			for _, handled := range []bool{false, true} {
				t.Run(fmt.Sprintf("P%d %d claimed, handled %t, %s", 1+min(claimed, 1), claimed, handled, name), func(t *testing.T) {
					w := of3(t)
					p, c := w.replica(), w.replica()
					uid := w.stores(p.starts(w.vmi("vm", setOf3)))
					ctx := p.stopsAt(claimed, handled)
					if _, err := p.Claim(ctx, w.ns, "vm", uid, false); err == nil {
						t.Fatal("it goes on")
					}
					goOn(w, c, func(p *process) error {
						_, err := p.Claim(t.Context(), w.ns, "vm", uid, false)
						return err
					})
					w.are(attachedSet)
				})
			}
		}
	}
}

// A launcher gets nothing for a VMI that is not there, has ended, is another one, or has
// not its set.
func TestClaimRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		before func(w *world, p *process)
		vmi    string
		text   string
	}{
		"gone":         {func(w *world, _ *process) { w.ends("vm") }, "vm", "no such VMI"},
		"ended":        {func(w *world, _ *process) { w.cluster.SetVMIPhase(w.ns, "vm", "Succeeded") }, "vm", "no such VMI"},
		"another name": {func(*world, *process) {}, "other", "no such VMI"},
		"made anew": {func(w *world, _ *process) {
			w.ends("vm")
			w.stores(w.vmi("vm", setOf3))
		}, "vm", "no such VMI"},
		"a start that is collected": {func(w *world, p *process) {
			w.ends("vm")
			p.collects()
			w.passes(51 * time.Second)
			p.collects()
			w.stores(w.vmi("other", setOf3))
		}, "vm", "no such VMI"},
	} {
		t.Run(name, func(t *testing.T) {
			w := of3(t)
			p := w.replica()
			uid := w.stores(p.starts(w.vmi("vm", setOf3)))
			tc.before(w, p)
			p.Took()
			_, err := p.Claim(t.Context(), w.ns, tc.vmi, uid, false)
			w.refused(err, "GPU0645", tc.text)
			if log := p.writes(); len(log) > 0 {
				t.Errorf("it writes: %v", log)
			}
		})
	}
	t.Run("the set of another VMI", func(t *testing.T) {
		w := of3(t)
		p := w.replica()
		stored := p.starts(w.vmi("vm", setOf3))
		w.stores(stored)
		thief := stored.DeepCopy()
		thief.Name = "thief"
		same := w.unchanged()
		_, err := p.Claim(t.Context(), w.ns, "thief", w.stores(thief), false)
		w.refused(err, "GPU0645", "")
		same()
	})
}

// holds has the first request of a process that is of this kind wait at a gate.
func (p *process) holds(verb, what string) *wire.Gate {
	g := wire.NewGate()
	p.Set(func(x *wire.Exchange) error {
		if x.Verb == verb && x.What == what && x.N == 1 {
			return g.Pass(x)
		}
		return x.Send()
	})
	return g
}
