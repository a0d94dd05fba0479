package diagnose

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

const a100 = "nvidia.com/GA100_A100_PCIE_40GB"

// refusedVM is a VM that KubeVirt has refused for its device, with one node that
// serves it, under a KubeVirt that permits it.
func refusedVM(change func(*Evidence)) *Evidence {
	vm := VM{Ref: Ref{"VirtualMachine", "tenant", "trainer"}, Devices: []gpu.Device{{Field: "gpus", Name: a100}}, Phase: "Pending"}
	e := &Evidence{
		Wiring: &Wiring{Object: "KubeVirt kubevirt/kubevirt", Version: "v1.8.4", Table: gpu.Table{Set: true, Entries: []gpu.Entry{permitted(a100)}}},
		Nodes: []gpu.Node{{
			Name: "gpu-1", Labels: map[string]string{workloadConfigLabel: "vm-passthrough"},
			Allocatable: map[gpu.ResourceName]int64{a100: 8}, Capacity: map[gpu.ResourceName]int64{a100: 8},
		}},
		VMs:      []VM{vm},
		Messages: []Message{{About: vm.Ref, Text: "failed to render launch manifest: GPU " + a100 + " is not permitted in permittedHostDevices configuration"}},
	}
	change(e)
	return e
}

func permitted(name gpu.ResourceName) gpu.Entry {
	return gpu.Entry{List: gpu.ListPCI, Selector: "10DE:20F1", Name: name, External: true}
}

// What comes first is the cause, and the hint heals it.
func TestFirstFinding(t *testing.T) {
	legacy := []Legacy{{Ref: "kubevirt/kubevirt-config", Keys: []string{"feature-gates"}}}
	unserved := func(e *Evidence, more ...Finding) {
		e.Nodes[0].Allocatable[a100] = 0
		e.Messages, e.Findings = nil, append(Node(&e.Nodes[0], nil, nil), more...)
	}
	about := func(code Code) Finding { return Finding{Code: code, Severity: Warning, Object: "node/gpu-1"} }
	tests := map[string]struct {
		change func(*Evidence)
		want   Code
		hint   string
	}{
		"not tried again":              {func(*Evidence) {}, "GPU0509", "gpuctl wire wakes it"},
		"not tried again, no instance": {func(e *Evidence) { e.VMs[0].Phase = "" }, "GPU0509", "kubectl annotate vm trainer -n tenant"},
		"a ConfigMap nobody reads":     {func(e *Evidence) { e.Legacy = legacy }, "GPU0509", ""},
		"a ConfigMap of old":           {func(e *Evidence) { e.Legacy, e.Wiring.Version = legacy, "v0.38.1" }, "GPU0315", ""},
		"a ConfigMap, who knows":       {func(e *Evidence) { e.Legacy, e.Wiring.Version = legacy, "" }, "GPU0315", ""},
		"not passed on": {func(e *Evidence) {
			e.Wiring.Object, e.Wiring.Copy = "HyperConverged kubevirt/hco", &Copy{"KubeVirt kubevirt/kubevirt", gpu.Table{Set: true}}
		}, "GPU0327", ""},
		"passed on": {func(e *Evidence) { e.Wiring.Copy = &Copy{"KubeVirt kubevirt/kubevirt", e.Wiring.Table} }, "GPU0509", ""},
		"a right is missing": {func(e *Evidence) {
			e.Messages, e.VMs[0].Phase, e.VMs[0].Node = nil, "Scheduled", "gpu-1"
			e.Findings = []Finding{{Code: "GPU0130", Severity: Error, Object: "cluster"}}
		}, "GPU0130", ""},
		"unhealthy":                            {func(e *Evidence) { unserved(e) }, "GPU0414", ""},
		"unhealthy, and nothing else is known": {func(e *Evidence) { unserved(e, about("GPU0105"), about("GPU0215")) }, "GPU0414", ""},
		"unserved, and a silent agent": {func(e *Evidence) {
			e.Nodes[0].Capacity[a100] = 0
			unserved(e, about("GPU0105"))
		}, "GPU0102", ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r, ok := Diagnose(refusedVM(tc.change), Subject{"vm", "tenant", "trainer"})
			if !ok || len(r.Findings) == 0 {
				t.Fatalf("found %v, %d findings", ok, len(r.Findings))
			}
			first := r.Findings[0]
			if diff := cmp.Diff(Finding{Code: tc.want, Severity: Error}, Finding{Code: first.Code, Severity: first.Severity}); diff != "" {
				t.Errorf("first finding (-want +got):\n%s", diff)
			}
			if !strings.Contains(first.Hint, tc.hint) {
				t.Errorf("the hint lacks %q: %s", tc.hint, first.Hint)
			}
		})
	}
}
