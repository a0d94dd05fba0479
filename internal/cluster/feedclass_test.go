package cluster

import (
	"testing"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
)

// A class that was changed in what its status says is told of: else that is written
// minutes later.
func TestChangedClassIsToldOf(t *testing.T) {
	class := func(generation int64, name string) *v1alpha1.GPUClass {
		c := &v1alpha1.GPUClass{Spec: v1alpha1.GPUClassSpec{ResourceName: string(h200Name), DisplayName: name, MaxCount: 8}}
		c.Name, c.Generation = "h200", generation
		return c
	}
	f := newTestFeed()
	events := f.classEvents()
	events.put(nil, class(1, "H200"))
	if !events.put(class(1, "H200"), class(2, "NVIDIA H200")) {
		t.Error("nobody hears of generation 2, which status.observedGeneration should have")
	}
}
