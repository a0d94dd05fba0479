package patch

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

const (
	hex  = "nvidia.com/2335" // what an old plugin calls the H200
	ours = `apiVersion: kubevirt.io/v1
kind: KubeVirt
metadata: {name: kubevirt, namespace: kubevirt, annotations: {gpuctl.dev/wired: '{"version":1,"entries":[{"list":"pciHostDevices","selector":"10DE:2335","resourceName":"nvidia.com/2335"},{"list":"mediatedDevices","selector":"GRID T4-16Q","resourceName":"nvidia.com/GRID_T4-16Q"}]}'}}
spec:
  configuration:
    developerConfiguration: {featureGates: [HostDevices]}
    mediatedDevicesConfiguration: {mediatedDeviceTypes: [nvidia-231]}
    permittedHostDevices:
      pciHostDevices:
      - {pciVendorSelector: "10DE:2335", resourceName: nvidia.com/2335, externalResourceProvider: true}
      - {pciVendorSelector: "10DE:1DB6", resourceName: nvidia.com/OTHERS, externalResourceProvider: true}
      mediatedDevices:
      - {mdevNameSelector: GRID T4-16Q, resourceName: nvidia.com/GRID_T4-16Q, externalResourceProvider: true}
`
	oursInHCO = `apiVersion: hco.kubevirt.io/v1beta1
kind: HyperConverged
metadata: {name: hco, namespace: hco, annotations: {gpuctl.dev/wired: '{"version":1,"entries":[{"list":"pciHostDevices","selector":"10DE:2335","resourceName":"nvidia.com/2335"}]}'}}
spec:
  permittedHostDevices:
    pciHostDevices:
    - {pciDeviceSelector: "10DE:1DB6", resourceName: nvidia.com/OTHERS, externalResourceProvider: true}
    - {pciDeviceSelector: "10DE:2335", resourceName: nvidia.com/2335, externalResourceProvider: true}
`
	theirsInHCO = `apiVersion: hco.kubevirt.io/v1beta1
kind: HyperConverged
metadata: {name: hco, namespace: hco}
spec: {permittedHostDevices: {pciHostDevices: [{pciDeviceSelector: "10DE:2335", resourceName: nvidia.com/2335, externalResourceProvider: true}]}}
`
)

// T4s whose vGPUs nobody has made keep the mediated entry alive.
func t4() gpu.Host {
	return on(host("t4", 0x1eb8), func(f *gpu.Function) {
		f.Driver, f.MdevTypes = "nvidia", []gpu.MdevType{{ID: "nvidia-231", Name: "GRID T4-16Q", Available: 1}}
	})
}

func TestStaleEntries(t *testing.T) {
	day := func(names ...gpu.ResourceName) Idle {
		idle := Idle{For: map[gpu.ResourceName]time.Duration{}, Limit: 24 * time.Hour}
		for _, n := range names {
			idle.For[n] = 24 * time.Hour
		}
		return idle
	}
	moved := []gpu.Node{node("a", served{h200: 8, hex: 0}), node("t4", nil)}
	hosts := []gpu.Host{host("a", 0x2335), t4()}
	tests := map[string]struct {
		cr   string // default: ours
		in   Input
		want []string // changes
		stop string
	}{
		"nodes moved on for long enough":        {in: Input{Nodes: moved, Hosts: hosts, Idle: day(hex)}, want: []string{"- " + hex, "+ " + h200}},
		"without an inventory":                  {in: Input{Nodes: moved, Hosts: hosts[1:], Idle: day(hex)}, want: []string{"- " + hex, "+ " + h200}},
		"a one-shot command takes nothing away": {in: Input{Nodes: moved, Hosts: hosts}, want: []string{"+ " + h200}},
		"not for long enough": {
			in:   Input{Nodes: moved, Hosts: hosts, Idle: Idle{For: map[gpu.ResourceName]time.Duration{hex: 24*time.Hour - 1}, Limit: 24 * time.Hour}},
			want: []string{"+ " + h200},
		},
		"nobody has watched": {in: Input{Nodes: moved, Hosts: hosts, Idle: day()}, want: []string{"+ " + h200}},
		"a stopped VM asks for the name": {
			in: Input{Nodes: moved, Hosts: hosts, Idle: day(hex), Workloads: []gpu.Workload{vm(hex)}}, want: []string{"+ " + h200},
		},
		"one node serves it still": {
			in:   Input{Nodes: append([]gpu.Node{node("b", served{hex: 1})}, moved...), Hosts: append([]gpu.Host{host("b", 0x2335)}, hosts...), Idle: day(hex)},
			want: []string{"+ " + h200},
		},
		"the plugin of another node is down": {
			in:   Input{Nodes: append([]gpu.Node{node("b", served{hex: 0})}, moved...), Hosts: append([]gpu.Host{host("b", 0x2335)}, hosts...), Idle: day(hex)},
			want: []string{"+ " + h200},
		},
		"another node without an inventory shows 0": {
			in: Input{Nodes: append([]gpu.Node{node("b", served{hex: 0})}, moved...), Hosts: hosts, Idle: day(hex)}, want: []string{"+ " + h200},
		},
		"another node's plugin has registered nothing yet": {
			in:   Input{Nodes: append([]gpu.Node{node("b", nil)}, moved...), Hosts: append([]gpu.Host{host("b", 0x2335)}, hosts...), Idle: day(hex)},
			want: []string{"+ " + h200},
		},
		"vfio-manager has unbound the cards of another node": {
			in: Input{
				Nodes: append([]gpu.Node{node("b", nil)}, moved...), Idle: day(hex),
				Hosts: append([]gpu.Host{on(host("b", 0x2335), func(f *gpu.Function) { f.Driver = "" })}, hosts...),
			},
			want: []string{"+ " + h200},
		},
		"all are down": {
			in: Input{Nodes: []gpu.Node{node("a", served{hex: 0}), node("t4", nil)}, Hosts: hosts, Idle: day(hex)}, want: []string{"+ " + h200},
		},
		"not ready, and silent": {
			in: Input{Nodes: []gpu.Node{{Name: "a", NotReady: true, Capacity: served{hex: 8}, Allocatable: served{hex: 0}}, node("t4", nil)}, Hosts: hosts[1:], Idle: day(hex)},
		},
		"nobody's entries are left alone": {in: Input{Nodes: []gpu.Node{node("a", nil)}, Hosts: hosts, Idle: day("nvidia.com/OTHERS")}, want: []string{"+ " + h200}},
		"named explicitly": {
			in:   Input{Nodes: moved, Hosts: hosts, Idle: day(hex), Permits: []Permit{{ID: gpu.NVIDIA(0x2335), Name: hex}}},
			want: []string{"+ " + h200},
		},
		"the card is gone from the cluster": {
			in: Input{Nodes: []gpu.Node{node("t4", nil)}, Hosts: hosts[1:], Idle: day(hex)}, want: []string{"- " + hex},
		},
		"mediated devices that could be made stay": {in: Input{Nodes: moved, Hosts: hosts, Idle: day("nvidia.com/GRID_T4-16Q")}, want: []string{"+ " + h200}},
		"both are gone": {
			in: Input{Nodes: []gpu.Node{node("b", nil)}, Idle: day(hex, "nvidia.com/GRID_T4-16Q")}, want: []string{"- nvidia.com/GRID_T4-16Q", "- " + hex},
		},
		"no node is known": {in: Input{Idle: day(hex, "nvidia.com/GRID_T4-16Q")}},
		"a list with one entry a selector makes room at once": {
			cr: oursInHCO, in: Input{Nodes: moved[:1], Hosts: hosts[:1]}, want: []string{"- " + hex, "+ " + h200},
		},
		"but not for a name that a VM asks for": {
			cr: oursInHCO, in: Input{Nodes: moved[:1], Hosts: hosts[:1], Workloads: []gpu.Workload{vm(hex)}}, stop: "GPU0317",
		},
		"nor while nodes differ": {
			cr: oursInHCO, in: Input{Nodes: []gpu.Node{moved[0], node("b", served{hex: 1})}, Hosts: []gpu.Host{hosts[0], host("b", 0x2335)}}, stop: "GPU0317",
		},
		"nor somebody else's": {cr: theirsInHCO, in: Input{Nodes: moved[:1], Hosts: hosts[:1]}, stop: "GPU0317"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if tc.cr == "" {
				tc.cr = ours
			}
			tc.in.Target, tc.in.WorkloadsKnown = target(t, tc.cr), true
			r, err := Plan(tc.in)
			if got := stoppedBy(err); got != tc.stop {
				t.Fatalf("stopped by %q (%v), want %q", got, err, tc.stop)
			}
			var got []string
			for _, c := range r.Changes {
				sign := map[string]string{"add": "+ ", "remove": "- "}[c.Op]
				got = append(got, sign+c.Value.(map[string]any)["resourceName"].(string))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("changes (-want +got):\n%s\n%+v", diff, r.Findings)
			}
			settled(t, tc.in, r)
		})
	}
}

// settled fails the test when the plan's outcome is not what a second plan wants, or
// its record speaks of entries that are not there.
func settled(t *testing.T, in Input, r Result) {
	t.Helper()
	if len(r.Edits) == 0 {
		return
	}
	in.Target.Object = r.Object
	again, err := Plan(in)
	if err != nil || len(again.Changes) > 0 {
		t.Errorf("a second plan changes %v: %v", again.Changes, err)
	}
	table, err := TableOf(&in.Target, r.Object)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range Own(&in.Target) {
		if !table.Permits(name) {
			t.Errorf("the record speaks of %s, and the table has no such entry", name)
		}
	}
}

// stoppedBy returns the first code of a refusal, "" for none.
func stoppedBy(err error) string {
	var refusal *Refusal
	if !asRefusal(err, &refusal) {
		return ""
	}
	return string(refusal.Findings[0].Code)
}
