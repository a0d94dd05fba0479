package books

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuctl/gpuctl/internal/tenant"
)

// TestHugePodLeavesBudgetsAsTheyWere: a pod may ask for the largest number there is, and
// never run. When it is gone, budgets are what they were before it.
func TestHugePodLeavesBudgetsAsTheyWere(t *testing.T) {
	b := filled(8, on("n1", device("a", 6)))
	b.Snapshot()
	b.PutPod(pod("huge", "", math.MaxInt64))
	b.Snapshot()
	b.DropPod("acme-dev", "huge")
	b.Snapshot()
	key := tenant.Key{Kind: tenant.Resource, Name: string(h200)}
	if got := []int64{b.ordered.Of("acme", key), b.placed.Of("acme", key)}; !cmp.Equal(got, []int64{6, 6}) {
		t.Errorf("ordered and placed: %v, want 6 and 6", got)
	}
	if err := b.Admit(Order{Object: "o", Namespace: "acme-ops", Class: "h200", Count: 4}); code(t, err) != "GPU0611" {
		t.Errorf("4 more than 6 of a budget of 8: got %v", err)
	}
}

// TestHugePodLeavesNodesAsTheyWere: the same of what pods take of nodes.
func TestHugePodLeavesNodesAsTheyWere(t *testing.T) {
	b := filled(-1)
	b.PutPod(pod("raw", "n1", 4))
	b.Snapshot()
	huge := pod("huge", "n1", math.MaxInt64)
	huge.Namespace = "mallory"
	b.PutPod(huge)
	b.Snapshot()
	b.DropPod("mallory", "huge")
	if got := b.Snapshot().Free("n1", h200); got != 4 {
		t.Errorf("a pod has 4 of 8: %d are free", got)
	}
}
