package attach

import (
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuctl/gpuctl/test/wire"
)

// The next VMI of the same VM takes over what the dead one had, by one write of each
// device. Nobody else does, and nobody takes from one that lives.
func TestTakeover(t *testing.T) {
	dies := func(w *world) { w.ends("vm") }
	for name, tc := range map[string]struct {
		dies func(w *world)
		next types.UID // the VM that the next one is of
		code string
	}{
		"it is gone":      {dies: dies, next: "vm-uid"},
		"it lives":        {dies: func(*world) {}, next: "vm-uid", code: "GPU0637"},
		"another VM":      {dies: dies, next: "another", code: "GPU0634"},
		"no VM":           {dies: dies, code: "GPU0634"},
		"it is made anew": {dies: func(w *world) { w.ends("vm"); w.stores(w.vmi("vm", setOf3)) }, next: "vm-uid", code: "GPU0637"},
	} {
		t.Run(name, func(t *testing.T) {
			w := of3(t)
			p := w.replica()
			p.runs(of(w.vmi("vm", setOf3), "vm-uid"))
			tc.dies(w)
			p.knows()
			same := w.unchanged()
			p.Took()
			next := w.vmi("vm", setOf3)
			if tc.next != "" {
				of(next, tc.next)
			}
			s, err := p.Start(t.Context(), next, false)
			if tc.code != "" {
				w.refused(err, tc.code, "")
				same()
				return
			}
			w.must(err)
			if diff := cmp.Diff([]string{"PUT status 200", "PUT status 200", "PUT status 200"}, p.writes()); diff != "" {
				t.Errorf("writes (-want +got):\n%s", diff)
			}
			w.are(boundSet)
			p.collects()
			w.are(boundSet)
			_, err = p.Claim(t.Context(), w.ns, "vm", w.stores(admitted(next, s)), false)
			w.must(err)
			w.are(attachedSet)
		})
	}
}

// Of two starts whose sets overlap one gets all of its set, and the other one nothing,
// however they meet.
func TestOverlappingSets(t *testing.T) {
	w := newWorld(t)
	w.leads()
	want := map[string]string{}
	for _, name := range []string{"a", "b", "c", "d"} {
		w.order(name, 1)
		want[name] = "Held"
	}
	w.become(want)
	sets := []string{`{"devices":["a","b","c"]}`, `{"devices":["d","c","b"]}`}
	processes := []*process{w.replica(), w.replica()}
	for first := range 3 { // of them first writes at the same time
		gates := []*wire.Gate{}
		for _, p := range processes {
			g := wire.NewGate()
			gates = append(gates, g)
			p.Set(func(x *wire.Exchange) error {
				if x.Verb == "PUT" && x.What == "status" && x.N == 1 {
					return g.Pass(x)
				}
				return x.Send()
			})
		}
		var errs [2]error
		var started [2]*Started
		var all sync.WaitGroup
		for i, p := range processes {
			all.Go(func() {
				started[i], errs[i] = p.Start(t.Context(), w.vmi([]string{"left", "right"}[i], sets[i]), false)
			})
			<-gates[i].Held // both have found all free
		}
		close(gates[first%2].Open)
		close(gates[1-first%2].Open)
		all.Wait()
		winner := slices.IndexFunc(errs[:], func(err error) bool { return err == nil })
		if winner < 0 || errs[1-winner] == nil {
			t.Fatalf("both end with %v", errs)
		}
		w.refused(errs[1-winner], "GPU0635", []string{"left", "right"}[winner]+", which is starting")
		taken := 0
		for _, state := range w.states() {
			switch state {
			case "Bound " + []string{"left", "right"}[winner] + " starting":
				taken++
			case "Held":
			default:
				t.Errorf("a device is %q", state)
			}
		}
		if taken != 3 {
			t.Errorf("the winner has %d devices: %v", taken, w.states())
		}
		collected(w, processes[0])
		w.become(want)
	}
}
