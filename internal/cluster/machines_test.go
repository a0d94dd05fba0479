package cluster

import (
	"testing"

	"github.com/gpuctl/gpuctl/internal/manifest"
)

func TestHalted(t *testing.T) {
	type object = map[string]any
	stopped := object{"printableStatus": "Stopped"}
	tests := map[string]struct {
		spec, status object
		want         bool
	}{
		"always":                 {object{"runStrategy": "Always"}, stopped, false},
		"halted":                 {object{"runStrategy": "Halted"}, stopped, true},
		"running: true":          {object{"running": true}, stopped, false},
		"running: false":         {object{"running": false}, nil, true},
		"manual, not started":    {object{"runStrategy": "Manual"}, stopped, true},
		"manual, runs":           {object{"runStrategy": "Manual"}, object{"printableStatus": "Running"}, false},
		"manual, to be started":  {object{"runStrategy": "Manual"}, object{"printableStatus": "Stopped", "stateChangeRequests": []any{object{"action": "Start"}}}, false},
		"manual, to be stopped":  {object{"runStrategy": "Manual"}, object{"printableStatus": "Stopped", "stateChangeRequests": []any{object{"action": "Stop"}}}, true},
		"nothing is known of it": {nil, nil, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			d := manifest.Live("cluster", manifest.Object{"kind": "VirtualMachine", "spec": tc.spec, "status": tc.status})
			if got := halted(&d); got != tc.want {
				t.Errorf("halted: %v, want %v", got, tc.want)
			}
		})
	}
}
