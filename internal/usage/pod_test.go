package usage

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

func asks(units int64) Requests { return Requests{h200: units} }

func TestRequest(t *testing.T) {
	tests := map[string]struct {
		pod  Pod
		want int64
	}{
		"none":                                     {},
		"containers run together":                  {pod: Pod{Containers: []Requests{asks(2), asks(1), {"cpu": 9}}}, want: 3},
		"an init container has ended before":       {pod: Pod{Init: []Init{{Requests: asks(2)}}, Containers: []Requests{asks(3)}}, want: 3},
		"an init container that wants more":        {pod: Pod{Init: []Init{{Requests: asks(5)}, {Requests: asks(4)}}, Containers: []Requests{asks(3)}}, want: 5},
		"a sidecar runs beside containers":         {pod: Pod{Init: []Init{{asks(2), true}}, Containers: []Requests{asks(3)}}, want: 5},
		"and beside init containers that follow":   {pod: Pod{Init: []Init{{asks(2), true}, {asks(4), false}}, Containers: []Requests{asks(1)}}, want: 6},
		"and not beside those before":              {pod: Pod{Init: []Init{{asks(4), false}, {asks(2), true}}, Containers: []Requests{asks(1)}}, want: 4},
		"sidecars start one after another":         {pod: Pod{Init: []Init{{asks(1), true}, {asks(2), true}, {asks(3), false}}}, want: 6},
		"a pod's own request is none for GPUs":     {pod: Pod{Level: asks(7), Containers: []Requests{asks(1)}}, want: 1},
		"below 0 it is none":                       {pod: Pod{Init: []Init{{asks(-9), true}}, Containers: []Requests{asks(-4), asks(1)}}, want: 1},
		"more than can be counted is all there is": {pod: Pod{Containers: []Requests{asks(math.MaxInt64), asks(2)}}, want: math.MaxInt64},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := tc.pod.Request(h200); got != tc.want {
				t.Errorf("got %d, want %d", got, tc.want)
			}
		})
	}
	t.Run("a pod's own request replaces those for cpu, memory and huge pages", func(t *testing.T) {
		for _, name := range []gpu.ResourceName{"cpu", "memory", "hugepages-1Gi"} {
			p := Pod{Level: Requests{name: 3}, Containers: []Requests{{name: 5}}}
			if got := p.Request(name); got != 3 {
				t.Errorf("%s: got %d, want 3", name, got)
			}
		}
	})
}

func TestGPUsOfAPod(t *testing.T) {
	n := EffectiveNames(NameFacts{Listed: []gpu.ResourceName{own, "memory"}, DeviceClasses: []DeviceClass{{Name: "vfio", Extended: own}}})
	p := Pod{
		Init: []Init{{Requests: Requests{dra: 2}}}, Level: Requests{"memory": 3, "cpu": 1},
		Containers: []Requests{{own: 1, "cpu": 4, h200: 1}, {own: 1, dra: 0}},
	}
	if diff := cmp.Diff(Requests{own: 4, "memory": 3}, p.gpus(n)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	p.Done = true
	if got := p.gpus(n); len(got) > 0 {
		t.Errorf("a pod that is done requests %v", got)
	}
}
