package bind

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// An order that fits once another one has moved is placed soon after that can be moved.
func TestBinderMovesSoon(t *testing.T) {
	w := newWorld(t)
	w.serves("n1", 8)
	w.serves("n2", 2)
	w.class("h200")
	w.replica("a")
	w.order("d", 2)
	w.soon(map[string]string{"d": "Held n2"})
	w.order("e", 2)
	w.soon(map[string]string{"e": "Held n1"})
	w.order("x", 8)
	w.soon(map[string]string{"x": "Pending NoUnits"})
	w.must(admin.Delete(t.Context(), w.get("d")))
	began := time.Now()
	w.cluster.Eventually(movesAgain+placed, "the order is placed", func(context.Context) error {
		if got := w.is("x"); got != "Held n1" {
			return fmt.Errorf("after %v: %s", time.Since(began).Round(time.Second), got)
		}
		return nil
	})
}
