package bind

import (
	"context"
	"errors"
	"testing"
)

// An order that holds nothing can be deleted while nobody leads, also after a placement
// came to nothing.
func TestWhatHoldsNothingCanBeDeleted(t *testing.T) {
	w := newWorld(t)
	w.serves("n1", 8)
	w.class("h200")
	r := w.replica("a")
	r.set(func(x *exchange) error {
		if x.verb == "PUT" && x.what == "status" {
			return x.say(403)
		}
		return x.send()
	})
	w.order("a", 1)
	w.cluster.Eventually(placed, "a placement was tried", func(context.Context) error {
		if len(w.get("a").Finalizers) == 0 {
			return errors.New("it was not yet")
		}
		return nil
	})
	r.ends()
	if d := w.get("a"); d.Status.Placement != nil {
		t.Fatalf("it is placed: %+v", d.Status)
	}
	w.must(admin.Delete(t.Context(), w.get("a")))
	if d := w.get("a"); d.Name != "" {
		t.Errorf("it is still there: finalizers %v", d.Finalizers)
	}
}
