package patch

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/internal/manifest"
)

// wiredCR is a CR without a gate, wired for two ids.
func wiredCR(t *testing.T) Input {
	t.Helper()
	in := Input{
		Target: target(t, "apiVersion: kubevirt.io/v1\nkind: KubeVirt\nmetadata: {name: k}\nspec: {configuration: {}}\n"),
		Nodes:  []gpu.Node{node("a", served{h200: 8, "nvidia.com/AD102GL_L40S": 1})},
	}
	result, err := Plan(in)
	if err != nil {
		t.Fatal(err)
	}
	return with(in, result.Object)
}

func vmi(name gpu.ResourceName, active bool) gpu.Workload {
	return gpu.Workload{Kind: "VirtualMachineInstance", Namespace: "t", Name: "i", Active: active, Devices: []gpu.Device{{Field: "gpus", Name: name}}}
}

func TestRemove(t *testing.T) {
	removed := func(r Result) (out []string) {
		for _, c := range r.Changes {
			switch v := c.Value.(type) {
			case string:
				out = append(out, v)
			case map[string]any:
				out = append(out, v["resourceName"].(string))
			}
		}
		return out
	}
	everything := []string{h200, "nvidia.com/AD102GL_L40S", "HostDevices"}
	tests := map[string]struct {
		change func(*Input)
		want   []string
		code   diagnose.Code
	}{
		"everything that gpuctl wrote": {want: everything},
		"an entry in use stays": {
			change: func(in *Input) { in.Workloads = []gpu.Workload{vmi(h200, true)} },
			want:   []string{"nvidia.com/AD102GL_L40S", "HostDevices"}, code: "GPU0326",
		},
		"the gate stays for host devices, whoever permits them": {
			change: func(in *Input) {
				foreign := vmi("x.io/a", true)
				foreign.Devices[0].Field = "hostDevices"
				in.Workloads = []gpu.Workload{foreign}
			},
			want: []string{h200, "nvidia.com/AD102GL_L40S"},
		},
		"a finished instance holds nothing": {change: func(in *Input) { in.Workloads = []gpu.Workload{vmi(h200, false)} }, want: everything},
		"force takes what is in use":        {change: func(in *Input) { in.Workloads, in.Force = []gpu.Workload{vmi(h200, true)}, true }, want: everything},
		"without a record nothing": {change: func(in *Input) {
			in.Target.Object = edited(t, in.Target.Object, manifest.Delete{Path: join(annotations, RecordKey)})
		}},
		"somebody's entry of the same pair stays": {change: func(in *Input) {
			list := manifest.Path{"spec", "configuration", "permittedHostDevices", "pciHostDevices"}
			in.Target.Object = edited(t, in.Target.Object,
				manifest.RemoveItem{Path: list, Index: 0}, manifest.RemoveItem{Path: list, Index: 0},
				manifest.Append{Path: list, Value: map[string]any{"pciVendorSelector": "10DE:2335", "resourceName": h200}})
		}, want: []string{"HostDevices"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			in := wiredCR(t)
			if tc.change != nil {
				tc.change(&in)
			}
			result, err := Remove(in)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, removed(result), cmpAnyOrder()); diff != "" {
				t.Errorf("removed (-want +got):\n%s", diff)
			}
			var codes []string
			for _, f := range result.Findings {
				codes = append(codes, string(f.Code))
			}
			if !strings.Contains(strings.Join(codes, " "), string(tc.code)) {
				t.Errorf("findings %v, want %s", codes, tc.code)
			}
		})
	}
}

// TestRevertedEntriesAreOneEntry adds again what somebody took away; the record
// must not make Remove take somebody's equal entry.
func TestRevertedEntriesAreOneEntry(t *testing.T) {
	in := wiredCR(t)
	list := manifest.Path{"spec", "configuration", "permittedHostDevices", "pciHostDevices"}
	entry := manifest.Append{Path: list, Value: map[string]any{"pciVendorSelector": "10DE:2335", "resourceName": h200, "externalResourceProvider": true}}
	for range 3 {
		in.Target.Object = edited(t, in.Target.Object, manifest.RemoveItem{Path: list, Index: 1}, manifest.RemoveItem{Path: list, Index: 0})
		result, err := Plan(in)
		if err != nil {
			t.Fatal(err)
		}
		in.Target.Object = result.Object
	}
	in.Target.Object = edited(t, in.Target.Object, entry)
	result, err := Remove(in)
	if err != nil {
		t.Fatal(err)
	}
	left, _ := manifest.Lookup(result.Object, list)
	if items, _ := left.([]any); len(items) != 1 {
		t.Errorf("left %v, want the entry that gpuctl did not write", left)
	}
}

// TestRemoveWithBrokenRecord never blocks: nothing is known to be gpuctl's.
func TestRemoveWithBrokenRecord(t *testing.T) {
	in := wiredCR(t)
	in.Target.Object = edited(t, in.Target.Object, manifest.Set{Path: join(annotations, RecordKey), Value: "{"})
	result, err := Remove(in)
	if err != nil || len(result.Changes) != 0 || len(result.Findings) != 1 || result.Findings[0].Code != "GPU0332" {
		t.Errorf("Remove() = %+v, %v", result.Changes, err)
	}
}

// TestRemoveTwice removes what was kept once its user is gone.
func TestRemoveTwice(t *testing.T) {
	in := wiredCR(t)
	in.Workloads = []gpu.Workload{vmi(h200, true)}
	first, err := Remove(in)
	if err != nil {
		t.Fatal(err)
	}
	in.Workloads = nil
	second, err := Remove(with(in, first.Object))
	if err != nil {
		t.Fatal(err)
	}
	want := manifest.Object{
		"apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", "metadata": manifest.Object{"name": "k"}, "spec": manifest.Object{"configuration": manifest.Object{}},
	}
	if diff := cmp.Diff(want, second.Object); diff != "" {
		t.Errorf("after both (-want +got):\n%s", diff)
	}
}

func edited(t *testing.T, obj manifest.Object, edits ...manifest.Edit) manifest.Object {
	t.Helper()
	out, err := manifest.ApplyTo(obj, edits)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// cmpAnyOrder compares lists of texts as sets.
func cmpAnyOrder() cmp.Option {
	return cmp.Transformer("sorted", func(in []string) map[string]bool {
		out := map[string]bool{}
		for _, s := range in {
			out[s] = true
		}
		return out
	})
}
