package pause

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
)

// variant is one way in which the world goes on while the leader is paused.
type variant struct {
	class string
	// meanwhile happens to the order that the leader has decided about.
	meanwhile string
}

// variants are tried in turn.
var variants = []variant{
	{"few-units", "nothing"},
	{"small-budget", "nothing"},
	{"few-units", "edited"},
	{"small-budget", "edited"},
	{"few-units", "deleted"},
	{"small-budget", "deleted"},
}

// rounds is how many pauses there are: few, unless GPUCTL_PAUSES says how many.
func rounds(t *testing.T) int {
	t.Helper()
	text := os.Getenv("GPUCTL_PAUSES")
	if text == "" {
		return len(variants)
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 2 {
		t.Fatalf("GPUCTL_PAUSES: %q: want a number above 1", text)
	}
	return n
}

// TestPauses has the leader of two processes stopped between the ledger's swap and the
// device's write, again and again, and the other lead meanwhile and give the last unit of
// a node, or of a budget. Both believe that they lead, and each is once this and once
// that. What the one writes when it wakes is refused, and later it leads again.
func TestPauses(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("whether a process is stopped is read as Linux has it")
	}
	w := newWorld(t)
	gpuctl := build(t)
	h := w.record()
	old := newReplica(t, w.cluster, gpuctl, w.ns, "one")
	w.leads(old, 0)
	next := newReplica(t, w.cluster, gpuctl, w.ns, "two")
	n, began := rounds(t), time.Now()
	for i := range n {
		w.round(i, variants[i%len(variants)], old, next)
		if t.Failed() {
			t.Fatalf("in round %d: %+v", i, variants[i%len(variants)])
		}
		old, next = next, old
	}
	given, late, again := h.complete(w), 0, 0
	for _, r := range []*replica{old, next} {
		c := r.took()
		t.Logf("%s: late writes %v, swaps %v", r.name, c.late, c.swaps)
		for _, answer := range []string{"404", "409"} {
			late += c.late[answer]
		}
		again += c.swaps["200"]
	}
	t.Logf("%d rounds in %s: a unit given %d times, %d late writes refused, %d times a woken process led again", n, time.Since(began).Round(time.Second), given, late, again)
	if given < n || late <= n/2 || again < n-2 {
		t.Errorf("in %d rounds a unit was given %d times, %d writes came late, and %d times a woken process led again: that shows too little", n, given, late, again)
	}
}

// round pauses the old leader, has the next one lead, and wakes the old one.
func (w *world) round(i int, v variant, old, next *replica) {
	w.Helper()
	before, err := w.ledger(w.Context())
	w.must(err)
	// 1. The old leader decides, and stops before it knows that this is in the ledger.
	release := next.hold() // it believes that it leads, too, and would be first at times
	defer release()
	paused := old.pauseAt(fmt.Sprintf("first-%d", i))
	first := w.order(w.left, fmt.Sprintf("first-%d", i), v.class)
	select {
	case err := <-paused:
		w.must(err)
	case <-time.After(soon):
		w.Fatalf("round %d: %s does not give the last unit", i, old.name)
	}
	// 2. The world goes on: others want the unit as well, some before who was to have it.
	switch v.meanwhile {
	case "edited":
		w.must(w.admin.Get(w.Context(), client.ObjectKeyFromObject(first), first))
		metav1.SetMetaDataAnnotation(&first.ObjectMeta, "edited", "yes")
		w.must(w.admin.Update(w.Context(), first))
	case "deleted":
		w.must(w.admin.Delete(w.Context(), first))
	}
	sooner := false // of orders of the same second the lower UID is first
	for j := 0; j < 4 || j < 16 && !sooner; j++ {
		sooner = w.order(w.right, fmt.Sprintf("other-%d-%d", i, j), v.class).UID < first.UID || sooner
	}
	// 3. The next one leads, and gives the unit to somebody.
	w.must(client.IgnoreNotFound(w.admin.Delete(w.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: v1alpha1.ControllerLease}})))
	release()
	w.leads(next, before.Term)
	var winner string
	w.cluster.Eventually(soon, "somebody has the last unit", func(ctx context.Context) (err error) {
		winner, err = w.held(ctx)
		return err
	})
	if isFirst := winner == first.Name; v.meanwhile == "nothing" && !isFirst || v.meanwhile == "deleted" && isFirst {
		w.Errorf("%s has the unit", winner)
	}
	// 4. The old one wakes, and does what it was about to do.
	old.wake(w.T)
	w.cluster.Always(150*time.Millisecond, winner+" keeps the unit", func(ctx context.Context) error {
		if now, err := w.held(ctx); err != nil || now != winner {
			return fmt.Errorf("%q has it: %w", now, err)
		}
		return nil
	})
	w.clear()
}

// leads waits until a replica has a term above one.
func (w *world) leads(r *replica, above int64) {
	w.Helper()
	w.cluster.Eventually(soon, r.name+" leads", func(ctx context.Context) error {
		l, err := w.ledger(ctx)
		if err == nil && (l.Holder != r.name || l.Term <= above) {
			err = fmt.Errorf("%q leads in term %d", l.Holder, l.Term)
		}
		return err
	})
}
