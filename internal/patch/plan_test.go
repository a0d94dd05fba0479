package patch

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/internal/manifest"
)

const (
	h200     = "nvidia.com/GH100_H200_SXM_141GB"
	oneGate  = "{developerConfiguration: {featureGates: [HostDevices]}}"
	emptyCR  = "apiVersion: kubevirt.io/v1\nkind: KubeVirt\nmetadata: {name: kubevirt, namespace: kubevirt}\nspec: {configuration: " + oneGate + "}\n"
	tableFmt = "apiVersion: kubevirt.io/v1\nkind: KubeVirt\nmetadata: {name: kubevirt, namespace: kubevirt}\n" +
		"spec: {configuration: {developerConfiguration: {featureGates: [HostDevices]}, permittedHostDevices: {pciHostDevices: [ENTRIES]}}}\n"
	hcoFmt = "apiVersion: hco.kubevirt.io/v1beta1\nkind: HyperConverged\nmetadata: {name: hco, namespace: hco}\n" +
		"spec: {permittedHostDevices: {pciHostDevices: [ENTRIES]}}\n"
)

func target(t *testing.T, text string) Target {
	t.Helper()
	docs, _, err := manifest.Parse("cr.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	chosen, err := Choose(docs)
	if err != nil {
		t.Fatal(err)
	}
	return chosen
}

func table(format string, entries ...string) string {
	return strings.Replace(format, "ENTRIES", strings.Join(entries, ", "), 1)
}

// host has one GPU per id, each in a group of its own, on a vfio driver.
func host(node string, ids ...gpu.DeviceID) gpu.Host {
	h := gpu.Host{Node: node}
	for i, id := range ids {
		h.Functions = append(h.Functions, gpu.Function{
			Address: gpu.Address{Bus: uint8(16 + i)}, ID: gpu.NVIDIA(id), Class: 0x030200, Driver: "vfio-pci", Group: gpu.InGroup(i),
		})
	}
	return h
}

// on changes every function of a host.
func on(h gpu.Host, change func(*gpu.Function)) gpu.Host {
	for i := range h.Functions {
		change(&h.Functions[i])
	}
	return h
}

func node(name string, resources map[gpu.ResourceName]int64) gpu.Node {
	return gpu.Node{Name: name, Labels: map[string]string{}, Allocatable: resources}
}

type served = map[gpu.ResourceName]int64

func vm(device gpu.ResourceName) gpu.Workload {
	return gpu.Workload{Kind: "VirtualMachine", Namespace: "t", Name: "vm", Devices: []gpu.Device{{Field: "gpus", Name: device}}}
}

func TestPlan(t *testing.T) {
	v12 := gpu.Release{Major: 1, Minor: 2, Patch: 10}
	tests := map[string]struct {
		cr   string // default: no table, gate set
		in   Input
		want []string // "selector name" of the entries added, or "gate"
		code string   // a code that must be among the findings
		stop string   // the code of the refusal
	}{
		"nothing known, nothing added": {},
		"gate is added to an empty CR": {
			cr: "apiVersion: kubevirt.io/v1\nkind: KubeVirt\nmetadata: {name: k}\n", want: []string{"gate"},
		},
		"gate in both lists is refused": {
			cr:   "apiVersion: kubevirt.io/v1\nkind: KubeVirt\nmetadata: {name: k}\nspec: {configuration: {developerConfiguration: {disabledFeatureGates: [HostDevices]}}}\n",
			stop: "GPU0314",
		},
		"host without a node is predicted": {
			in: Input{Hosts: []gpu.Host{host("", 0x2335)}}, want: []string{"10DE:2335 " + h200}, code: "GPU0401",
		},
		"prediction follows the release": {
			in: Input{Hosts: []gpu.Host{host("", 0x233b)}, Release: v12}, want: []string{"10DE:233B nvidia.com/233b"},
		},
		"prediction follows the plugin seen on the node": {
			in: Input{Hosts: []gpu.Host{host("a", 0x233b)}, Nodes: []gpu.Node{{Name: "a", Plugin: v12}}}, want: []string{"10DE:233B nvidia.com/233b"},
		},
		"node that serves zero only is predicted": {
			in:   Input{Hosts: []gpu.Host{host("a", 0x2335)}, Nodes: []gpu.Node{node("a", served{"nvidia.com/2335": 0, "nvidia.com/gpu": 0})}},
			want: []string{"10DE:2335 " + h200}, code: "GPU0412",
		},
		"served name is taken": {
			in:   Input{Hosts: []gpu.Host{host("a", 0x2335, 0x2335)}, Nodes: []gpu.Node{node("a", served{h200: 2})}},
			want: []string{"10DE:2335 " + h200},
		},
		"hex name of an old plugin is taken even when a card is missing": {
			in:   Input{Hosts: []gpu.Host{host("a", 0x2335, 0x2335)}, Nodes: []gpu.Node{node("a", served{"nvidia.com/2335": 1})}},
			want: []string{"10DE:2335 nvidia.com/2335"}, code: "GPU0402",
		},
		"unknown name that fits by count is taken": {
			in:   Input{Hosts: []gpu.Host{host("a", 0x2335, 0x2335)}, Nodes: []gpu.Node{node("a", served{"nvidia.com/CUSTOM": 2, "nvidia.com/GRID_T4-16Q": 2, "nvidia.com/gpu": 2})}},
			want: []string{"10DE:2335 nvidia.com/CUSTOM"}, code: "GPU0402",
		},
		"unknown name that fits by groups is taken": {
			in: Input{
				Hosts: []gpu.Host{on(host("a", 0x2335, 0x2335), func(f *gpu.Function) { f.Group = gpu.InGroup(7) })},
				Nodes: []gpu.Node{node("a", served{"nvidia.com/CUSTOM": 1})},
			},
			want: []string{"10DE:2335 nvidia.com/CUSTOM"},
		},
		"unknown name of another count is not": {
			in:   Input{Hosts: []gpu.Host{host("a", 0x2335, 0x2335)}, Nodes: []gpu.Node{node("a", served{"nvidia.com/CUSTOM": 3})}},
			code: "GPU0404",
		},
		"two unknown names that fit are not guessed": {
			in:   Input{Hosts: []gpu.Host{host("a", 0x2335)}, Nodes: []gpu.Node{node("a", served{"nvidia.com/X": 1, "nvidia.com/Y": 1})}},
			code: "GPU0404",
		},
		"one unknown name that fits two ids is not guessed": {
			in:   Input{Hosts: []gpu.Host{host("a", 0x2335, 0x26b9)}, Nodes: []gpu.Node{node("a", served{"nvidia.com/X": 1})}},
			code: "GPU0404",
		},
		"two unknown names told apart by count": {
			in:   Input{Hosts: []gpu.Host{host("a", 0x2335, 0x26b9, 0x26b9)}, Nodes: []gpu.Node{node("a", served{"nvidia.com/X": 1, "nvidia.com/Y": 2})}},
			want: []string{"10DE:2335 nvidia.com/X", "10DE:26B9 nvidia.com/Y"},
		},
		"container resource alone decides nothing": {
			in:   Input{Hosts: []gpu.Host{host("a", 0x2335)}, Nodes: []gpu.Node{node("a", served{"nvidia.com/gpu": 1})}},
			code: "GPU0404",
		},
		"name of a card that is not there is not matched by count": {
			in:   Input{Hosts: []gpu.Host{host("a", 0x2335)}, Nodes: []gpu.Node{node("a", served{"nvidia.com/TU104GL_TESLA_T4": 1})}},
			code: "GPU0404",
		},
		"audio and switches served by the plugin are not the GPU": {
			in:   Input{Hosts: []gpu.Host{host("a", 0x2335)}, Nodes: []gpu.Node{node("a", served{"nvidia.com/GH100_H100_NVSWITCH": 1})}},
			code: "GPU0404",
		},
		"illegal name is not predicted": {
			in: Input{Hosts: []gpu.Host{host("a", 0x24fa)}}, code: "GPU0405",
		},
		"GPU on the host driver is not wanted": {
			in: Input{Hosts: []gpu.Host{on(host("a", 0x2335), func(f *gpu.Function) { f.Driver = "nvidia" })}}, code: "GPU0201",
		},
		"GPU of unknown driver is not wanted": {
			in: Input{Hosts: []gpu.Host{on(host("a", 0x2335), func(f *gpu.Function) { f.Driver, f.DriverUnknown = "", true })}}, code: "GPU0203",
		},
		"virtual function on vfio is not wanted": {
			in: Input{Hosts: []gpu.Host{on(host("a", 0x2335), func(f *gpu.Function) { f.VF = true })}}, code: "GPU0208",
		},
		"NVSwitch on vfio is not wanted": {
			in: Input{Hosts: []gpu.Host{on(host("a", 0x22a3), func(f *gpu.Function) { f.Class = 0x068000 })}}, code: "GPU0209",
		},
		"GPU in a group that is not viable is wanted": {
			in: Input{Hosts: []gpu.Host{{Node: "a", Functions: append(host("a", 0x2335).Functions,
				gpu.Function{Address: gpu.Address{Bus: 16, Function: 1}, ID: gpu.NVIDIA(0x1aef), Class: 0x040300, Driver: "snd_hda_intel", Group: gpu.InGroup(0)})}}},
			want: []string{"10DE:2335 " + h200}, code: "GPU0204",
		},
		"two ids of one name are both added": {
			in:   Input{Hosts: []gpu.Host{host("a", 0x20b1, 0x20f1)}, Nodes: []gpu.Node{node("a", served{"nvidia.com/GA100_A100_PCIE_40GB": 1})}},
			want: []string{"10DE:20B1 nvidia.com/GA100_A100_PCIE_40GB", "10DE:20F1 nvidia.com/GA100_A100_PCIE_40GB"}, code: "GPU0406",
		},
		"no inventory, name of one id": {
			in: Input{Nodes: []gpu.Node{node("a", served{h200: 8})}}, want: []string{"10DE:2335 " + h200},
		},
		"no inventory, bare id": {
			in: Input{Nodes: []gpu.Node{node("a", served{"nvidia.com/2335": 8})}}, want: []string{"10DE:2335 nvidia.com/2335"},
		},
		"no inventory, name of two ids": {
			in: Input{Nodes: []gpu.Node{node("a", served{"nvidia.com/GA100_A100_PCIE_40GB": 2})}}, code: "GPU0407",
		},
		"no inventory, unknown name": {
			in: Input{Nodes: []gpu.Node{node("a", served{"nvidia.com/CUSTOM": 2})}}, code: "GPU0408",
		},
		"no inventory, names of parts and of containers": {
			in: Input{Nodes: []gpu.Node{node("a", served{
				"nvidia.com/GA102_HIGH_DEFINITION_AUDIO_CONTROLLER": 2, "nvidia.com/1aef": 2, "nvidia.com/22a3": 4, "nvidia.com/GH100_H100_NVSWITCH": 4,
				"nvidia.com/gpu": 8, "nvidia.com/mig-1g.10gb": 7, "nvidia.com/gpu.shared": 4,
			})}},
		},
		"inventory of one node does not stop inference on another": {
			in:   Input{Hosts: []gpu.Host{host("a", 0x26b9)}, Nodes: []gpu.Node{node("a", served{"nvidia.com/AD102GL_L40S": 1}), node("b", served{h200: 8})}},
			want: []string{"10DE:2335 " + h200, "10DE:26B9 nvidia.com/AD102GL_L40S"},
		},
		"inventory of a node that was not given": {
			in:   Input{Hosts: []gpu.Host{host("b", 0x2335)}, Nodes: []gpu.Node{node("a", nil)}},
			want: []string{"10DE:2335 " + h200}, code: "GPU0217",
		},
		"permit silences a prediction": {
			in:   Input{Hosts: []gpu.Host{host("a", 0x2335)}, Permits: []Permit{{ID: gpu.NVIDIA(0x2335), Name: "nvidia.com/MINE"}}},
			want: []string{"10DE:2335 nvidia.com/MINE"},
		},
		"permit does not silence what a node serves": {
			in: Input{
				Hosts: []gpu.Host{host("a", 0x2335)}, Nodes: []gpu.Node{node("a", served{h200: 1})},
				Permits: []Permit{{ID: gpu.NVIDIA(0x2335), Name: "nvidia.com/MINE"}},
			},
			want: []string{"10DE:2335 " + h200, "10DE:2335 nvidia.com/MINE"},
		},
		"permit of a container resource is refused": {
			in: Input{Permits: []Permit{{ID: gpu.NVIDIA(0x2335), Name: "nvidia.com/gpu"}}}, stop: "GPU0322",
		},
		"permit of a name that kubelet refuses is refused": {
			in: Input{Permits: []Permit{{ID: gpu.NVIDIA(0x24fa), Name: "nvidia.com/X_"}}}, stop: "GPU0322",
		},
		"prediction does not compete with an in-tree entry": {
			cr: table(tableFmt, `{pciVendorSelector: "10de:2335", resourceName: example.com/h200}`),
			in: Input{Hosts: []gpu.Host{host("a", 0x2335)}}, code: "GPU0403",
		},
		"served name is added beside an in-tree entry": {
			cr:   table(tableFmt, `{pciVendorSelector: "10de:2335", resourceName: example.com/h200}`),
			in:   Input{Hosts: []gpu.Host{host("a", 0x2335)}, Nodes: []gpu.Node{node("a", served{h200: 1})}},
			want: []string{"10DE:2335 " + h200}, code: "GPU0308",
		},
		"prediction is added beside an external entry of another name": {
			cr:   table(tableFmt, `{pciVendorSelector: "10de:2335", resourceName: example.com/h200, externalResourceProvider: true}`),
			in:   Input{Hosts: []gpu.Host{host("a", 0x2335)}},
			want: []string{"10DE:2335 " + h200},
		},
		"first entry stops for a VM whose name a node serves": {
			in:   Input{Nodes: []gpu.Node{node("a", served{h200: 8, "intel.com/qat": 1})}, Workloads: []gpu.Workload{vm("intel.com/qat")}},
			stop: "GPU0319",
		},
		"first entry stops for a running instance": {
			in: Input{Nodes: []gpu.Node{node("a", served{h200: 8})}, Workloads: []gpu.Workload{{
				Kind: "VirtualMachineInstance", Namespace: "t", Name: "i", Running: true, Devices: []gpu.Device{{Field: "gpus", Name: "x.com/y"}},
			}}},
			stop: "GPU0319",
		},
		"first entry goes on for a VM whose name nobody serves": {
			in:   Input{Nodes: []gpu.Node{node("a", served{h200: 8})}, Workloads: []gpu.Workload{vm("intel.com/qat")}},
			want: []string{"10DE:2335 " + h200}, code: "GPU0501",
		},
		"first entry goes on for a VM that asks for what is wired": {
			in:   Input{Nodes: []gpu.Node{node("a", served{h200: 8})}, Workloads: []gpu.Workload{vm(h200)}},
			want: []string{"10DE:2335 " + h200},
		},
		"first entry goes on when the name is permitted too": {
			in: Input{
				Nodes: []gpu.Node{node("a", served{h200: 8, "intel.com/qat": 1})}, Workloads: []gpu.Workload{vm("intel.com/qat")},
				Permits: []Permit{{ID: gpu.ID{Vendor: 0x8086, Device: 0x6f54}, Name: "intel.com/qat"}},
			},
			want: []string{"10DE:2335 " + h200, "8086:6F54 intel.com/qat"},
		},
		"vGPU name is permitted by its profile": {
			in: Input{
				Nodes: []gpu.Node{node("a", served{h200: 8, "nvidia.com/GRID_T4-16Q": 1})}, Workloads: []gpu.Workload{vm("nvidia.com/GRID_T4-16Q")},
				Permits: []Permit{{Mdev: "GRID T4-16Q", Name: "nvidia.com/GRID_T4-16Q"}},
			},
			want: []string{"10DE:2335 " + h200, "GRID T4-16Q nvidia.com/GRID_T4-16Q"},
		},
		"an empty table enforces already": {
			cr:   table(tableFmt),
			in:   Input{Nodes: []gpu.Node{node("a", served{h200: 8, "intel.com/qat": 1})}, Workloads: []gpu.Workload{vm("intel.com/qat")}},
			want: []string{"10DE:2335 " + h200}, code: "GPU0504",
		},
		"the gate alone is no first entry": {
			cr:   "apiVersion: kubevirt.io/v1\nkind: KubeVirt\nmetadata: {name: k}\n",
			in:   Input{Nodes: []gpu.Node{node("a", served{"intel.com/qat": 1})}, Workloads: []gpu.Workload{vm("intel.com/qat")}},
			want: []string{"gate"},
		},
		"HyperConverged needs no gate": {
			cr: table(hcoFmt), in: Input{Nodes: []gpu.Node{node("a", served{h200: 8})}}, want: []string{"10DE:2335 " + h200},
		},
		"HyperConverged holds the selector under another name": {
			cr: table(hcoFmt, `{pciDeviceSelector: "10DE:2335", resourceName: nvidia.com/GH100_H200}`),
			in: Input{Nodes: []gpu.Node{node("a", served{h200: 8})}}, stop: "GPU0317",
		},
		"HyperConverged cannot take two served names": {
			cr: table(hcoFmt), in: Input{Nodes: []gpu.Node{node("a", served{h200: 8}), node("b", served{"nvidia.com/2335": 8})}}, stop: "GPU0329",
		},
		"HyperConverged prefers what is served to what is predicted": {
			cr:   table(hcoFmt),
			in:   Input{Hosts: []gpu.Host{host("b", 0x2335)}, Nodes: []gpu.Node{node("a", served{"nvidia.com/2335": 8})}},
			want: []string{"10DE:2335 nvidia.com/2335"},
		},
		"HyperConverged entry that was disabled stays so": {
			cr: table(hcoFmt, `{pciDeviceSelector: "10DE:2335", resourceName: "`+h200+`", disabled: true}`),
			in: Input{Nodes: []gpu.Node{node("a", served{h200: 8})}}, code: "GPU0318",
		},
		"a network device's name is not matched by count": {
			in:   Input{Hosts: []gpu.Host{host("a", 0x1eb8)}, Nodes: []gpu.Node{node("a", served{"nvidia.com/hostdev": 1})}},
			code: "GPU0404",
		},
		"a time-sliced GPU's name is not matched by count": {
			in:   Input{Hosts: []gpu.Host{host("a", 0x1eb8)}, Nodes: []gpu.Node{node("a", served{"nvidia.com/Tesla-T4.shared": 1})}},
			code: "GPU0404",
		},
		"no inventory, names of network devices and of no device": {
			in: Input{Nodes: []gpu.Node{node("a", served{"nvidia.com/hostdev": 1, "nvidia.com/rdma_shared_device_a": 1})}},
		},
		"no inventory, ids that no device has": {
			in: Input{Nodes: []gpu.Node{node("a", served{"nvidia.com/ffff": 1, "nvidia.com/0000": 1})}},
		},
		"a name that the table gives another id is not matched by count": {
			cr:   table(tableFmt, `{pciVendorSelector: "10DE:26B9", resourceName: nvidia.com/L40S_VF}`),
			in:   Input{Hosts: []gpu.Host{host("a", 0x1eb8)}, Nodes: []gpu.Node{node("a", served{"nvidia.com/L40S_VF": 1})}},
			code: "GPU0404",
		},
		"a name that the table gives this id is matched": {
			cr: table(tableFmt, `{pciVendorSelector: "10DE:1EB8", resourceName: nvidia.com/MINE}`),
			in: Input{Hosts: []gpu.Host{host("a", 0x1eb8)}, Nodes: []gpu.Node{node("a", served{"nvidia.com/MINE": 1})}}, code: "GPU0402",
		},
		"a name that is one id's is not given to another that had it in an old release": {
			in:   Input{Hosts: []gpu.Host{host("a", 0x2336, 0x2339)}, Nodes: []gpu.Node{node("a", served{"nvidia.com/GH100_H100": 1})}},
			want: []string{"10DE:2336 nvidia.com/GH100_H100"}, code: "GPU0404",
		},
		"the plugin seen on the node tells which id a name is": {
			in: Input{Nodes: []gpu.Node{{
				Name: "a", Plugin: gpu.Newest(), Allocatable: served{"nvidia.com/GH100_H100": 1},
			}}},
			want: []string{"10DE:2336 nvidia.com/GH100_H100"},
		},
		"a served name that Kubernetes refuses is not written": {
			in: Input{Nodes: []gpu.Node{node("a", served{"nvidia.com/GA104_RTX_A4500_EMBEDDED_GPU_": 1})}},
		},
		"cards that are gone and still offered": {
			in:   Input{Hosts: []gpu.Host{{Node: "a"}}, Nodes: []gpu.Node{node("a", served{"nvidia.com/TU104GL_TESLA_T4": 2})}},
			code: "GPU0410",
		},
		"unhealthy devices are not stale names": {
			in: Input{Nodes: []gpu.Node{{
				Name: "a", Capacity: served{h200: 8}, Allocatable: served{h200: 0},
			}}},
			code: "GPU0414",
		},
		"a bare id with letters from an old plugin": {
			in:   Input{Nodes: []gpu.Node{node("a", served{"nvidia.com/20b0": 1})}},
			want: []string{"10DE:20B0 nvidia.com/20b0"}, code: "GPU0415",
		},
		"no VM was given": {
			in: Input{Nodes: []gpu.Node{node("a", served{h200: 8})}}, want: []string{"10DE:2335 " + h200}, code: "GPU0328",
		},
		"a name that gpuctl never permits stops nothing": {
			in: Input{Nodes: []gpu.Node{node("a", served{h200: 8})}, Workloads: []gpu.Workload{{
				Kind: "VirtualMachineInstance", Namespace: "t", Name: "i", Running: true, Devices: []gpu.Device{{Field: "gpus", Name: "nvidia.com/gpu"}},
			}}},
			want: []string{"10DE:2335 " + h200}, code: "GPU0503",
		},
		"an inventory without NODE= beside several Nodes": {
			in:   Input{Hosts: []gpu.Host{host("", 0x2335)}, Nodes: []gpu.Node{node("a", nil), node("b", nil)}},
			want: []string{"10DE:2335 " + h200}, code: "GPU0217",
		},
		"Grace's gate is missing": {
			in: Input{Nodes: []gpu.Node{node("a", served{"nvidia.com/GB100_HGX_GB200": 4})}}, want: []string{"10DE:2941 nvidia.com/GB100_HGX_GB200"}, code: "GPU0211",
		},
		"HyperConverged's list of mediated devices is keyed too": {
			cr: "apiVersion: hco.kubevirt.io/v1\nkind: HyperConverged\nmetadata: {name: hco}\n" +
				"spec: {virtualization: {permittedHostDevices: {mediatedDevices: [{mdevNameSelector: GRID T4-16Q, resourceName: nvidia.com/OTHER}]}}}\n",
			in: Input{Permits: []Permit{{Mdev: "GRID T4-16Q", Name: "nvidia.com/GRID_T4-16Q"}}}, stop: "GPU0317",
		},
		"HyperConverged entry that was disabled, and a prediction": {
			cr: table(hcoFmt, `{pciDeviceSelector: "10DE:2335", resourceName: nvidia.com/GH100_H200, disabled: true}`),
			in: Input{Hosts: []gpu.Host{host("a", 0x2335)}}, code: "GPU0318",
		},
		"KubeVirt knows no disabled entries": {
			cr: table(tableFmt, `{pciVendorSelector: "10DE:2335", resourceName: "`+h200+`", externalResourceProvider: true, disabled: true}`),
			in: Input{Nodes: []gpu.Node{node("a", served{h200: 8})}}, code: "GPU0330",
		},
		"a flag that is text": {
			cr: table(tableFmt, `{pciVendorSelector: "10DE:2335", resourceName: "`+h200+`", externalResourceProvider: "true"}`),
			in: Input{Nodes: []gpu.Node{node("a", served{h200: 8})}}, code: "GPU0330",
		},
		"a mediated device both in-tree and external": {
			cr: "apiVersion: kubevirt.io/v1\nkind: KubeVirt\nmetadata: {name: k}\nspec: {configuration: {developerConfiguration: {featureGates: [HostDevices]}, permittedHostDevices: {mediatedDevices: [" +
				"{mdevNameSelector: GRID T4-16Q, resourceName: nvidia.com/A}, {mdevNameSelector: GRID T4-16Q, resourceName: nvidia.com/B, externalResourceProvider: true}]}}}\n",
			code: "GPU0308",
		},
		"a record that cannot be read starts anew": {
			cr:   strings.Replace(emptyCR, "namespace: kubevirt", `namespace: kubevirt, annotations: {gpuctl.dev/wired: "{"}`, 1),
			in:   Input{Nodes: []gpu.Node{node("a", served{h200: 8})}},
			want: []string{"10DE:2335 " + h200}, code: "GPU0332",
		},
		"list of another shape is refused": {
			cr: "apiVersion: kubevirt.io/v1\nkind: KubeVirt\nmetadata: {name: k}\nspec: {configuration: {permittedHostDevices: {pciHostDevices: {a: b}}}}\n", stop: "GPU0321",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if tc.cr == "" {
				tc.cr = emptyCR
			}
			tc.in.Target = target(t, tc.cr)
			result, err := Plan(tc.in)
			var refusal *Refusal
			if errors.As(err, &refusal) {
				result.Findings = refusal.Findings
			} else if err != nil {
				t.Fatal(err)
			}
			var codes []string
			for _, f := range result.Findings {
				codes = append(codes, string(f.Code))
			}
			for _, want := range []string{tc.code, tc.stop} {
				if want != "" && !strings.Contains(strings.Join(codes, " "), want) {
					t.Errorf("findings %v, want %s", codes, want)
				}
			}
			if (refusal != nil) != (tc.stop != "") {
				t.Errorf("refused: %v, want %q", refusal, tc.stop)
			}
			if diff := cmp.Diff(tc.want, added(result)); diff != "" {
				t.Errorf("added (-want +got):\n%s", diff)
			}
		})
	}
}

func added(r Result) []string {
	var out []string
	for _, c := range r.Changes {
		switch v := c.Value.(type) {
		case string:
			out = append(out, "gate")
		case manifest.Object:
			for _, key := range []string{"pciVendorSelector", "pciDeviceSelector", "mdevNameSelector"} {
				if s, ok := v[key].(string); ok {
					out = append(out, s+" "+v["resourceName"].(string))
				}
			}
		}
	}
	return out
}
