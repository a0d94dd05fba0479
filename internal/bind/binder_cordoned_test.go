package bind

import (
	"testing"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/internal/books"
	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/internal/usage"
)

// A class whose node is cordoned is not said to be taken: nobody has a unit of it.
func TestCordonedIsNotTaken(t *testing.T) {
	c := &v1alpha1.GPUClass{Spec: v1alpha1.GPUClassSpec{ResourceName: h200, MaxCount: 8}}
	c.Name = "h200"
	b := books.New()
	b.PutClass(books.Class{Name: "h200", Resource: h200, MaxCount: 8})
	b.PutNode(usage.Node{Facts: gpu.Node{Name: "n1", Cordoned: true, Allocatable: map[gpu.ResourceName]int64{h200: 8}}})
	offer := b.Offers()["h200"]
	if got := availability(c, offer); got.Reason == v1alpha1.ReasonTaken {
		t.Errorf("of %+v it is said: %s: %s", offer, got.Reason, got.Message)
	}
}
