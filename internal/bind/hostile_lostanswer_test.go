package bind

import (
	"context"
	"fmt"
	"testing"
)

// A start that was promised a node, which has lost the units since, gets a new answer.
func TestBinderAnswersAnewWhoseUnitsAreLost(t *testing.T) {
	w := newWorld(t)
	w.serves("n1", 4)
	w.class("h200")
	w.replica("a")
	w.order("a", 4)
	w.soon(map[string]string{"a": "Held n1"})
	w.asks(fmt.Sprintf("%032x", 1), "a")
	w.answered([]string{"n1"}, "a")
	w.serves("n1", 0)
	w.soon(map[string]string{"a": "Lost n1"})
	w.serves("n2", 4)
	w.cluster.Eventually(placed, "it has another node", func(context.Context) error {
		d := w.get("a")
		if d.Status.HoldsUnits() {
			return nil
		}
		return fmt.Errorf("%s on %s, answer %+v", d.Status.State, d.Status.Placement.Node, d.Status.BindRequest.Answer)
	})
}
