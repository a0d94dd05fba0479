package pause

import (
	"context"
	"fmt"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
)

// history follows the orders in the order in which things happened, and fails the test at
// the first moment at which a last unit is given twice.
type history struct {
	mu     sync.Mutex
	has    map[string]map[string]int32 // units by class, then by UID of the order
	placed int
	orders int // that are not gone
}

// record watches all orders from now on; there are none.
func (w *world) record() *history {
	w.Helper()
	all := &v1alpha1.GPUDeviceList{}
	w.must(w.admin.List(w.Context(), all))
	ctx, cancel := context.WithCancel(context.Background()) // the test's ends before its cleanups begin
	watched, err := w.admin.Watch(ctx, all, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: all.ResourceVersion}})
	w.must(err)
	h := &history{has: map[string]map[string]int32{}}
	for class := range last {
		h.has[class] = map[string]int32{}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e := range watched.ResultChan() {
			d, ok := e.Object.(*v1alpha1.GPUDevice)
			if ctx.Err() != nil {
				return
			}
			if !ok {
				w.Errorf("the history ends: %+v", e.Object)
				return
			}
			if err := h.event(string(e.Type), d); err != nil {
				w.Error(err)
			}
		}
	}()
	w.Cleanup(func() {
		cancel()
		<-done
	})
	return h
}

func (h *history) event(kind string, d *v1alpha1.GPUDevice) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	has, uid := h.has[d.Spec.ClassName], string(d.UID)
	had := has[uid]
	delete(has, uid)
	switch {
	case kind == "ADDED":
		h.orders++
	case kind == "DELETED":
		h.orders--
		return nil
	case !d.Status.HoldsUnits():
		return nil
	}
	if !d.Status.HoldsUnits() {
		return nil
	}
	if has[uid] = d.Status.Placement.Units; had == 0 {
		h.placed++
	}
	if len(has) > 1 {
		return fmt.Errorf("at resourceVersion %s %d orders of class %s have the one unit that is left: %s/%s is the last to get it",
			d.ResourceVersion, len(has), d.Spec.ClassName, d.Namespace, d.Name)
	}
	return nil
}

// complete says that it has seen all there was, and returns how often a unit was given.
func (h *history) complete(w *world) int {
	w.Helper()
	w.cluster.Eventually(soon, "the history is complete", func(context.Context) error {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.orders > 0 {
			return fmt.Errorf("%d orders are not gone", h.orders)
		}
		return nil
	})
	return h.placed
}
