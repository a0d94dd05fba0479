package fakesys

import (
	"fmt"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// vfioNodes writes the device nodes that a VM would open. /dev/vfio exists
// when the description says anything about such nodes at all. Plain files stand
// in for character devices, which only root may make.
func (t *tree) vfioNodes(h *gpu.Host) {
	if h.IOMMUFD == gpu.Present {
		t.bytes("dev/iommu", nil)
		t.dir("sys/class/misc/iommu")
	}
	seen := h.IOMMUFD != gpu.PresenceUnknown
	for i := range h.Functions {
		f := &h.Functions[i]
		seen = seen || f.VFIONode != gpu.PresenceUnknown
		t.vfioNode(f, i, h.IOMMUFD == gpu.Present)
	}
	if seen {
		t.bytes("dev/vfio/vfio", nil)
	}
}

func (t *tree) vfioNode(f *gpu.Function, n int, iommufd bool) {
	if iommufd && f.Driver.IsVFIO() {
		t.dir(fmt.Sprintf("%s/vfio-dev/vfio%d", deviceDir(f.Address), n))
	}
	if f.VFIONode != gpu.Present {
		return
	}
	if iommufd {
		t.bytes(fmt.Sprintf("dev/vfio/devices/vfio%d", n), nil)
	}
	if id, ok := f.Group.ID(); ok {
		t.bytes(fmt.Sprintf("dev/vfio/%d", id), nil)
	}
}

// iommu writes /sys/class/iommu, with one unit as Intel's driver names it.
func (t *tree) iommu(p gpu.Presence) {
	if p == gpu.PresenceUnknown {
		return
	}
	t.dir("sys/class/iommu")
	if p == gpu.Present {
		t.dir("sys/devices/virtual/iommu/dmar0")
		t.link("sys/class/iommu/dmar0", "sys/devices/virtual/iommu/dmar0")
	}
}
