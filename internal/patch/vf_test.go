package patch

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

func TestVirtualFunctions(t *testing.T) {
	const vf = "10DE:26B9 " + l40s24 + " in-tree"
	one := []gpu.Host{vfHost("a", "1155", "1155")}
	cards := func(h gpu.Host) []gpu.Host { return append([]gpu.Host{h}, one...) }
	runVGPU(t, map[string]vgpuCase{
		"KubeVirt 1.9":                      {cr: pciCR("v1.9.0"), in: Input{Hosts: one}, want: []string{vf}},
		"a pre-release of 1.9":              {cr: pciCR("v1.9.0-beta.0"), in: Input{Hosts: one}, want: []string{vf}},
		"KubeVirt 1.8":                      {cr: pciCR("v1.8.4"), in: Input{Hosts: one}, codes: []string{"GPU0337"}},
		"a version that tells nothing":      {cr: pciCR("devel"), in: Input{Hosts: one}, codes: []string{"GPU0337"}},
		"a KubeVirt that says no version":   {in: Input{Hosts: one}, codes: []string{"GPU0337"}},
		"no type is set":                    {cr: pciCR("v1.9.0"), in: Input{Hosts: []gpu.Host{vfHost("a")}}},
		"the functions are in no group":     {cr: pciCR("v1.9.0"), in: Input{Hosts: []gpu.Host{on(vfHost("a", "1155"), func(f *gpu.Function) { f.Group = gpu.NoGroup() })}}},
		"functions that lost their driver":  {cr: pciCR("v1.9.0"), in: Input{Hosts: []gpu.Host{on(vfHost("a", "1155"), func(f *gpu.Function) { f.Driver = "" })}}},
		"the card itself is no function":    {cr: pciCR("v1.9.0"), in: Input{Hosts: []gpu.Host{on(vfHost("a"), func(f *gpu.Function) { f.CurrentVGPU = map[bool]string{false: "1155"}[f.VF] })}}},
		"two types on functions of one id":  {cr: pciCR("v1.9.0"), in: Input{Hosts: []gpu.Host{vfHost("a", "1155", "1150")}}, codes: []string{"GPU0338"}},
		"two types on two nodes":            {cr: pciCR("v1.9.0"), in: Input{Hosts: cards(vfHost("b", "1150"))}, codes: []string{"GPU0338"}},
		"the same type on two nodes":        {cr: pciCR("v1.9.0"), in: Input{Hosts: cards(vfHost("b", "1155"))}, want: []string{vf}},
		"another node keeps its card":       {cr: pciCR("v1.9.0"), in: Input{Hosts: cards(on(host("b", 0x26b9), func(f *gpu.Function) { f.Driver = "nvidia" }))}, want: []string{vf}},
		"passthrough of another id is safe": {cr: pciCR("v1.9.0"), in: Input{Hosts: cards(host("b", 0x2335))}, want: []string{"10DE:2335 " + h200 + " external", vf}, codes: []string{"GPU0401"}},
		"passthrough of the id elsewhere": {
			cr: pciCR("v1.9.0"), in: Input{Hosts: cards(host("b", 0x26b9)), Nodes: []gpu.Node{node("b", served{"nvidia.com/AD102GL_L40S": 1})}},
			want: []string{"10DE:26B9 nvidia.com/AD102GL_L40S external"}, codes: []string{"GPU0338"},
		},
		"passthrough of the id elsewhere, without an inventory": {
			cr: pciCR("v1.9.0"), in: Input{Hosts: one, Nodes: []gpu.Node{node("b", served{"nvidia.com/AD102GL_L40S": 1})}},
			want: []string{"10DE:26B9 nvidia.com/AD102GL_L40S external"}, codes: []string{"GPU0338"},
		},
		"passthrough of the id elsewhere, by a name that two ids share": {
			cr: pciCR("v1.9.0"), codes: []string{"GPU0338"},
			in: Input{
				Hosts: []gpu.Host{on(vfHost("a", "1155"), func(f *gpu.Function) { f.ID = gpu.NVIDIA(0x20b1) })},
				Nodes: []gpu.Node{node("b", served{"nvidia.com/GA100_A100_PCIE_40GB": 1})},
			},
		},
		"a card on vfio whose name cannot be told": {
			cr: pciCR("v1.9.0"), in: Input{Hosts: cards(host("b", 0x26b9)), Nodes: []gpu.Node{node("b", served{"nvidia.com/gpu": 1})}}, codes: []string{"GPU0338"},
		},
		"a card of unknown driver": {
			cr: pciCR("v1.9.0"), in: Input{Hosts: cards(on(host("b", 0x26b9), func(f *gpu.Function) { f.Driver, f.DriverUnknown = "", true }))}, codes: []string{"GPU0338"},
		},
		"a virtual function on vfio": {
			cr: pciCR("v1.9.0"), in: Input{Hosts: cards(on(host("b", 0x26b9), func(f *gpu.Function) { f.VF = true }))}, codes: []string{"GPU0338"},
		},
		"permitted for whole cards of old": {
			cr: pciCR("v1.9.0", `{pciVendorSelector: "10de:26b9", resourceName: nvidia.com/AD102GL_L40S, externalResourceProvider: true}`), in: Input{Hosts: one}, codes: []string{"GPU0338"},
		},
		"which --permit overrules": {
			cr: pciCR("v1.9.0", `{pciVendorSelector: "10de:26b9", resourceName: nvidia.com/AD102GL_L40S, externalResourceProvider: true}`),
			in: Input{Hosts: one, Permits: []Permit{{ID: gpu.NVIDIA(0x26b9), Name: l40s24}}}, want: []string{vf}, codes: []string{"GPU0308"},
		},
		"listed in-tree under a name of one's own": {
			cr: pciCR("v1.9.0", `{pciVendorSelector: "10de:26b9", resourceName: nvidia.com/L40S-24Q}`), in: Input{Hosts: one, Nodes: []gpu.Node{node("a", served{"nvidia.com/L40S-24Q": 2})}},
		},
		"listed in-tree, and KubeVirt is too old": {
			cr: pciCR("v1.8.4", `{pciVendorSelector: "10de:26b9", resourceName: nvidia.com/L40S-24Q}`), in: Input{Hosts: one}, codes: []string{"GPU0337"},
		},
		"listed in-tree, and KubeVirt says no version": {
			cr: table(tableFmt, `{pciVendorSelector: "10de:26b9", resourceName: nvidia.com/L40S-24Q}`), in: Input{Hosts: one},
		},
		"the whole card is named by hand": {
			cr: pciCR("v1.9.0"), in: Input{Hosts: one, Permits: []Permit{{ID: gpu.NVIDIA(0x26b9), Name: "nvidia.com/AD102GL_L40S"}}},
			want: []string{"10DE:26B9 nvidia.com/AD102GL_L40S external"}, codes: []string{"GPU0338"},
		},
		"two names by hand: the first is served": {
			cr: pciCR("v1.9.0"), in: Input{Hosts: one, Permits: []Permit{{ID: gpu.NVIDIA(0x26b9), Name: "nvidia.com/A-1Q"}, {ID: gpu.NVIDIA(0x26b9), Name: "nvidia.com/B-1Q"}}},
			want: []string{"10DE:26B9 nvidia.com/A-1Q in-tree", "10DE:26B9 nvidia.com/B-1Q external"}, codes: []string{"GPU0308"},
		},
		"listed in-tree, and a whole card is served": {
			cr:   pciCR("v1.9.0", `{pciVendorSelector: "10de:26b9", resourceName: nvidia.com/L40S-24Q}`),
			in:   Input{Hosts: cards(host("b", 0x26b9)), Nodes: []gpu.Node{node("b", served{"nvidia.com/AD102GL_L40S": 1})}},
			want: []string{"10DE:26B9 nvidia.com/AD102GL_L40S external"}, codes: []string{"GPU0308"},
		},
		"listed in-tree, and a second type came": {
			cr: pciCR("v1.9.0", `{pciVendorSelector: "10de:26b9", resourceName: `+l40s24+`}`), in: Input{Hosts: cards(vfHost("b", "1150"))}, codes: []string{"GPU0338"},
		},
		"served, and no in-tree entry accounts for it": {
			cr: pciCR("v1.9.0"), in: Input{Hosts: one, Nodes: []gpu.Node{node("a", served{l40s24: 2})}}, codes: []string{"GPU0335"},
		},
		"served by a plugin that somebody knows": {
			cr: pciCR("v1.9.0"), in: Input{Hosts: one, Nodes: []gpu.Node{node("a", served{l40s24: 2})}, Permits: []Permit{{ID: gpu.NVIDIA(0x26b9), Name: l40s24}}},
			want: []string{"10DE:26B9 " + l40s24 + " external"},
		},
		"a type of unknown name": {cr: pciCR("v1.9.0"), in: Input{Hosts: []gpu.Host{vfHost("a", "9999")}}, codes: []string{"GPU0339"}},
		"a type of unknown name that is named by hand": {
			cr: pciCR("v1.9.0"), in: Input{Hosts: []gpu.Host{vfHost("a", "9999")}, Permits: []Permit{{ID: gpu.NVIDIA(0x26b9), Name: "nvidia.com/L40S-24Q"}}},
			want: []string{"10DE:26B9 nvidia.com/L40S-24Q in-tree"},
		},
		"the name is known on another host": {
			cr: pciCR("v1.9.0"), in: Input{Hosts: []gpu.Host{on(vfHost("a", "1155"), func(f *gpu.Function) { f.VGPUTypes = nil }), vfHost("b")}}, want: []string{vf},
		},
		"HyperConverged says no version": {cr: table(hcoFmt), in: Input{Hosts: one}, codes: []string{"GPU0337"}},
		"HyperConverged entry that was disabled stays so": {
			cr: table(hcoFmt, `{pciDeviceSelector: "10DE:26B9", resourceName: `+l40s24+`, disabled: true}`), in: Input{Hosts: one}, codes: []string{"GPU0318"},
		},
	})
}

// TestVirtualFunctionsBehindHyperConverged takes the version from the KubeVirt CR that
// HyperConverged manages.
func TestVirtualFunctionsBehindHyperConverged(t *testing.T) {
	kubevirt := strings.Replace(pciCR("v1.9.0"), "namespace: kubevirt", "namespace: hco, labels: {app.kubernetes.io/managed-by: hco-operator}", 1)
	for _, version := range []string{"v1", "v1beta1"} {
		hco := "---\napiVersion: hco.kubevirt.io/" + version + "\nkind: HyperConverged\nmetadata: {name: hco, namespace: hco}\n"
		result, err := Plan(Input{Target: target(t, kubevirt+hco), Hosts: []gpu.Host{vfHost("a", "1155")}})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"10DE:26B9 " + l40s24 + " in-tree"}, entries(result)); diff != "" {
			t.Errorf("%s: added (-want +got):\n%s", version, diff)
		}
	}
}
