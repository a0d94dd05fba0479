package fakesys

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// deviceDir is where a function really lives: below its root bus.
func deviceDir(a gpu.Address) string {
	return fmt.Sprintf("sys/devices/pci%04x:%02x/%s", a.Domain, a.Bus, a)
}

// function writes the directory of one function and the links that lead to it.
func (t *tree) function(h *gpu.Host, f *gpu.Function) {
	dir := deviceDir(f.Address)
	t.link("sys/bus/pci/devices/"+f.Address.String(), dir)
	t.identity(dir, h, f)
	t.driver(dir, f)
	t.group(dir, f)
	t.power(dir, f)
	t.sriov(dir, h, f)
	t.mdevTypes(dir, f)
	t.vgpu(dir, f)
}

func (t *tree) identity(dir string, h *gpu.Host, f *gpu.Function) {
	sub := subsystem(f)
	t.file(dir+"/vendor", "0x"+f.ID.Vendor.String())
	t.file(dir+"/device", "0x"+f.ID.Device.String())
	t.file(dir+"/class", fmt.Sprintf("0x%06x", uint32(f.Class)))
	t.file(dir+"/subsystem_vendor", "0x"+sub.Vendor.String())
	t.file(dir+"/subsystem_device", "0x"+sub.Device.String())
	t.file(dir+"/revision", fmt.Sprintf("0x%02x", revision))
	t.file(dir+"/modalias", modalias(f))
	t.bytes(dir+"/config", config(h, f))
	t.file(dir+"/irq", "0")
	t.bytes(dir+"/resource", []byte(strings.Repeat("0x0000000000000000 0x0000000000000000 0x0000000000000000\n", 13)))
	node := -1
	if f.NUMA != nil {
		node = *f.NUMA
	}
	t.file(dir+"/numa_node", strconv.Itoa(node))
}

func (t *tree) driver(dir string, f *gpu.Function) {
	override := "(null)"
	if f.DriverForced != "" {
		override = f.DriverForced
	}
	t.file(dir+"/driver_override", override)
	if f.Driver == "" {
		return
	}
	drv := "sys/bus/pci/drivers/" + string(f.Driver)
	t.dir(drv)
	t.link(dir+"/driver", drv)
	t.link(drv+"/"+f.Address.String(), dir)
}

func (t *tree) group(dir string, f *gpu.Function) {
	id, ok := f.Group.ID()
	if !ok {
		return
	}
	group := fmt.Sprintf("sys/kernel/iommu_groups/%d", id)
	t.file(group+"/type", "DMA")
	t.link(dir+"/iommu_group", group)
	t.link(group+"/devices/"+path.Base(dir), dir)
}

func (t *tree) power(dir string, f *gpu.Function) {
	t.file(dir+"/power_state", orElse(f.PowerState, "unknown"))
	// Only PCI Express functions have these; others lack the files.
	if f.LinkSpeed == "" && f.LinkWidth == 0 {
		return
	}
	t.file(dir+"/current_link_speed", orElse(f.LinkSpeed, "Unknown"))
	t.file(dir+"/current_link_width", strconv.Itoa(f.LinkWidth))
}

func (t *tree) sriov(dir string, h *gpu.Host, f *gpu.Function) {
	if f.TotalVFs > 0 {
		t.file(dir+"/sriov_totalvfs", strconv.Itoa(f.TotalVFs))
		t.file(dir+"/sriov_numvfs", strconv.Itoa(f.NumVFs))
	}
	if f.PhysFn == nil {
		return
	}
	pf := deviceDir(*f.PhysFn)
	t.link(dir+"/physfn", pf)
	t.link(fmt.Sprintf("%s/virtfn%d", pf, vfIndex(h, f)), dir)
}

// vfIndex counts the VFs of the same physical function before f.
func vfIndex(h *gpu.Host, f *gpu.Function) int {
	n := 0
	for _, o := range h.Functions {
		if o.PhysFn != nil && *o.PhysFn == *f.PhysFn && o.Address.Compare(f.Address) < 0 {
			n++
		}
	}
	return n
}

// isMultiFunction reports whether another function sits in the same slot.
func isMultiFunction(h *gpu.Host, f *gpu.Function) bool {
	return slices.ContainsFunc(h.Functions, func(o gpu.Function) bool {
		return o.Address != f.Address && o.Address.SameCard(f.Address)
	})
}

func orElse(s, fallback string) string {
	if s == "" {
		return fallback
	}
	return s
}
