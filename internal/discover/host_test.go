package discover

import (
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/test/fakesys"
)

const (
	vga   = gpu.Class(0x030000)
	three = gpu.Class(0x030200)
	audio = gpu.Class(0x040300)
	usb   = gpu.Class(0x0c0330)
	ucsi  = gpu.Class(0x0c8000)
)

// machines are described once: the tree that fakesys builds from a description
// must be read back as the same description.
func machines() map[string]gpu.Host {
	intelNIC := gpu.ID{Vendor: 0x8086, Device: 0x1563}
	bridge := gpu.ID{Vendor: 0x8086, Device: 0x1901}
	hosts := map[string]gpu.Host{
		"one H200 ready for passthrough": {Functions: []gpu.Function{
			{
				Address: addr("0000:18:00.0"), ID: gpu.NVIDIA(0x2335), Class: three, Driver: "vfio-pci", Group: gpu.InGroup(40), NUMA: new(1),
				PowerState: "D3hot", LinkSpeed: "32.0 GT/s PCIe", LinkWidth: 16, DriverForced: "vfio-pci", VFIONode: gpu.Present,
			},
			fn("0000:19:00.0", intelNIC, 0x020000, "ixgbe", gpu.InGroup(41)),
		}, IOMMU: gpu.Present, IOMMUFD: gpu.Absent},
		"on the host driver": {Functions: []gpu.Function{
			fn("0000:18:00.0", gpu.NVIDIA(0x2335), three, "nvidia", gpu.InGroup(0)),
		}, IOMMU: gpu.Present},
		"unbound": {Functions: []gpu.Function{
			fn("0000:27:00.0", gpu.NVIDIA(0x1db4), three, "", gpu.InGroup(12)),
		}, IOMMU: gpu.Present},
		"siblings on host drivers, bridge in the group": {Functions: []gpu.Function{
			fn("0000:00:01.0", bridge, 0x060400, "pcieport", gpu.InGroup(1)),
			fn("0000:01:00.0", gpu.NVIDIA(0x1e07), vga, "vfio-pci", gpu.InGroup(1)),
			fn("0000:01:00.1", gpu.NVIDIA(0x10f7), audio, "snd_hda_intel", gpu.InGroup(1)),
			fn("0000:01:00.2", gpu.NVIDIA(0x1ad6), usb, "xhci_hcd", gpu.InGroup(1)),
			fn("0000:01:00.3", gpu.NVIDIA(0x1ad7), ucsi, "nvidia-gpu", gpu.InGroup(1)),
		}, IOMMU: gpu.Present},
		"two cards in one group": {Functions: []gpu.Function{
			fn("0000:03:00.0", gpu.NVIDIA(0x1e07), vga, "vfio-pci", gpu.InGroup(14)),
			fn("0000:04:00.0", gpu.NVIDIA(0x1e07), vga, "vfio-pci", gpu.InGroup(14)),
		}, IOMMU: gpu.Present},
		"no IOMMU": {Functions: []gpu.Function{
			fn("0009:01:00.0", gpu.NVIDIA(0x2342), three, "nvidia", gpu.NoGroup()),
		}, IOMMU: gpu.Absent},
		"GB200 on the Grace driver": {Functions: []gpu.Function{
			fn("0008:01:00.0", gpu.NVIDIA(0x2941), three, "nvgrace_gpu_vfio_pci", gpu.InGroup(9)),
		}, IOMMU: gpu.Present},
		"NVSwitches on two drivers": {Functions: []gpu.Function{
			fn("0000:05:00.0", gpu.NVIDIA(0x22a3), 0x068000, "nvidia-nvswitch", gpu.InGroup(25)),
			fn("0000:06:00.0", gpu.NVIDIA(0x22a3), 0x068000, "vfio-pci", gpu.InGroup(25)),
		}, IOMMU: gpu.Present},
		"behind a VMD controller": {Functions: []gpu.Function{
			fn("0000:18:00.0", gpu.NVIDIA(0x2335), three, "vfio-pci", gpu.InGroup(40)),
			fn("2000:01:00.0", gpu.ID{Vendor: 0x8086, Device: 0x0a54}, 0x010802, "nvme", gpu.NoGroup()),
			fn("10000:e1:00.0", gpu.ID{Vendor: 0x8086, Device: 0x0a54}, 0x010802, "nvme", gpu.NoGroup()),
		}, IOMMU: gpu.Present},
		"no NUMA node": {Functions: []gpu.Function{
			fn("0000:3b:00.0", gpu.NVIDIA(0x1eb8), three, "vfio-pci", gpu.InGroup(44)),
		}, IOMMU: gpu.Present},
		"fell off the bus": {Functions: []gpu.Function{
			{Address: addr("0000:18:00.0"), ID: gpu.NVIDIA(0x2335), Class: three, Driver: "vfio-pci", Group: gpu.InGroup(40), OffBus: true, PowerState: "D0"},
			fn("0000:19:00.0", gpu.NVIDIA(0x2335), three, "vfio-pci", gpu.InGroup(41)),
		}, IOMMU: gpu.Present},
		"group node missing": {Functions: []gpu.Function{
			{Address: addr("0000:18:00.0"), ID: gpu.NVIDIA(0x2335), Class: three, Driver: "vfio-pci", Group: gpu.InGroup(40), VFIONode: gpu.Absent},
		}, IOMMU: gpu.Present, IOMMUFD: gpu.Absent},
		"iommufd, one device node missing": {Functions: []gpu.Function{
			{Address: addr("0000:18:00.0"), ID: gpu.NVIDIA(0x2335), Class: three, Driver: "vfio-pci", Group: gpu.InGroup(40), VFIONode: gpu.Present},
			{Address: addr("0000:2a:00.0"), ID: gpu.NVIDIA(0x2335), Class: three, Driver: "vfio-pci", Group: gpu.InGroup(41), VFIONode: gpu.Absent},
		}, IOMMU: gpu.Present, IOMMUFD: gpu.Present},
	}
	maps.Copy(hosts, vgpuMachines())
	return hosts
}

func vgpuMachines() map[string]gpu.Host {
	pf, vf := addr("0000:3b:00.0"), addr("0000:3b:00.4")
	types := []gpu.MdevType{{ID: "nvidia-590", Name: "NVIDIA A10-6Q", Available: 4}, {ID: "nvidia-592", Name: "NVIDIA A10-12Q"}}
	return map[string]gpu.Host{
		"mediated devices on a VF and on a card without SR-IOV": {
			Functions: []gpu.Function{
				{Address: pf, ID: gpu.NVIDIA(0x2236), Class: three, Driver: "nvidia", Group: gpu.InGroup(44), TotalVFs: 32, NumVFs: 1, NUMA: new(0)},
				{Address: vf, ID: gpu.NVIDIA(0x2236), Class: three, Driver: "nvidia", Group: gpu.InGroup(300), VF: true, PhysFn: &pf, NUMA: new(1), MdevTypes: types},
				{
					Address: addr("0000:af:00.0"), ID: gpu.NVIDIA(0x1eb8), Class: three, Driver: "nvidia", Group: gpu.InGroup(77),
					MdevTypes: []gpu.MdevType{{ID: "nvidia-234", Name: "GRID T4-16Q", Available: 1}},
				},
			},
			Mdevs: []gpu.Mdev{
				{UUID: "0a6b4c1e-0000-4000-8000-000000000001", TypeID: "nvidia-592", TypeName: "NVIDIA A10-12Q", Parent: vf, Group: gpu.InGroup(400), NUMA: new(1)},
				{UUID: "0a6b4c1e-0000-4000-8000-000000000003", TypeID: "nvidia-234", TypeName: "GRID T4-16Q", Parent: addr("0000:af:00.0"), Group: gpu.NoGroup()},
			},
			IOMMU: gpu.Present,
		},
		"vendor VFIO": {Functions: []gpu.Function{
			{Address: addr("0000:41:00.0"), ID: gpu.NVIDIA(0x26b9), Class: three, Driver: "nvidia", Group: gpu.InGroup(44), TotalVFs: 32, NumVFs: 2},
			{
				Address: addr("0000:41:00.4"), ID: gpu.NVIDIA(0x26b9), Class: three, Driver: "nvidia", Group: gpu.InGroup(60), VF: true, PhysFn: new(addr("0000:41:00.0")),
				VGPUTypes: []gpu.VGPUType{{ID: 1147, Name: "NVIDIA L40S-1Q"}, {ID: 1159, Name: "NVIDIA L40S-48Q"}},
			},
			{
				Address: addr("0000:41:00.5"), ID: gpu.NVIDIA(0x26b9), Class: three, Driver: "nvidia", Group: gpu.InGroup(61), VF: true, PhysFn: new(addr("0000:41:00.0")),
				CurrentVGPU: "1148",
			},
		}, IOMMU: gpu.Present},
		"VF bound to vfio-pci": {Functions: []gpu.Function{
			{Address: pf, ID: gpu.NVIDIA(0x2236), Class: three, Driver: "nvidia", Group: gpu.InGroup(44), TotalVFs: 32, NumVFs: 1},
			{Address: vf, ID: gpu.NVIDIA(0x2236), Class: three, Driver: "vfio-pci", Group: gpu.InGroup(300), VF: true, PhysFn: &pf},
		}, IOMMU: gpu.Present},
		"a vGPU server":     fakesys.DenseVFs(2),
		"256 functions":     fakesys.Dense(256, 8),
		"nothing but a NIC": {Functions: []gpu.Function{fn("0000:01:00.0", gpu.ID{Vendor: 0x15b3, Device: 0x1021}, 0x020000, "mlx5_core", gpu.InGroup(0))}, IOMMU: gpu.Present},
	}
}

func TestHost(t *testing.T) {
	for name, want := range machines() {
		t.Run(name, func(t *testing.T) {
			got, warnings, err := Host(fakesys.New(t, want))
			if err != nil || len(warnings) > 0 {
				t.Fatalf("Host(): warnings %q, error %v", warnings, err)
			}
			if diff := cmp.Diff(asRead(want), got, compareGroups()); diff != "" {
				t.Errorf("Host() (-want +got):\n%s", diff)
			}
		})
	}
}

// asRead is what Host reports of a description: of other vendors' functions no
// more than every reader needs.
func asRead(h gpu.Host) gpu.Host {
	out := h
	out.Functions = nil
	for _, f := range h.Functions {
		if !f.IsNVIDIA() {
			f = gpu.Function{Address: f.Address, ID: f.ID, Class: f.Class, Driver: f.Driver, Group: f.Group}
		}
		out.Functions = append(out.Functions, f)
	}
	return out
}

// TestHostLayouts reads machines on which the device plugin itself was run.
func TestHostLayouts(t *testing.T) {
	files, err := filepath.Glob("testdata/layouts/*.tsv")
	if err != nil || len(files) == 0 {
		t.Fatalf("no layouts: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			m, err := fakesys.ParseLayout(string(data))
			if err != nil {
				t.Fatal(err)
			}
			got, warnings, err := Host(fakesys.New(t, m.Host, m.Omit...))
			if err != nil || len(warnings) > 0 {
				t.Fatalf("Host(): warnings %q, error %v", warnings, err)
			}
			if diff := cmp.Diff(asRead(m.Host), got, compareGroups()); diff != "" {
				t.Errorf("Host() (-want +got):\n%s", diff)
			}
		})
	}
}
