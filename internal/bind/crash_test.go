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

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
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
			p.set(func(r request, send sender) (*response, error) {
				if r.what == "status" && writes.Add(1) > k {
					crash()
					return nil, ctx.Err()
				}
				return send()
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
			p.set(nil)
			if _, err := p.Commit(t.Context(), entries); !errors.Is(err, ErrDeposed) {
				t.Errorf("it goes on: %v", err)
			}
			before := w.batchOf(2)
			next := w.leader("b")
			if after := w.batchOf(2); before != after {
				t.Errorf("the batch has changed:\n%s", cmp.Diff(before, after))
			}
			w.asDecided(entries)
			if n := len(slices.DeleteFunc(next.took(), func(line string) bool { return line != "PUT status 200" })); int64(n) != m-k {
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
	if diff := cmp.Diff([]string{"GET ledger 200", "PUT ledger 200", "GET device 200"}, next.took()); diff != "" {
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
	stop := func(from int) fault {
		return func(r request, send sender) (*response, error) {
			if r.what == "status" && r.n > from {
				crash()
				return nil, context.Canceled
			}
			return send()
		}
	}
	p.set(stop(0))
	if _, err := p.Commit(ctx, entries); err == nil {
		t.Fatal("it did not crash")
	}
	ctx, crash = context.WithCancel(t.Context())
	defer crash()
	second := w.party("b")
	second.set(stop(1))
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
	lost := errors.New("nothing came")
	faults := map[string]fault{
		"handled, then lost":                  func(_ request, send sender) (*response, error) { return drop(send) },
		"lost, never handled":                 func(request, sender) (*response, error) { return nil, lost },
		"handled, then 500":                   func(_ request, send sender) (*response, error) { return instead(send, http.StatusInternalServerError) },
		"handled, then 504":                   func(_ request, send sender) (*response, error) { return instead(send, http.StatusGatewayTimeout) },
		"handled, then 429":                   func(_ request, send sender) (*response, error) { return instead(send, http.StatusTooManyRequests) },
		"handled, then 404 of something else": func(_ request, send sender) (*response, error) { return instead(send, http.StatusNotFound) },
		"sent twice": func(_ request, send sender) (*response, error) { // as client-go does by itself after a Retry-After
			if resp, err := send(); err == nil {
				resp.Body.Close()
			}
			return send()
		},
	}
	for name, f := range faults {
		for _, what := range []string{"status", "ledger"} {
			t.Run(name+", "+what, func(t *testing.T) {
				w := newWorld(t)
				p := w.leader("a")
				d := w.device("d")
				p.set(func(r request, send sender) (*response, error) {
					if r.what == what && r.verb == "PUT" && r.n <= 2 {
						return f(r, send)
					}
					return send()
				})
				entries := []Entry{place(d, "n1")}
				out := w.commit(p, entries...)
				if out[0].Result != Written || out[0].Device.ResourceVersion != w.get("d").ResourceVersion {
					t.Errorf("outcome %+v", out[0])
				}
				w.asDecided(entries)
				log := p.took()
				if n := len(slices.DeleteFunc(log, func(line string) bool { return line != "PUT status 200" })); n != 1 {
					t.Errorf("%d writes of the device", n)
				}
				p.set(nil)
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
			p.set(func(r request, send sender) (*response, error) {
				if r.what == "status" && r.n == 1 {
					resp, err := drop(send)
					tc.change(w)
					return resp, err
				}
				return send()
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

// A swap whose answer was lost is not taken for done when somebody else leads since.
func TestSwapLostThenDeposed(t *testing.T) {
	w := newWorld(t)
	p := w.leader("a")
	d := w.device("d")
	p.set(func(r request, send sender) (*response, error) {
		if r.what == "ledger" && r.verb == "PUT" && r.n == 1 {
			resp, err := drop(send)
			w.leader("b")
			return resp, err
		}
		return send()
	})
	if _, err := p.Commit(t.Context(), []Entry{place(d, "n1")}); !errors.Is(err, ErrDeposed) {
		t.Errorf("error %v", err)
	}
	if log := p.took(); slices.ContainsFunc(log, func(l string) bool { return strings.HasPrefix(l, "PUT status") }) {
		t.Errorf("it wrote: %v", log)
	}
	if got := nodeOf(w.get("d")); got != "n1" {
		t.Errorf("b replayed to %q", got)
	}
}

// Whose first swap is not answered leads all the same, in a term of its own.
func TestLeadAnswersLost(t *testing.T) {
	w := newWorld(t)
	p := w.party("a")
	p.set(func(r request, send sender) (*response, error) {
		if r.what == "ledger" && r.verb != "GET" && r.n <= 2 { // the creation, and two swaps
			return drop(send)
		}
		return send()
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
	g := newGate()
	p.set(func(r request, send sender) (*response, error) {
		switch {
		case r.what == "status" && r.n == 1: // on its way
			late := background(func() (*response, error) { return g.pass(send) })
			t.Cleanup(func() { _, _ = late() })
			return nil, errLost
		case r.what == "status" && r.n == 2:
			return &response{
				StatusCode: http.StatusForbidden, Header: http.Header{"Content-Type": {"application/json"}},
				Body: http.NoBody,
			}, nil
		}
		return send()
	})
	out := w.commit(p, place(d, "n1"))
	close(g.open)
	if out[0].Result != Written {
		t.Errorf("outcome %+v", out[0])
	}
}
