package bind

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
)

func TestEachDevice(t *testing.T) {
	w := newWorld(t)
	var want []string
	for i := range 5 {
		want = append(want, w.device(fmt.Sprint("d", i)).Name)
	}
	for _, size := range []int64{2, 5, 9} {
		var got []*v1alpha1.GPUDevice
		err := eachDevice(w.Context(), admin, size, func(d *v1alpha1.GPUDevice) { got = append(got, d) })
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, d := range got {
			if d.Namespace == w.ns {
				names = append(names, d.Name)
			}
		}
		slices.Sort(names)
		if diff := cmp.Diff(want, names); diff != "" {
			t.Errorf("%d at a time (-want +got):\n%s", size, diff)
		}
	}
}
