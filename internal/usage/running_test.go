package usage

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

func TestRunning(t *testing.T) {
	far := lost(attached("far", "v", 2))
	far.Node = "n2"
	byClass := lost(attached("a", "v", 4))
	byClass.Resource = dra
	tests := map[string]struct {
		devices []Device
		pods    []Pod
		want    map[string]int64
	}{
		"nothing is attached":                {devices: []Device{attached("a", "", 4)}, pods: []Pod{pod("p", "n1", 4)}},
		"what runs of a device":              {[]Device{attached("a", "v", 4)}, []Pod{pod("p", "n1", 3)}, map[string]int64{"a": 3}},
		"its launcher's units are its own":   {[]Device{lost(attached("a", "v", 4))}, []Pod{pod("p", "n1", 4)}, map[string]int64{"a": 4}},
		"under a DeviceClass's name, too":    {[]Device{byClass}, []Pod{pod("p", "n1", 4)}, map[string]int64{"a": 4}},
		"no more than it has":                {[]Device{lost(attached("a", "v", 3))}, []Pod{pod("p", "n1", 4)}, map[string]int64{"a": 3}},
		"two don't both have one launcher's": {[]Device{lost(attached("b", "v", 2)), lost(attached("a", "v", 2))}, []Pod{pod("p", "n1", 3)}, map[string]int64{"a": 2, "b": 1}},
		"all its launchers together":         {[]Device{lost(attached("a", "v", 4))}, []Pod{pod("p", "n1", 1), pod("q", "n1", 2)}, map[string]int64{"a": 3}},
		"who holds units comes first":        {[]Device{lost(attached("a", "v", 2)), attached("b", "v", 2)}, []Pod{pod("p", "n1", 3)}, map[string]int64{"a": 1, "b": 2}},
		"nothing runs":                       {[]Device{lost(attached("a", "v", 4)), lost(attached("b", "", 4))}, nil, map[string]int64{}},
		"other pods are not":                 {[]Device{lost(attached("a", "v", 4)), lost(attached("b", "", 4))}, []Pod{pod("raw", "n1", 4), done(pod("p", "n1", 4))}, map[string]int64{}},
		"nor its launchers elsewhere":        {[]Device{far}, []Pod{pod("p", "n1", 4)}, map[string]int64{}},
	}
	names := EffectiveNames(NameFacts{Listed: []gpu.ResourceName{h200}, DeviceClasses: []DeviceClass{{Name: "vfio", Extended: h200}}})
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := Snapshot{Names: names, Devices: tc.devices, VMIs: []VMI{vmi("v", "p", "q")}, Pods: tc.pods}
			if diff := cmp.Diff(tc.want, s.Running()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
