package bind

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/test/wire"
)

// A ledger that cannot be read is for a person to put right.
func TestUnreadable(t *testing.T) {
	w := newWorld(t)
	p := w.leader("a")
	d := w.device("d")
	for name, tc := range map[string]struct {
		data map[string]string
		want string
	}{
		"no key":      {map[string]string{"other": "{}"}, `read ConfigMap gpuctl-ledger: it has no key "ledger"`},
		"no term":     {map[string]string{"ledger": `{"holder":"a","sequence":1,"decidedAt":"2026-11-30T12:00:00.000000Z","batch":[]}`}, "read ledger of ConfigMap gpuctl-ledger: term: 0 is less than 1"},
		"not a batch": {map[string]string{"ledger": `{"term":1,"holder":"a","sequence":1,"decidedAt":"2026-11-30T12:00:00.000000Z","batch":[{}]}`}, "read ledger of ConfigMap gpuctl-ledger: batch[0].placement is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			m, _ := w.broken(tc.data)
			p.Took()
			err := p.Lead(t.Context())
			if !errors.Is(err, ErrUnreadable) {
				t.Fatalf("leads: %v", err)
			}
			next := "delete it, and it is made anew without a loss: kubectl -n " + w.ns + " delete configmap gpuctl-ledger"
			for _, part := range []string{"lead: take ConfigMap " + w.ns + "/gpuctl-ledger: nobody can lead", tc.want, next} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q is not in the error:\n%v", part, err)
				}
			}
			if _, err := p.Commit(t.Context(), []Entry{place(d, "n1")}); !errors.Is(err, ErrDeposed) {
				t.Errorf("commits: %v", err)
			}
			if diff := cmp.Diff([]string{"GET ledger 200"}, p.Took()); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
			w.must(admin.Delete(t.Context(), m))
			w.must(p.Lead(t.Context()))
		})
	}
}

// broken overwrites the ledger.
func (w *world) broken(data map[string]string) (*corev1.ConfigMap, error) {
	w.Helper()
	m, _ := w.stored()
	m.Data = data
	err := admin.Update(w.Context(), m)
	w.must(err)
	return m, err
}

// What other people write into the ConfigMap stays, and ends a leadership at most.
func TestStrangersKey(t *testing.T) {
	w := newWorld(t)
	p := w.leader("a")
	m, _ := w.stored()
	m.Labels["team"] = "x"
	m.Data["note"] = "hands off"
	w.must(admin.Update(t.Context(), m))
	if _, err := p.Commit(t.Context(), []Entry{place(w.device("d"), "n1")}); !errors.Is(err, ErrDeposed) {
		t.Errorf("error %v", err)
	}
	w.must(p.Lead(t.Context()))
	m, l := w.stored()
	if l.Term != 2 || !l.Unfenced || m.Data["note"] == "" || m.Labels["team"] == "" {
		t.Errorf("%+v %v %v", l, m.Data, m.Labels)
	}
}

// Of any number of leaders that begin at once each has a term of its own, and the last
// one leads.
func TestRace(t *testing.T) {
	w := newWorld(t)
	const parties, rounds = 4, 10
	var mu sync.Mutex
	holders := map[int64]string{}
	var last int64
	for range rounds {
		var all sync.WaitGroup
		led := make([]party, parties)
		for i := range parties {
			led[i] = w.party(fmt.Sprint(i))
			all.Go(func() {
				err := led[i].Lead(t.Context())
				mu.Lock()
				defer mu.Unlock()
				term := led[i].Term()
				if other, ok := holders[term]; err != nil || ok {
					t.Errorf("%d leads in term %d, which is that of %q: %v", i, term, other, err)
				}
				holders[term] = fmt.Sprint(i)
				last = max(last, term)
			})
		}
		all.Wait()
		for i, p := range led {
			_, err := p.Commit(t.Context(), []Entry{place(w.device(fmt.Sprintf("d%d-%d", last, i)), "n1")})
			if p.Term() == last && err != nil || p.Term() < last && !errors.Is(err, ErrDeposed) {
				t.Errorf("term %d of %d: %v", p.Term(), last, err)
			}
		}
		w.clear()
	}
	if _, l := w.stored(); l.Term != parties*rounds || len(holders) != parties*rounds || l.Holder != holders[l.Term] {
		t.Errorf("term %d of %q after %d leaders: %v", l.Term, l.Holder, parties*rounds, holders)
	}
}

// When the ledger is deleted, what was swapped into it can still be on its way: the next
// leader makes it anew, and sees to it that none of that can come.
func TestLedgerDeleted(t *testing.T) {
	w := newWorld(t)
	old := w.leader("old")
	out := w.commit(old, place(w.device("held"), "n1"), place(w.device("claimed"), "n1"))
	held, claimed, pending := out[0].Device, w.claimed(out[1].Device), w.device("pending")
	now := metav1.NewMicroTime(time.Now())
	lost := Entry{Device: claimed, Placement: claimed.Status.Placement.DeepCopy(), Answer: claimed.Status.BindRequest.Answer}
	lost.Placement.LostSince = &now
	claimed = w.commit(old, lost)[0].Device
	heal := Entry{Device: claimed, Placement: out[1].Device.Status.Placement, Answer: claimed.Status.BindRequest.Answer}

	g := wire.NewGate()
	old.Set(func(x *wire.Exchange) error {
		if x.What == "status" {
			return g.Pass(x)
		}
		return x.Send()
	})
	finished := wire.Background(func() ([]Outcome, error) {
		return old.Commit(t.Context(), []Entry{place(held, "n2"), place(pending, "n2"), heal})
	})
	for range 3 {
		<-g.Held
	}
	m, _ := w.stored()
	w.must(admin.Delete(t.Context(), m))
	next := w.leader("new")
	made, l := w.stored()
	if l.Term != 1 || !l.Unfenced || l.Holder != "new" {
		t.Errorf("made anew: %+v", l)
	}
	old.Took()
	close(g.Open)
	late, err := finished()
	w.must(err)
	if diff := cmp.Diff(repeated(Void, 3), results(late)); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
	for _, line := range old.Took() {
		if strings.HasPrefix(line, "PUT") && line != "PUT status 409" {
			t.Errorf("a late write: %s", line)
		}
	}
	if diff := cmp.Diff(map[string]string{"held": "n1", "claimed": "n1", "pending": ""}, w.nodes()); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
	if d := w.get("claimed"); d.Status.State != v1alpha1.DeviceLost {
		t.Errorf("it healed late: %+v", d.Status)
	}
	if _, err := old.Commit(t.Context(), []Entry{place(w.get("pending"), "n2")}); !errors.Is(err, ErrDeposed) {
		t.Errorf("the old one commits: %v", err)
	}
	for _, d := range w.list() {
		if got := d.Annotations[v1alpha1.AnnotationLedger]; got != string(made.UID) {
			t.Errorf("%s is fenced by %q", d.Name, got)
		}
	}
	w.fencedOnce(next)
}

// A ledger that was restored from a copy does not know what was swapped since: it is as
// one that was made anew.
func TestLedgerRestored(t *testing.T) {
	w := newWorld(t)
	old := w.leader("old")
	d := w.commit(old, place(w.device("d"), "n1"))[0].Device
	m, before := w.stored()
	g := wire.NewGate()
	old.Set(func(x *wire.Exchange) error {
		if x.What == "status" {
			return g.Pass(x)
		}
		return x.Send()
	})
	finished := wire.Background(func() ([]Outcome, error) { return old.Commit(t.Context(), []Entry{place(d, "n2")}) })
	<-g.Held
	w.must(admin.Delete(t.Context(), m))
	m.ResourceVersion, m.UID = "", ""
	w.must(admin.Create(t.Context(), m))
	w.leader("new")
	if _, l := w.stored(); !l.Unfenced || l.Term != before.Term+1 || l.Sequence != before.Sequence {
		t.Errorf("restored: %+v", l)
	}
	close(g.Open)
	out, err := finished()
	w.must(err)
	if got := nodeOf(w.get("d")); got != "n1" || out[0].Result != Void {
		t.Errorf("a late write: %+v, on %q", out[0], got)
	}
}

// fencedOnce shows that whoever leads before the word is away fences again, only what was
// not fenced; and that it is away after a batch.
func (w *world) fencedOnce(p party) {
	w.Helper()
	w.device("late")
	again := w.leader("again")
	if diff := cmp.Diff([]string{"GET ledger 200", "PUT ledger 200", "GET devices 200", "PUT device 200"}, again.Took()); diff != "" {
		w.Errorf("leads again (-want +got):\n%s", diff)
	}
	if _, err := p.Commit(w.Context(), []Entry{place(w.get("late"), "n1")}); !errors.Is(err, ErrDeposed) {
		w.Errorf("the one before commits: %v", err)
	}
	w.commit(again, place(w.get("late"), "n1"))
	if _, l := w.stored(); l.Unfenced {
		w.Errorf("the word stayed: %+v", l)
	}
	last := w.leader("last")
	if diff := cmp.Diff([]string{"GET ledger 200", "PUT ledger 200", "GET device 200"}, last.Took()); diff != "" {
		w.Errorf("leads (-want +got):\n%s", diff)
	}
}

// claimed makes a device a running VMI's.
func (w *world) claimed(d *v1alpha1.GPUDevice) *v1alpha1.GPUDevice {
	w.Helper()
	d = d.DeepCopy()
	now := metav1.NewMicroTime(time.Now())
	d.Status.Attachment = &v1alpha1.Attachment{VMIName: "vm1", VMIUID: "u1", RequestID: id, Since: now}
	d.Status.BindRequest = &v1alpha1.BindRequest{RequestID: id, RequestedAt: now, Devices: 1, Answer: &v1alpha1.BindAnswer{AnsweredAt: now, Node: nodeOf(d)}}
	d.Status.State = d.Status.Derive()
	w.must(admin.Status().Update(w.Context(), d))
	return d
}

// Who cannot reach the API server stops when it is told to.
func TestLeadEnds(t *testing.T) {
	w := newWorld(t)
	p := w.party("a")
	p.Set(func(*wire.Exchange) error { return wire.ErrLost })
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	err := p.Lead(ctx)
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, wire.ErrLost) {
		t.Errorf("error %v", err)
	}
}
