package fakesys

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// mdevTypes writes the mediated device types that a parent offers, with the
// files that NVIDIA's driver gives each.
func (t *tree) mdevTypes(dir string, f *gpu.Function) {
	for _, mt := range f.MdevTypes {
		d := dir + "/mdev_supported_types/" + mt.ID
		t.file(d+"/name", mt.Name)
		t.file(d+"/available_instances", strconv.Itoa(mt.Available))
		t.file(d+"/device_api", "vfio-pci")
		t.file(d+"/description", "num_heads=4, frl_config=60, framebuffer=12288M, max_resolution=7680x4320, max_instance=2")
		t.dir(d + "/devices")
	}
}

// vgpu writes what NVIDIA's vendor VFIO framework shows on a VF.
func (t *tree) vgpu(dir string, f *gpu.Function) {
	if f.VGPUTypes == nil && f.CurrentVGPU == "" {
		return
	}
	var b strings.Builder
	b.WriteString("ID    : vGPU Name\n")
	for _, vt := range f.VGPUTypes {
		fmt.Fprintf(&b, "%-5d : %s\n", vt.ID, vt.Name)
	}
	t.bytes(dir+"/nvidia/creatable_vgpu_types", []byte(b.String()))
	t.file(dir+"/nvidia/current_vgpu_type", orElse(f.CurrentVGPU, "0"))
}

// mdevs writes the mediated devices, each in its parent's directory.
func (t *tree) mdevs(mdevs []gpu.Mdev) {
	for _, m := range mdevs {
		parent := deviceDir(m.Parent)
		dir := parent + "/" + m.UUID
		typeDir := parent + "/mdev_supported_types/" + m.TypeID
		t.dir(dir)
		t.dir(typeDir)
		t.link(dir+"/mdev_type", typeDir)
		t.link(typeDir+"/devices/"+m.UUID, dir)
		t.link("sys/bus/mdev/devices/"+m.UUID, dir)
		t.dir("sys/bus/mdev/drivers/nvidia-vgpu-vfio")
		t.link(dir+"/driver", "sys/bus/mdev/drivers/nvidia-vgpu-vfio")
		if id, ok := m.Group.ID(); ok {
			group := fmt.Sprintf("sys/kernel/iommu_groups/%d", id)
			t.link(dir+"/iommu_group", group)
			t.link(group+"/devices/"+m.UUID, dir)
		}
	}
}
