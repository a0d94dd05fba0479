package wiring

import (
	"errors"
	"testing"
	"time"

	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/internal/gpu"
)

// Nothing announces what is looked for again before its time.
func TestNext(t *testing.T) {
	const resync = 5 * time.Minute
	refused := func(code diagnose.Code) error {
		return refusalOf(diagnose.New(code, "KubeVirt kubevirt/kubevirt", nil))
	}
	tests := map[string]struct {
		wired    error
		unserved time.Duration // since when
		want     time.Duration
	}{
		"all is well":                         {want: resync},
		"VMs hold the first entry back":       {wired: refused("GPU0319"), want: time.Minute},
		"a refusal that the object is to end": {wired: refused("GPU0314"), want: resync},
		"no refusal":                          {wired: errors.New("away"), want: resync},
		"an entry may go soon":                {unserved: 24*time.Hour - time.Second, want: time.Second},
		"an entry may go one day":             {unserved: time.Hour, want: resync},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c := New(Options{Now: func() time.Time { return noon }, Resync: resync, StaleAfter: 24 * time.Hour})
			if tc.unserved > 0 {
				c.unserved = map[gpu.ResourceName]time.Time{"nvidia.com/ANY": noon.Add(-tc.unserved)}
			}
			if got := c.next(tc.wired); got != tc.want {
				t.Errorf("the next look is in %s, want %s", got, tc.want)
			}
		})
	}
}
