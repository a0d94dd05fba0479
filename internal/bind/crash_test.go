package bind

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/test/wire"
)

// A leader that crashes after k of its batch's writes leaves the rest to the next one,
// who writes what it would have written.
func TestCrash(t *testing.T) {
	for name, k := range map[string]int64{"before the first write": 0, "after one": 1, "after some": 7, "before the last": 19} {
		t.Run(name, func(t *testing.T) {
			const m = 20
			w := newWorld(t)
			p := w.leader("a")
			var entries []Entry
			for i := range m {
				entries = append(entries, place(w.device(fmt.Sprintf("d%02d", i)), fmt.Sprintf("n%d", i%3)))
			}
			ctx, crash := context.WithCancel(t.Context())
			defer crash()
			var writes atomic.Int64
			p.Set(func(x *wire.Exchange) error {
				if x.What == "status" && writes.Add(1) > k {
					crash()
					return ctx.Err()
				}
				return x.Send()
			})
			_, err := p.Commit(ctx, entries)
			if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "its outcome is not known") {
				t.Errorf("error %v", err)
			}
			placed := 0
			for _, node := range w.nodes() {
				if node != "" {
					placed++
				}
			}
			if int64(placed) != k {
				t.Fatalf("%d were written, want %d", placed, k)
			}
			p.Set(nil)
			if _, err := p.Commit(t.Context(), entries); !errors.Is(err, ErrDeposed) {
				t.Errorf("it goes on: %v", err)
			}
			before := w.batchOf(2)
			next := w.leader("b")
			if after := w.batchOf(2); before != after {
				t.Errorf("the batch has changed:\n%s", cmp.Diff(before, after))
			}
			w.asDecided(entries)
			if n := len(slices.DeleteFunc(next.Took(), func(line string) bool { return line != "PUT status 200" })); int64(n) != m-k {
				t.Errorf("%d writes, want %d", n, m-k)
			}
		})
	}
}

// batchOf returns the sequence, time and batch that are stored.
func (w *world) batchOf(sequence int64) string {
	w.Helper()
	m, l := w.stored()
	if l.Sequence != sequence-1 {
		w.Errorf("sequence %d", l.Sequence)
	}
	_, text, _ := strings.Cut(m.Data[v1alpha1.LedgerKey], `"sequence"`)
	return text
}

// asDecided compares devices with what a batch should have made of them: each condition
// at the time of the decision, whoever wrote it.
func (w *world) asDecided(entries []Entry) {
	w.Helper()
	_, l := w.stored()
	for i, e := range entries {
		got := w.get(e.Device.Name)
		want := derive(e.Device, l.Batch[i], l.DecidedAt)
		if diff := cmp.Diff(want, got.Status); diff != "" {
			w.Errorf("%s (-decided +stored):\n%s", e.Device.Name, diff)
		}
	}
}

// A leader that crashes with all written leaves nothing to do.
func TestCrashAfterAll(t *testing.T) {
	w := newWorld(t)
	p := w.leader("a")
	w.commit(p, place(w.device("d"), "n1"))
	w.edit("d")
	before := w.get("d")
	next := w.leader("b")
	if diff := cmp.Diff([]string{"GET ledger 200", "PUT ledger 200", "GET device 200"}, next.Took()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before, w.get("d")); diff != "" {
		t.Errorf("d was changed:\n%s", diff)
	}
}

// A replay that crashes is gone on with.
func TestReplayCrashes(t *testing.T) {
	w := newWorld(t)
	p := w.leader("a")
	entries := []Entry{place(w.device("a"), "n1"), place(w.device("b"), "n2")}
	ctx, crash := context.WithCancel(t.Context())
	defer crash()
	stop := func(from int) wire.Fault {
		return func(x *wire.Exchange) error {
			if x.What == "status" && x.N > from {
				crash()
				return context.Canceled
			}
			return x.Send()
		}
	}
	p.Set(stop(0))
	if _, err := p.Commit(ctx, entries); err == nil {
		t.Fatal("it did not crash")
	}
	ctx, crash = context.WithCancel(t.Context())
	defer crash()
	second := w.party("b")
	second.Set(stop(1))
	if err := second.Lead(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("leads: %v", err)
	}
	if _, err := second.Commit(t.Context(), entries); !errors.Is(err, ErrDeposed) {
		t.Errorf("commits: %v", err)
	}
	w.leader("c")
	w.asDecided(entries)
	if _, l := w.stored(); l.Term != 3 || l.Sequence != 1 {
		t.Errorf("term %d, sequence %d", l.Term, l.Sequence)
	}
}

// A write whose answer does not come has one effect, and it is known which.
func TestAnswersLost(t *testing.T) {
	faults := map[string]wire.Fault{
		"handled, then lost":  func(x *wire.Exchange) error { return x.Drop() },
		"lost, never handled": func(*wire.Exchange) error { return wire.ErrLost },
		"handled, then silence": func(x *wire.Exchange) error {
			err := x.Send()
			<-x.Context().Done()
			return errors.Join(err, context.Cause(x.Context()))
		},
		"handled, then 500":                   func(x *wire.Exchange) error { return x.Instead(http.StatusInternalServerError) },
		"handled, then 504":                   func(x *wire.Exchange) error { return x.Instead(http.StatusGatewayTimeout) },
		"handled, then 429":                   func(x *wire.Exchange) error { return x.Instead(http.StatusTooManyRequests) },
		"handled, then 404 of something else": func(x *wire.Exchange) error { return x.Instead(http.StatusNotFound) },
		"sent twice": func(x *wire.Exchange) error { // as client-go does by itself after a Retry-After
			if err := x.Send(); err != nil {
				return err
			}
			return x.Send()
		},
	}
	for name, f := range faults {
		for _, what := range []string{"status", "ledger"} {
			t.Run(name+", "+what, func(t *testing.T) {
				w := newWorld(t)
				p := w.leader("a")
				p.tryFor = 200 * time.Millisecond
				d := w.device("d")
				p.Set(func(x *wire.Exchange) error {
					if x.What == what && x.Verb == "PUT" && x.N <= 2 {
						return f(x)
					}
					return x.Send()
				})
				entries := []Entry{place(d, "n1")}
				out := w.commit(p, entries...)
				if out[0].Result != Written || out[0].Device.ResourceVersion != w.get("d").ResourceVersion {
					t.Errorf("outcome %+v", out[0])
				}
				w.asDecided(entries)
				log := p.Took()
				if n := len(slices.DeleteFunc(log, func(line string) bool { return line != "PUT status 200" })); n != 1 {
					t.Errorf("%d writes of the device", n)
				}
				p.Set(nil)
				w.commit(p, place(out[0].Device, "n2")) // the leadership goes on
				if _, l := w.stored(); l.Sequence != 2 || l.Term != 1 {
					t.Errorf("term %d, sequence %d", l.Term, l.Sequence)
				}
			})
		}
	}
}

// What others do before a write that was not answered is repeated does not hide it.
func TestAnswerLostThenChanged(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*world)
		want   Result
	}{
		"edited":  {func(w *world) { w.edit("d") }, Written},
		"claimed": {func(w *world) { w.attach("d") }, Written},
		"removed": {func(w *world) { w.remove("d") }, Void},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			p := w.leader("a")
			d := w.device("d")
			p.Set(func(x *wire.Exchange) error {
				if x.What == "status" && x.N == 1 {
					err := x.Drop()
					tc.change(w)
					return err
				}
				return x.Send()
			})
			if out := w.commit(p, place(d, "n1")); out[0].Result != tc.want {
				t.Errorf("outcome %+v", out[0])
			}
		})
	}
}

// attach takes a device for a start.
func (w *world) attach(name string) {
	w.Helper()
	d := w.get(name)
	now := metav1.Now()
	d.Status.Attachment = &v1alpha1.Attachment{VMIName: "vm1", RequestID: id, Since: metav1.NewMicroTime(now.Time)}
	d.Status.State = d.Status.Derive()
	w.must(admin.Status().Update(w.Context(), d))
}

// A swap whose answer was lost is not taken for done when somebody else leads since, or
// may have: the ledger is another one.
func TestSwapLostThenDeposed(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*world)
		want   string // where the device is then
	}{
		"another one leads": {func(w *world) { w.leader("b") }, "n1"},
		"restored from a copy": {func(w *world) {
			m, _ := w.stored()
			w.must(admin.Delete(w.Context(), m))
			m.ResourceVersion, m.UID = "", ""
			w.must(admin.Create(w.Context(), m))
		}, ""},
		"gone": {func(w *world) {
			m, _ := w.stored()
			w.must(admin.Delete(w.Context(), m))
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			p := w.leader("a")
			d := w.device("d")
			p.Set(func(x *wire.Exchange) error {
				if x.What == "ledger" && x.Verb == "PUT" && x.N == 1 {
					err := x.Drop()
					tc.change(w)
					return err
				}
				return x.Send()
			})
			if _, err := p.Commit(t.Context(), []Entry{place(d, "n1")}); !errors.Is(err, ErrDeposed) {
				t.Errorf("error %v", err)
			}
			if log := p.Took(); slices.ContainsFunc(log, func(l string) bool { return strings.HasPrefix(l, "PUT status") }) {
				t.Errorf("it wrote: %v", log)
			}
			if got := nodeOf(w.get("d")); got != tc.want {
				t.Errorf("it is on %q", got)
			}
		})
	}
}

// Whose first swap is not answered leads all the same, in a term of its own.
func TestLeadAnswersLost(t *testing.T) {
	w := newWorld(t)
	p := w.party("a")
	p.Set(func(x *wire.Exchange) error {
		if x.What == "ledger" && x.Verb != "GET" && x.N <= 2 { // the creation, and two swaps
			return x.Drop()
		}
		return x.Send()
	})
	w.must(p.Lead(t.Context()))
	if _, l := w.stored(); l.Term != p.Term() || l.Term != 4 {
		t.Errorf("term %d is stored, %d led", l.Term, p.Term())
	}
	w.commit(p, place(w.device("d"), "n1"))
}

// A refusal does not settle a write whose earlier try was not answered.
func TestRefusedInDoubt(t *testing.T) {
	w := newWorld(t)
	p := w.leader("a")
	d := w.device("d")
	g := wire.NewGate()
	p.Set(func(x *wire.Exchange) error {
		switch {
		case x.What == "status" && x.N == 1: // on its way
			return x.Later(g)
		case x.What == "status" && x.N == 2:
			return x.Say(http.StatusForbidden)
		}
		return x.Send()
	})
	out := w.commit(p, place(d, "n1"))
	close(g.Open)
	if out[0].Result != Written {
		t.Errorf("outcome %+v", out[0])
	}
}
