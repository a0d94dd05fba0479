package cluster

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/internal/gpu"
)

// A GPUNode says of a host all that wiring depends on, also by way of JSON.
func TestInventoryRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := drawHost(t)
		spec := InventoryOf(&h, "v1", nil)
		text, err := json.Marshal(spec)
		if err != nil {
			t.Fatal(err)
		}
		var again v1alpha1.GPUNodeSpec
		if err := json.Unmarshal(text, &again); err != nil {
			t.Fatal(err)
		}
		got, err := HostOf(h.Node, &again)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(reported(h), got, cmp.AllowUnexported(gpu.Group{})); diff != "" {
			t.Errorf("host (-want +got):\n%s", diff)
		}
	})
}

// reported is what of a host is reported.
func reported(h gpu.Host) gpu.Host {
	near := map[string]bool{}
	for _, f := range h.Functions {
		if _, numbered := f.Group.ID(); numbered && f.IsNVIDIA() {
			near[f.Group.String()] = true
		}
	}
	var functions []gpu.Function
	for _, f := range h.Functions {
		f.PowerState, f.LinkSpeed, f.LinkWidth = "", "", 0
		f.Class &^= 0xff
		if f.IsNVIDIA() || near[f.Group.String()] {
			functions = append(functions, f)
		}
	}
	h.Functions = functions
	h.Sort()
	return h
}

func drawHost(t *rapid.T) gpu.Host {
	presence := rapid.SampledFrom([]gpu.Presence{gpu.PresenceUnknown, gpu.Present, gpu.Absent})
	h := gpu.Host{Node: "n", IOMMU: presence.Draw(t, "iommu"), IOMMUFD: presence.Draw(t, "iommufd")}
	for i := range rapid.IntRange(0, 6).Draw(t, "functions") {
		h.Functions = append(h.Functions, drawFunction(t, uint8(i)))
	}
	if rapid.Bool().Draw(t, "mdev") {
		h.Mdevs = []gpu.Mdev{{UUID: "u", TypeID: "nvidia-592", TypeName: "NVIDIA A10-12Q", Parent: gpu.Address{Bus: 1}, Group: drawGroup(t), NUMA: drawNUMA(t)}}
	}
	h.Sort()
	return h
}

func drawFunction(t *rapid.T, bus uint8) gpu.Function {
	f := gpu.Function{
		Address: gpu.Address{Domain: rapid.SampledFrom([]uint32{0, 0x10000}).Draw(t, "domain"), Bus: bus},
		ID:      rapid.SampledFrom([]gpu.ID{gpu.NVIDIA(0x2335), gpu.NVIDIA(0x22a3), {Vendor: 0x8086, Device: 0x1572}}).Draw(t, "id"),
		Class:   rapid.SampledFrom([]gpu.Class{0x030200, 0x030000, 0x068000, 0x040300, 0x020002}).Draw(t, "class"),
		Driver:  rapid.SampledFrom([]gpu.Driver{"", "vfio-pci", "nvidia"}).Draw(t, "driver"),
		Group:   drawGroup(t), NUMA: drawNUMA(t),
		PowerState: rapid.SampledFrom([]string{"", "D0"}).Draw(t, "power"), LinkWidth: rapid.IntRange(0, 16).Draw(t, "width"),
	}
	if !f.IsNVIDIA() {
		return f
	}
	f.OffBus, f.DriverForced = rapid.Bool().Draw(t, "off"), rapid.SampledFrom([]string{"", "vfio-pci"}).Draw(t, "forced")
	f.TotalVFs, f.NumVFs = rapid.IntRange(0, 16).Draw(t, "total"), rapid.IntRange(0, 16).Draw(t, "vfs")
	if f.VF = rapid.Bool().Draw(t, "vf"); f.VF {
		f.PhysFn, f.CurrentVGPU = &gpu.Address{Bus: 9}, "NVIDIA L40S-48Q"
		f.VGPUTypes = []gpu.VGPUType{{ID: 1155, Name: "NVIDIA L40S-48Q"}}
	} else if rapid.Bool().Draw(t, "types") {
		f.MdevTypes = []gpu.MdevType{{ID: "nvidia-592", Name: "NVIDIA A10-12Q", Available: 2}}
	}
	return f
}

func drawGroup(t *rapid.T) gpu.Group {
	return rapid.SampledFrom([]gpu.Group{{}, gpu.NoGroup(), gpu.InGroup(0), gpu.InGroup(7)}).Draw(t, "group")
}

func drawNUMA(t *rapid.T) *int {
	zero := 0
	return rapid.SampledFrom([]*int{nil, &zero}).Draw(t, "numa")
}

// What changes by itself must not make the agent write.
func TestInventoryIsQuiet(t *testing.T) {
	f := gpu.Function{ID: gpu.NVIDIA(0x2335), Class: 0x030200, PowerState: "D0", LinkSpeed: "32.0 GT/s PCIe", LinkWidth: 16}
	busy := gpu.Host{Functions: []gpu.Function{f}}
	f.PowerState, f.LinkSpeed, f.LinkWidth, f.VFIONode = "D3hot", "2.5 GT/s PCIe", 8, gpu.Present
	idle := gpu.Host{Functions: []gpu.Function{f}}
	if diff := cmp.Diff(InventoryOf(&busy, "v1", []string{}), InventoryOf(&idle, "v1", nil)); diff != "" {
		t.Errorf("inventory (-busy +idle):\n%s", diff)
	}
	many := InventoryOf(&idle, "v1", slices.Repeat([]string{"w"}, 100))
	if len(many.Warnings) != maxWarnings {
		t.Errorf("%d warnings, want %d", len(many.Warnings), maxWarnings)
	}
}

func TestGPUNodeErrorsNameTheField(t *testing.T) {
	tests := map[string]struct{ text, want string }{
		"address": {"spec: {functions: [{address: x, id: '10de:2335', class: '0302'}]}", `spec.functions[0]: parse PCI address "x"`},
		"group":   {"spec: {functions: [{address: '0000:01:00.0', id: '10de:2335', class: '0302', iommuGroup: '-1'}]}", `parse IOMMU group "-1"`},
		"parent":  {"spec: {mdevs: [{uuid: u, typeID: t, parent: x}]}", "spec.mdevs[0].parent"},
		"shape":   {"spec: []", "cannot unmarshal"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := read(t, "apiVersion: gpuctl.dev/v1alpha1\nkind: GPUNode\nmetadata: {name: a}\n"+tc.text+"\n")
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "GPUNode a") {
				t.Errorf("Read() = %v, want %q", err, tc.want)
			}
		})
	}
}
