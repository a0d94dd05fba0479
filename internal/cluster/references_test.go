package cluster

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/internal/manifest"
)

func TestReadReferences(t *testing.T) {
	type object = map[string]any
	devices := object{"gpuctl.dev/devices": `{"devices":["a"],"templates":[{"class":"h200"}]}`}
	tests := map[string]struct {
		labels, annotations object
		want                diagnose.VM
	}{
		"neither": {},
		"both": {
			object{"gpuctl.dev/device-reference": "true"},
			devices,
			diagnose.VM{Orders: []string{"a"}, Templates: []diagnose.Template{{Class: "h200", Count: 1}}},
		},
		"only the label":       {object{"gpuctl.dev/device-reference": "true"}, nil, diagnose.VM{BadOrders: "it has the label gpuctl.dev/device-reference without the annotation gpuctl.dev/devices: write both, or neither"}},
		"only the annotation":  {nil, devices, diagnose.VM{BadOrders: "it has the annotation gpuctl.dev/devices without the label gpuctl.dev/device-reference: write both, or neither"}},
		"a label that says no": {object{"gpuctl.dev/device-reference": "false"}, devices, diagnose.VM{BadOrders: `its label gpuctl.dev/device-reference is "false": write "true"`}},
		"a label of YAML's":    {object{"gpuctl.dev/device-reference": true}, devices, diagnose.VM{BadOrders: `its label gpuctl.dev/device-reference is no string: write "true" with its quotes`}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var got diagnose.VM
			readReferences(&got, manifest.Object{"metadata": object{"labels": tc.labels, "annotations": tc.annotations}}, manifest.Path{"metadata"})
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("VM (-want +got):\n%s", diff)
			}
		})
	}
}
