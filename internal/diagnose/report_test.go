package diagnose

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

const l40s gpu.ResourceName = "nvidia.com/AD102GL_L40S"

// card returns a GPU in an IOMMU group of its own.
func card(bus uint8, device gpu.DeviceID, driver gpu.Driver) gpu.Function {
	return gpu.Function{Address: gpu.Address{Bus: bus}, ID: gpu.NVIDIA(device), Class: 0x030200, Driver: driver, Group: gpu.InGroup(int(bus))}
}

// node returns a node that serves units of one name.
func node(name string, resource gpu.ResourceName, units int64, labels map[string]string) gpu.Node {
	served := map[gpu.ResourceName]int64{resource: units}
	return gpu.Node{Name: name, Labels: labels, Capacity: served, Allocatable: served}
}

// vm returns a machine that asks for units of one name.
func vm(name, phase, field string, resource gpu.ResourceName, units int) VM {
	v := VM{Ref: Ref{"VirtualMachine", "tenant", name}, Phase: phase}
	for range units {
		v.Devices = append(v.Devices, gpu.Device{Field: field, Name: resource})
	}
	return v
}

// wired returns a CR with the gate and entries for H200 and L40S.
func wired() *Wiring {
	return &Wiring{Object: "KubeVirt k/k", NeedsGate: true, Gate: true, DRA: gpu.Absent, Table: gpu.Table{Set: true, Entries: []gpu.Entry{
		{List: gpu.ListPCI, Selector: "10DE:2335", Name: h200, External: true},
		{List: gpu.ListPCI, Selector: "10DE:26B9", Name: l40s, External: true},
	}}}
}

// TestHealthyIsSilent diagnoses clusters in which everything is as it should be.
func TestHealthyIsSilent(t *testing.T) {
	passthrough := map[string]string{workloadConfigLabel: "vm-passthrough"}
	for name, e := range map[string]Evidence{
		"nothing":                           {},
		"passthrough":                       {Wiring: wired(), Nodes: []gpu.Node{node("a", h200, 2, passthrough)}, Hosts: []gpu.Host{{Node: "a", Functions: []gpu.Function{card(1, 0x2335, "vfio-pci"), card(2, 0x2335, "vfio-pci")}}}},
		"a VM that runs":                    {Wiring: wired(), Nodes: []gpu.Node{node("a", h200, 1, nil)}, VMs: []VM{vm("v", "Running", "gpus", h200, 1)}},
		"a VM that is stopped":              {Wiring: wired(), Nodes: []gpu.Node{node("a", h200, 1, nil)}, VMs: []VM{{Ref: Ref{"VirtualMachine", "tenant", "v"}, Halted: true, Devices: []gpu.Device{{Field: "gpus", Name: "nvidia.com/GONE"}}}}},
		"a VM with another vendor's card":   {Wiring: wired(), Nodes: []gpu.Node{node("a", h200, 1, nil)}, VMs: []VM{vm("v", "Pending", "hostDevices", "intel.com/qat", 1)}},
		"a container node":                  {Wiring: wired(), Nodes: []gpu.Node{node("a", "nvidia.com/gpu", 2, map[string]string{workloadConfigLabel: "container"})}, Hosts: []gpu.Host{{Node: "a", Functions: []gpu.Function{card(1, 0x2335, "nvidia")}}}, Findings: []Finding{New("GPU0212", "node/a", nil), New("GPU0201", "node/a", nil)}},
		"a node of vGPUs":                   {Wiring: wired(), Nodes: []gpu.Node{node("a", "nvidia.com/NVIDIA_A10-12Q", 2, nil)}, Findings: []Finding{New("GPU0201", "node/a", nil)}},
		"no host devices, and no gate":      {Wiring: &Wiring{Object: "KubeVirt k/k", NeedsGate: true}, Nodes: []gpu.Node{{Name: "a"}}},
		"an old event of a VM that runs":    {Wiring: wired(), Nodes: []gpu.Node{node("a", h200, 1, nil)}, VMs: []VM{vm("v", "Running", "gpus", h200, 1)}, Messages: []Message{{About: Ref{"VirtualMachineInstance", "tenant", "v"}, Text: "group 7 is not viable"}}},
		"an event of something else":        {Wiring: wired(), Messages: []Message{{About: Ref{"Deployment", "tenant", "web"}, Text: "0/3 nodes are available: 3 Insufficient cpu."}}},
		"a claim where none is let through": {Wiring: wired(), VMs: []VM{{Ref: Ref{"VirtualMachine", "tenant", "v"}, Claims: []string{`gpus "a"`}}}},
	} {
		t.Run(name, func(t *testing.T) {
			report, ok := Diagnose(&e, Subject{})
			if !ok || len(report.Findings) > 0 {
				t.Errorf("Diagnose() = %+v, %v; want nothing", report.Findings, ok)
			}
		})
	}
}

// TestRootCause breaks one link at a time and wants its code first, as an error.
func TestRootCause(t *testing.T) {
	passthrough := map[string]string{workloadConfigLabel: "vm-passthrough"}
	waits := func(field string, name gpu.ResourceName, units int) []VM {
		return []VM{vm("v", "Pending", field, name, units)}
	}
	holder := Pod{Namespace: "tenant", Name: "p", Node: "a", VM: "other", Requests: map[gpu.ResourceName]int64{h200: 2}}
	for name, tc := range map[string]struct {
		e        Evidence
		want     Code
		severity Severity
	}{
		"driver": {Evidence{
			Wiring: wired(), Nodes: []gpu.Node{{Name: "a", Labels: passthrough}}, VMs: waits("gpus", h200, 1),
			Hosts: []gpu.Host{{Node: "a", Functions: []gpu.Function{card(1, 0x2335, "nvidia")}}}, Findings: []Finding{New("GPU0201", "node/a", nil)},
		}, "GPU0201", Error},
		"vfio-manager before the driver": {Evidence{
			Wiring: wired(), Nodes: []gpu.Node{{Name: "a", Labels: passthrough}}, VMs: waits("gpus", h200, 1),
			Hosts: []gpu.Host{{Node: "a", Functions: []gpu.Function{card(1, 0x2335, "nvidia")}}}, Findings: []Finding{New("GPU0201", "node/a", nil)},
			Pods: []Pod{{Namespace: "g", Name: "m", Node: "a", Operand: VFIOManager, Problem: "CrashLoopBackOff"}},
		}, "GPU0216", Error},
		"device plugin": {Evidence{
			Wiring: wired(), Nodes: []gpu.Node{{Name: "a", Labels: passthrough}}, VMs: waits("gpus", h200, 1),
			Pods: []Pod{{Namespace: "g", Name: "d", Node: "a", Operand: DevicePlugin, Problem: "CrashLoopBackOff"}},
		}, "GPU0416", Error},
		"another name":         {Evidence{Wiring: wired(), Nodes: []gpu.Node{node("a", h200, 2, nil)}, VMs: waits("gpus", "nvidia.com/gh100_h200_sxm_141gb", 1)}, "GPU0501", Error},
		"no domain":            {Evidence{Wiring: wired(), Nodes: []gpu.Node{node("a", h200, 2, nil)}, VMs: waits("gpus", "h200", 1)}, "GPU0502", Error},
		"containers' name":     {Evidence{Wiring: wired(), Nodes: []gpu.Node{node("a", h200, 2, nil)}, VMs: waits("gpus", "nvidia.com/gpu", 1)}, "GPU0503", Error},
		"table":                {Evidence{Wiring: &Wiring{Object: "KubeVirt k/k", Table: gpu.Table{Set: true}}, Nodes: []gpu.Node{node("a", h200, 2, nil)}, VMs: waits("gpus", h200, 1)}, "GPU0302", Error},
		"gate":                 {Evidence{Wiring: &Wiring{Object: "KubeVirt k/k", NeedsGate: true}, Nodes: []gpu.Node{node("a", h200, 2, nil)}, VMs: waits("hostDevices", h200, 1)}, "GPU0301", Error},
		"more than a node has": {Evidence{Wiring: wired(), Nodes: []gpu.Node{node("a", h200, 2, nil)}, VMs: waits("gpus", h200, 3)}, "GPU0505", Error},
		"taken":                {Evidence{Wiring: wired(), Nodes: []gpu.Node{node("a", h200, 2, nil)}, VMs: waits("gpus", h200, 1), Pods: []Pod{holder}, PodsKnown: true}, "GPU0506", Warning},
		"a legacy ConfigMap": {Evidence{
			Wiring: wired(), Nodes: []gpu.Node{node("a", h200, 2, nil)}, VMs: waits("gpus", h200, 1), Legacy: []Legacy{{Ref: "k/kubevirt-config", Keys: []string{"feature-gates"}}},
			Messages: []Message{{About: Ref{"VirtualMachineInstance", "tenant", "v"}, Text: "GPU " + string(h200) + " is not permitted in permittedHostDevices configuration"}},
		}, "GPU0315", Error},
		"not tried again": {Evidence{
			Wiring: wired(), Nodes: []gpu.Node{node("a", h200, 2, nil)}, VMs: waits("gpus", h200, 1),
			Messages: []Message{{About: Ref{"VirtualMachineInstance", "tenant", "v"}, Text: "GPU " + string(h200) + " is not permitted in permittedHostDevices configuration"}},
		}, "GPU0509", Error},
		"the launcher's node": {Evidence{
			Wiring: wired(), Nodes: []gpu.Node{node("a", h200, 2, nil)}, VMs: waits("gpus", h200, 1),
			Pods: []Pod{{Namespace: "tenant", Name: "virt-launcher-v-x", Node: "a", VM: "v", Done: true, Refused: "UnexpectedAdmissionError: Allocate failed"}},
		}, "GPU0508", Error},
	} {
		t.Run(name, func(t *testing.T) {
			report, _ := Diagnose(&tc.e, Subject{})
			if len(report.Findings) == 0 {
				t.Fatal("nothing was found")
			}
			if got := report.Findings[0]; got.Code != tc.want || got.Severity != tc.severity {
				t.Errorf("first is %s %s, want %s %s, of %+v", got.Severity, got.Code, tc.severity, tc.want, report.Findings)
			}
			chains := map[string]Code{}
			for _, c := range report.Chains {
				if root := c.Root(); root != nil {
					chains[c.Subject] = root.Code
				}
			}
			if diff := cmp.Diff(map[string]Code{"VirtualMachine tenant/v": tc.want}, chains); diff != "" {
				t.Errorf("broken links by VM (-want +got):\n%s", diff)
			}
		})
	}
}

// TestOverviewCounts pins how GPUs are counted by what can be done with them.
func TestOverviewCounts(t *testing.T) {
	used := []Pod{{Namespace: "t", Name: "p", Node: "a", Requests: map[gpu.ResourceName]int64{h200: 1}}}
	two := []gpu.Host{{Node: "a", Functions: []gpu.Function{card(1, 0x2335, "vfio-pci"), card(2, 0x2335, "vfio-pci")}}}
	noTable := &Wiring{Object: "KubeVirt k/k", Table: gpu.Table{Set: true}}
	for name, tc := range map[string]struct {
		e    Evidence
		want Tally
	}{
		"free and used":      {Evidence{Wiring: wired(), Nodes: []gpu.Node{node("a", h200, 2, nil)}, Hosts: two, Pods: used, PodsKnown: true}, Tally{Free: 1, Used: 1}},
		"no inventory":       {Evidence{Wiring: wired(), Nodes: []gpu.Node{node("a", h200, 2, nil)}, Pods: used, PodsKnown: true}, Tally{Free: 1, Used: 1}},
		"pods not read":      {Evidence{Wiring: wired(), Nodes: []gpu.Node{node("a", h200, 2, nil)}, Hosts: two}, Tally{Unknown: 2}},
		"one not served":     {Evidence{Wiring: wired(), Nodes: []gpu.Node{node("a", h200, 1, nil)}, Hosts: two, PodsKnown: true}, Tally{Free: 1, Unusable: 1}},
		"one more served":    {Evidence{Wiring: wired(), Nodes: []gpu.Node{node("a", h200, 3, nil)}, Hosts: two, PodsKnown: true}, Tally{Free: 2, Unusable: 1}},
		"not permitted":      {Evidence{Wiring: noTable, Nodes: []gpu.Node{node("a", h200, 2, nil)}, Hosts: two, Pods: used, PodsKnown: true}, Tally{Used: 1, Unusable: 1}},
		"finished pods":      {Evidence{Wiring: wired(), Nodes: []gpu.Node{node("a", h200, 2, nil)}, Pods: []Pod{{Node: "a", Done: true, Requests: map[gpu.ResourceName]int64{h200: 2}}}, PodsKnown: true}, Tally{Free: 2}},
		"a driverless card":  {Evidence{Wiring: wired(), Nodes: []gpu.Node{node("a", h200, 1, nil)}, Hosts: []gpu.Host{{Node: "a", Functions: []gpu.Function{card(1, 0x2335, "vfio-pci"), card(2, 0x2335, "")}}}, PodsKnown: true}, Tally{Free: 1, Unusable: 1}},
		"a node not ready":   {Evidence{Wiring: wired(), Nodes: []gpu.Node{notReady(node("a", h200, 2, nil))}, PodsKnown: true}, Tally{Unknown: 2}},
		"a cordoned node":    {Evidence{Wiring: wired(), Nodes: []gpu.Node{cordoned(node("a", h200, 2, nil))}, PodsKnown: true}, Tally{Unusable: 2}},
		"containers' GPUs":   {Evidence{Wiring: wired(), Nodes: []gpu.Node{node("a", "nvidia.com/gpu", 2, nil)}, Hosts: []gpu.Host{{Node: "a", Functions: []gpu.Function{card(1, 0x2335, "nvidia")}}}, PodsKnown: true}, Tally{}},
		"another's resource": {Evidence{Wiring: wired(), Nodes: []gpu.Node{node("a", "intel.com/qat", 2, nil)}, PodsKnown: true}, Tally{}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Look(&tc.e).Totals.GPUs); diff != "" {
				t.Errorf("GPUs (-want +got):\n%s", diff)
			}
		})
	}
}

func notReady(n gpu.Node) gpu.Node { n.NotReady = true; return n }
func cordoned(n gpu.Node) gpu.Node { n.Cordoned = true; return n }
