package patch

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/internal/manifest"
)

const (
	a10    = "nvidia.com/NVIDIA_A10-12Q"
	l40s24 = "nvidia.com/NVIDIA_L40S-24Q"

	// mdevFmt has CONFIG beside the table, and ENTRIES in its list of mediated devices.
	mdevFmt = "apiVersion: kubevirt.io/v1\nkind: KubeVirt\nmetadata: {name: kubevirt, namespace: kubevirt}\n" +
		"spec: {configuration: {developerConfiguration: {featureGates: [HostDevices]}, CONFIG permittedHostDevices: {mediatedDevices: [ENTRIES]}}}\n"
	mdevHCO1Beta1 = "apiVersion: hco.kubevirt.io/v1beta1\nkind: HyperConverged\nmetadata: {name: hco, namespace: hco}\n" +
		"spec: {CONFIG permittedHostDevices: {mediatedDevices: [ENTRIES]}}\n"
	mdevHCO1 = "apiVersion: hco.kubevirt.io/v1\nkind: HyperConverged\nmetadata: {name: hco, namespace: hco}\n" +
		"spec: {virtualization: {CONFIG permittedHostDevices: {mediatedDevices: [ENTRIES]}}}\n"

	makesByID   = "mediatedDevicesConfiguration: {mediatedDeviceTypes: [nvidia-592]},"
	makesByName = "mediatedDevicesConfiguration: {nodeMediatedDeviceTypes: [{nodeSelector: {a: b}, mediatedDevicesTypes: [NVIDIA_A10-12Q]}]},"
)

// mdevCR fills in a format.
func mdevCR(format, config string, entries ...string) string {
	return table(strings.Replace(format, "CONFIG", config, 1), entries...)
}

// pciCR is a KubeVirt CR of a version, with PCI entries.
func pciCR(version string, entries ...string) string {
	return table(tableFmt, entries...) + "status: {observedKubeVirtVersion: \"" + version + "\"}\n"
}

// mdevHost has one card on driver nvidia, and instances of types, "id name".
func mdevHost(node string, types ...string) gpu.Host {
	h := on(host(node, 0x2236), func(f *gpu.Function) { f.Driver = "nvidia" })
	for i, t := range types {
		id, name, _ := strings.Cut(t, " ")
		h.Mdevs = append(h.Mdevs, gpu.Mdev{UUID: fmt.Sprint(node, i), TypeID: id, TypeName: name, Parent: h.Functions[0].Address})
	}
	return h
}

// vfHost has an L40S whose virtual functions carry vGPU types, by number, and one more
// that lists what they are called.
func vfHost(node string, types ...string) gpu.Host {
	h := on(host(node, 0x26b9), func(f *gpu.Function) { f.Driver, f.TotalVFs = "nvidia", 32 })
	for i, current := range append(types, "") {
		f := gpu.Function{
			Address: gpu.Address{Bus: 16, Device: 1, Function: uint8(i)}, ID: gpu.NVIDIA(0x26b9), Class: 0x030200, Driver: "nvidia",
			Group: gpu.InGroup(60 + i), VF: true, CurrentVGPU: current,
		}
		if current == "" {
			f.VGPUTypes = []gpu.VGPUType{{ID: 1155, Name: "NVIDIA L40S-24Q"}, {ID: 1150, Name: "NVIDIA L40S-4Q"}}
		}
		h.Functions = append(h.Functions, f)
	}
	return h
}

// withPlugin is a node on which NVIDIA's plugin was seen.
func withPlugin(name string, resources served) gpu.Node {
	n := node(name, resources)
	n.Plugin = gpu.Newest()
	return n
}

// entries lists what a plan adds, with the provider.
func entries(r Result) []string {
	var out []string
	for _, c := range r.Changes {
		v, _ := c.Value.(manifest.Object)
		for _, key := range []string{"pciVendorSelector", "pciDeviceSelector", "mdevNameSelector"} {
			if s, ok := v[key].(string); ok {
				out = append(out, fmt.Sprintf("%s %s %s", s, v["resourceName"], map[bool]string{true: "external", false: "in-tree"}[v["externalResourceProvider"] == true]))
			}
		}
	}
	return out
}

// codesAbout lists the findings of the given codes.
func codesAbout(r Result, about string) []string {
	var out []string
	for _, f := range r.Findings {
		if strings.Contains(about, string(f.Code)) {
			out = append(out, string(f.Code))
		}
	}
	return out
}

type vgpuCase struct {
	cr    string
	in    Input
	want  []string // "selector name provider" of the entries added
	codes []string // of the findings that a vGPU can raise
}

func runVGPU(t *testing.T, tests map[string]vgpuCase) {
	t.Helper()
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if tc.cr == "" {
				tc.cr = emptyCR
			}
			tc.in.Target = target(t, tc.cr)
			result, err := Plan(tc.in)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, entries(result)); diff != "" {
				t.Errorf("added (-want +got):\n%s\n%+v", diff, result.Findings)
			}
			if diff := cmp.Diff(tc.codes, codesAbout(result, "GPU0308 GPU0309 GPU0318 GPU0335 GPU0336 GPU0337 GPU0338 GPU0339 GPU0401 GPU0403 GPU0411")); diff != "" {
				t.Errorf("findings (-want +got):\n%s\n%+v", diff, result.Findings)
			}
			again, err := Plan(with(tc.in, result.Object))
			if err != nil || len(again.Changes) > 0 {
				t.Errorf("a second plan changes %v, %v", again.Changes, err)
			}
			removed, err := Remove(with(tc.in, result.Object))
			if diff := cmp.Diff(any(tc.in.Target.Object), any(removed.Object)); err != nil || diff != "" {
				t.Errorf("after Remove (-before +after):\n%s%v", diff, err)
			}
		})
	}
}

func TestMediatedDevices(t *testing.T) {
	const id, exact = "nvidia-592 NVIDIA A10-12Q", "NVIDIA A10-12Q " + a10
	one := []gpu.Host{mdevHost("a", id)}
	sown := func(provider string) string {
		return `{mdevNameSelector: NVIDIA A10-12Q, resourceName: ` + a10 + provider + `}`
	}
	const external = ", externalResourceProvider: true"
	runVGPU(t, map[string]vgpuCase{
		"served by the plugin": {
			in: Input{Hosts: one, Nodes: []gpu.Node{withPlugin("a", served{a10: 1})}}, want: []string{exact + " external"},
		},
		"served, the plugin was not seen": {
			in: Input{Hosts: one, Nodes: []gpu.Node{node("a", served{a10: 1})}}, want: []string{exact + " external"},
		},
		"the plugin was seen and serves nothing yet": {
			in: Input{Hosts: one, Nodes: []gpu.Node{withPlugin("a", nil)}}, want: []string{exact + " external"}, codes: []string{"GPU0401"},
		},
		"case and blanks stay as sysfs has them": {
			in:   Input{Hosts: []gpu.Host{mdevHost("a", "nvidia-1 NVIDIA RTX5000-Ada-8Q")}, Nodes: []gpu.Node{withPlugin("a", served{"nvidia.com/NVIDIA_RTX5000-Ada-8Q": 1})}},
			want: []string{"NVIDIA RTX5000-Ada-8Q nvidia.com/NVIDIA_RTX5000-Ada-8Q external"},
		},
		"a type that could be made is no device": {
			in: Input{Hosts: []gpu.Host{on(mdevHost("a"), func(f *gpu.Function) {
				f.MdevTypes = []gpu.MdevType{{ID: "nvidia-592", Name: "NVIDIA A10-12Q", Available: 2}}
			})}, Nodes: []gpu.Node{withPlugin("a", nil)}},
		},
		"another vendor's": {
			in: Input{Hosts: []gpu.Host{mdevHost("a", "i915-GVTg_V5_4 GVTg_V5_4")}, Nodes: []gpu.Node{withPlugin("a", nil)}},
		},
		"made by KubeVirt, by id": {
			cr: mdevCR(mdevFmt, makesByID), in: Input{Hosts: one, Nodes: []gpu.Node{node("a", nil)}}, want: []string{exact + " in-tree"},
		},
		"made by KubeVirt, by name and for some nodes": {
			cr: mdevCR(mdevFmt, makesByName), in: Input{Hosts: one, Nodes: []gpu.Node{node("a", nil)}}, want: []string{exact + " in-tree"},
		},
		"KubeVirt makes another type": {
			cr: mdevCR(mdevFmt, strings.Replace(makesByID, "592", "593", 1)), in: Input{Hosts: one, Nodes: []gpu.Node{node("a", nil)}}, codes: []string{"GPU0335"},
		},
		"KubeVirt is told to make none": {
			cr: mdevCR(mdevFmt, strings.Replace(makesByID, "{", "{enabled: false, ", 1)), in: Input{Hosts: one}, codes: []string{"GPU0335"},
		},
		"KubeVirt is told so by a gate": {
			cr: strings.Replace(mdevCR(mdevFmt, makesByID), "[HostDevices]", "[HostDevices, DisableMDEVConfiguration]", 1), in: Input{Hosts: one}, codes: []string{"GPU0335"},
		},
		"the field wins over the gate": {
			cr: strings.Replace(mdevCR(mdevFmt, strings.Replace(makesByID, "{", "{enabled: true, ", 1)), "[HostDevices]", "[HostDevices, DisableMDEVConfiguration]", 1),
			in: Input{Hosts: one}, want: []string{exact + " in-tree"},
		},
		"made by KubeVirt, and the plugin runs there": {
			cr: mdevCR(mdevFmt, makesByID), in: Input{Hosts: one, Nodes: []gpu.Node{withPlugin("a", nil)}}, want: []string{exact + " external"}, codes: []string{"GPU0401"},
		},
		"made by KubeVirt, and a plugin that was not seen serves them": {
			cr: mdevCR(mdevFmt, makesByID), in: Input{Hosts: one, Nodes: []gpu.Node{node("a", served{a10: 1})}}, want: []string{exact + " external"},
		},
		"the plugin runs on another node only": {
			cr: mdevCR(mdevFmt, makesByID), in: Input{Hosts: one, Nodes: []gpu.Node{node("a", nil), withPlugin("b", nil)}}, want: []string{exact + " in-tree"},
		},
		"nobody serves them": {in: Input{Hosts: one, Nodes: []gpu.Node{node("a", nil)}}, codes: []string{"GPU0335"}},
		"nobody serves them, and they are permitted by hand": {
			in: Input{Hosts: one, Permits: []Permit{{Mdev: "NVIDIA A10-12Q", Name: a10}}}, want: []string{exact + " external"},
		},
		"named by hand, and made by KubeVirt": {
			cr: mdevCR(mdevFmt, makesByID), in: Input{Hosts: one, Permits: []Permit{{Mdev: "NVIDIA_A10-12Q", Name: a10}}},
			want: []string{"NVIDIA_A10-12Q " + a10 + " in-tree"},
		},
		"a name of one's own silences a prediction": {
			in:   Input{Hosts: one, Nodes: []gpu.Node{withPlugin("a", nil)}, Permits: []Permit{{Mdev: "NVIDIA A10-12Q", Name: "nvidia.com/MINE"}}},
			want: []string{"NVIDIA A10-12Q nvidia.com/MINE external"},
		},
		"present": {
			cr: mdevCR(mdevFmt, "", sown(external)), in: Input{Hosts: one, Nodes: []gpu.Node{withPlugin("a", served{a10: 1})}},
		},
		"present, spelt with an underscore": {
			cr: mdevCR(mdevFmt, "", strings.Replace(sown(external), "NVIDIA A10", "NVIDIA_A10", 1)), in: Input{Hosts: one, Nodes: []gpu.Node{withPlugin("a", served{a10: 1})}},
		},
		"present in-tree, which explains what is served": {
			cr: mdevCR(mdevFmt, makesByID, sown("")), in: Input{Hosts: one, Nodes: []gpu.Node{node("a", served{a10: 1})}},
		},
		"present in-tree, made by hand": {
			cr: mdevCR(mdevFmt, "", sown("")), in: Input{Hosts: one, Nodes: []gpu.Node{node("a", served{a10: 1})}},
		},
		"present in-tree, and the plugin runs there": {
			cr: mdevCR(mdevFmt, "", sown("")), in: Input{Hosts: one, Nodes: []gpu.Node{withPlugin("a", served{a10: 1})}}, codes: []string{"GPU0336"},
		},
		"present for an external provider, and only KubeVirt makes them": {
			cr: mdevCR(mdevFmt, makesByID, sown(external)), in: Input{Hosts: one, Nodes: []gpu.Node{node("a", nil)}}, codes: []string{"GPU0336"},
		},
		"in-tree under a name of one's own": {
			cr: mdevCR(mdevFmt, makesByID, `{mdevNameSelector: NVIDIA_A10-12Q, resourceName: example.com/vgpu}`), in: Input{Hosts: one, Nodes: []gpu.Node{node("a", nil)}},
		},
		"in-tree under a name of one's own, and the plugin serves nothing yet": {
			cr: mdevCR(mdevFmt, "", `{mdevNameSelector: NVIDIA_A10-12Q, resourceName: example.com/vgpu}`), in: Input{Hosts: one, Nodes: []gpu.Node{withPlugin("a", nil)}},
			codes: []string{"GPU0403"},
		},
		"external under a name of one's own, and only KubeVirt makes them": {
			cr: mdevCR(mdevFmt, makesByID, `{mdevNameSelector: NVIDIA A10-12Q, resourceName: example.com/vgpu, externalResourceProvider: true}`),
			in: Input{Hosts: one, Nodes: []gpu.Node{node("a", nil)}}, codes: []string{"GPU0336"},
		},
		"misspelt in case: the entry stays and the right one is added": {
			cr: mdevCR(mdevFmt, "", `{mdevNameSelector: NVIDIA a10-12q, resourceName: nvidia.com/NVIDIA_a10-12q, externalResourceProvider: true}`),
			in: Input{Hosts: one, Nodes: []gpu.Node{withPlugin("a", served{a10: 1})}}, want: []string{exact + " external"}, codes: []string{"GPU0411"},
		},
		"misspelt in case, and no inventory": {
			cr: mdevCR(mdevFmt, "", `{mdevNameSelector: NVIDIA a10-12q, resourceName: nvidia.com/NVIDIA_a10-12q, externalResourceProvider: true}`),
			in: Input{Nodes: []gpu.Node{withPlugin("a", served{a10: 1})}}, codes: []string{"GPU0411"},
		},
		"no inventory: the resource name is all that is known": {
			in: Input{Nodes: []gpu.Node{node("a", served{a10: 1})}}, want: []string{"NVIDIA_A10-12Q " + a10 + " external"},
		},
		"no inventory, and another node's knows the type": {
			in: Input{Hosts: one, Nodes: []gpu.Node{node("a", nil), node("b", served{a10: 1})}}, want: []string{exact + " external"},
		},
		"no inventory, and another node's could make the type": {
			in: Input{
				Hosts: []gpu.Host{on(mdevHost("a"), func(f *gpu.Function) { f.MdevTypes = []gpu.MdevType{{ID: "nvidia-592", Name: "NVIDIA A10-12Q"}} })},
				Nodes: []gpu.Node{node("b", served{a10: 1})},
			},
			want: []string{exact + " external"},
		},
		"no inventory, and an entry knows the type": {
			cr:   mdevCR(mdevFmt, "", `{mdevNameSelector: NVIDIA A10-12Q, resourceName: example.com/vgpu, externalResourceProvider: true}`),
			in:   Input{Nodes: []gpu.Node{node("a", served{a10: 1})}},
			want: []string{exact + " external"},
		},
		"no inventory, and permitted": {
			cr: mdevCR(mdevFmt, "", sown("")), in: Input{Nodes: []gpu.Node{node("a", served{a10: 1})}},
		},
		"an inventory of lspci shows no mediated device": {
			in: Input{Hosts: []gpu.Host{mdevHost("a")}, Nodes: []gpu.Node{node("a", served{a10: 1})}}, codes: []string{"GPU0335"},
		},
		"an inventory of lspci, and the type is named by hand": {
			in:   Input{Hosts: []gpu.Host{mdevHost("a")}, Nodes: []gpu.Node{node("a", served{a10: 1})}, Permits: []Permit{{Mdev: "NVIDIA A10-12Q", Name: a10}}},
			want: []string{exact + " external"},
		},
		"mixed nodes": {
			in: Input{
				Hosts: []gpu.Host{mdevHost("a", id), mdevHost("b", id, "nvidia-593 NVIDIA A10-24Q"), host("c", 0x2335)},
				Nodes: []gpu.Node{withPlugin("a", served{a10: 1}), node("b", nil), withPlugin("c", served{h200: 1}), node("d", served{"nvidia.com/GRID_T4-16Q": 1})},
			},
			want:  []string{"10DE:2335 " + h200 + " external", "GRID_T4-16Q nvidia.com/GRID_T4-16Q external", exact + " external"},
			codes: []string{"GPU0335"},
		},
		"a type without a name": {
			cr: mdevCR(mdevFmt, makesByID), in: Input{Hosts: []gpu.Host{mdevHost("a", "nvidia-592")}, Nodes: []gpu.Node{withPlugin("a", nil)}}, codes: []string{"GPU0339"},
		},
		"a type whose name makes no resource name": {
			in: Input{Hosts: []gpu.Host{mdevHost("a", "nvidia-592 NVIDIA A10-12Q(!)")}, Nodes: []gpu.Node{withPlugin("a", nil)}}, codes: []string{"GPU0339"},
		},
		"HyperConverged v1beta1": {
			cr: mdevCR(mdevHCO1Beta1, makesByID), in: Input{Hosts: one, Nodes: []gpu.Node{node("a", nil)}}, want: []string{exact + " in-tree"},
		},
		"HyperConverged v1beta1 with the switch": {
			cr: mdevCR(mdevHCO1Beta1, makesByID+" featureGates: {disableMDevConfiguration: true},"), in: Input{Hosts: one, Nodes: []gpu.Node{node("a", nil)}}, codes: []string{"GPU0335"},
		},
		"HyperConverged v1": {
			cr: mdevCR(mdevHCO1, makesByID), in: Input{Hosts: one, Nodes: []gpu.Node{node("a", nil)}}, want: []string{exact + " in-tree"},
		},
		"HyperConverged v1, and the plugin runs": {
			cr: mdevCR(mdevHCO1, ""), in: Input{Hosts: one, Nodes: []gpu.Node{withPlugin("a", served{a10: 1})}}, want: []string{exact + " external"},
		},
		"HyperConverged holds the type under another name": {
			cr: mdevCR(mdevHCO1, "", `{mdevNameSelector: NVIDIA A10-12Q, resourceName: example.com/vgpu, externalResourceProvider: true}`),
			in: Input{Hosts: one, Nodes: []gpu.Node{withPlugin("a", served{a10: 1})}}, codes: []string{"GPU0336"},
		},
		"HyperConverged entry that was disabled stays so": {
			cr: mdevCR(mdevHCO1Beta1, "", sown(external+", disabled: true")), in: Input{Hosts: one, Nodes: []gpu.Node{withPlugin("a", served{a10: 1})}}, codes: []string{"GPU0318"},
		},
		"HyperConverged entry under another name that was disabled stays so": {
			cr: mdevCR(mdevHCO1Beta1, "", `{mdevNameSelector: NVIDIA A10-12Q, resourceName: example.com/vgpu, disabled: true}`),
			in: Input{Hosts: one, Nodes: []gpu.Node{withPlugin("a", served{a10: 1})}}, codes: []string{"GPU0318"},
		},
	})
}

// TestNoTargetNoProvider: who serves vGPUs is not judged without a CR.
func TestNoTargetNoProvider(t *testing.T) {
	_, findings, err := Examine(Input{Hosts: []gpu.Host{mdevHost("a", "nvidia-592 NVIDIA A10-12Q"), vfHost("b", "1155")}})
	if got := codesAbout(Result{Findings: findings}, "GPU0335 GPU0337"); err != nil || len(got) > 0 {
		t.Errorf("Examine() = %v, %v", got, err)
	}
}

// TestTypeWithoutAName says which type it is, and on which node.
func TestTypeWithoutAName(t *testing.T) {
	result, err := Plan(Input{Target: target(t, emptyCR), Hosts: []gpu.Host{mdevHost("a", "nvidia-592", "nvidia-592")}})
	if err != nil {
		t.Fatal(err)
	}
	want := "a has 2 x vGPU type nvidia-592, which gives no resource name (the host shows no name of it): nothing is added for it"
	var got []string
	for _, f := range result.Findings {
		if f.Code == "GPU0339" {
			got = append(got, f.Object, f.Message)
		}
	}
	if diff := cmp.Diff([]string{"node/a", want}, got); diff != "" {
		t.Error(diff)
	}
}

// TestMdevsBehindHyperConverged goes by what virt-handler reads, too.
func TestMdevsBehindHyperConverged(t *testing.T) {
	managed := "namespace: hco, labels: {app.kubernetes.io/managed-by: hco-operator}"
	hco := "---\n" + mdevCR(mdevHCO1, makesByID)
	tests := map[string]struct {
		config string // of the KubeVirt CR
		want   []string
	}{
		"passed on":     {makesByID, []string{"NVIDIA A10-12Q " + a10 + " in-tree"}},
		"switched off":  {strings.Replace(makesByID, "{", "{enabled: false, ", 1), nil},
		"not passed on": {"", []string{"NVIDIA A10-12Q " + a10 + " in-tree"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			kubevirt := strings.Replace(mdevCR(mdevFmt, tc.config), "namespace: kubevirt", managed, 1)
			result, err := Plan(Input{Target: target(t, kubevirt+hco), Hosts: []gpu.Host{mdevHost("a", "nvidia-592 NVIDIA A10-12Q")}})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, entries(result)); diff != "" {
				t.Errorf("added (-want +got):\n%s", diff)
			}
		})
	}
}
