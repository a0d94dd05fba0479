package bind

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuctl/gpuctl/test/wire"
)

// decide places the first device without a node that fits: one unit is on n1. It counts
// as a leader does, by a live list.
func (w *world) decide(ctx context.Context, order []string) []Entry {
	w.Helper()
	all := w.list()
	for _, d := range all {
		if nodeOf(&d) == "n1" {
			return nil
		}
	}
	for _, name := range order {
		for _, d := range all {
			if d.Name == name && ctx.Err() == nil {
				return []Entry{place(d.DeepCopy(), "n1")}
			}
		}
	}
	return nil
}

// A leader is paused, another one leads and gives the node's last unit, if it is left;
// then the first wakes. It never gives the unit a second time.
func TestPause(t *testing.T) {
	const rounds, late = 125, 100
	w := newWorld(t)
	w.commit(w.leader("first"), place(w.device("zero"), "n0")) // no fencing later
	conflicts := 0
	for i := range rounds {
		w.clear()
		old, next := w.leader("old"), w.party("new")
		w.device("a")
		w.device("b")
		what := "status" // paused between the swap and the writes
		if i%5 == 4 {
			what = "ledger" // paused before the swap
		}
		g := wire.NewGate()
		old.Set(func(x *wire.Exchange) error {
			if x.What == what && x.Verb == "PUT" {
				return g.Pass(x)
			}
			return x.Send()
		})
		decided := w.decide(t.Context(), []string{"a", "b"})
		old.Took()
		finished := wire.Background(func() ([]Outcome, error) { return old.Commit(t.Context(), decided) })
		<-g.Held
		w.must(next.Lead(t.Context()))
		w.commit(next, w.decide(t.Context(), []string{"b", "a"})...)
		moved := i%2 == 1 && what == "status"
		if moved { // and b comes in its place
			w.commit(next, place(w.get("a"), "n2"))
			w.commit(next, w.decide(t.Context(), []string{"b"})...)
		}
		close(g.Open)
		out, err := finished()
		conflicts += w.woken(old, what, out, err, moved)
		want := map[string]string{"a": "n1", "b": ""}
		switch {
		case what == "ledger":
			want = map[string]string{"a": "", "b": "n1"}
		case moved:
			want = map[string]string{"a": "n2", "b": "n1"}
		}
		if diff := cmp.Diff(want, w.nodes()); diff != "" {
			t.Fatalf("round %d (-want +got):\n%s", i, diff)
		}
		_, err = old.Commit(t.Context(), []Entry{place(w.get("b"), "n2")})
		if !errors.Is(err, ErrDeposed) {
			t.Fatalf("round %d: the old leader swaps: %v", i, err)
		}
		if diff := cmp.Diff(want, w.nodes()); diff != "" {
			t.Fatalf("round %d, swapped (-want +got):\n%s", i, diff)
		}
	}
	t.Logf("%d late writes, each a conflict", conflicts)
	if conflicts != late {
		t.Errorf("%d late writes, want %d", conflicts, late)
	}
}

// woken looks at what a paused leader did after it woke, and returns how many writes of
// devices that were.
func (w *world) woken(old party, what string, out []Outcome, err error, moved bool) int {
	w.Helper()
	writes := slices.DeleteFunc(old.Took(), func(line string) bool { return !strings.HasPrefix(line, "PUT status") })
	switch {
	case what == "ledger":
		if !errors.Is(err, ErrDeposed) || len(writes) > 0 {
			w.Fatalf("it woke before the swap: %v, %v", err, writes)
		}
		return 0
	case err != nil:
		w.Fatal(err)
	}
	want := Written // by the replay
	if moved {
		want = Void
	}
	if len(writes) != 1 || writes[0] != "PUT status 409" || out[0].Result != want {
		w.Fatalf("it woke after the swap: %v, %v", writes, fmt.Sprint(out))
	}
	return len(writes)
}
