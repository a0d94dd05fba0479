package gpu

import (
	"cmp"
	"slices"
)

// Host is the PCI inventory of one machine. Functions of every vendor are in
// it, because any of them can block an IOMMU group.
type Host struct {
	Node      string // the Kubernetes node, "" when the host is not tied to one
	Functions []Function
	Mdevs     []Mdev
	// IOMMUFD says whether /dev/iommu exists: from v1.4.0 the device plugin
	// then hands out vfio device nodes instead of groups.
	IOMMUFD Presence
	// IOMMU says whether the kernel drives any IOMMU at all (/sys/class/iommu).
	// Without one no function has a group, whatever its driver.
	IOMMU Presence
}

// Sort puts functions and mediated devices into their canonical order.
func (h *Host) Sort() {
	slices.SortFunc(h.Functions, func(a, b Function) int { return a.Address.Compare(b.Address) })
	slices.SortFunc(h.Mdevs, func(a, b Mdev) int { return cmp.Compare(a.UUID, b.UUID) })
}

// GPUs returns the physical NVIDIA GPUs, in address order.
func (h *Host) GPUs() []*Function {
	var out []*Function
	for i := range h.Functions {
		if h.Functions[i].IsGPU() {
			out = append(out, &h.Functions[i])
		}
	}
	return out
}

// Groups returns the functions of every numbered IOMMU group, by number.
func (h *Host) Groups() map[int][]*Function {
	out := map[int][]*Function{}
	for i := range h.Functions {
		if id, ok := h.Functions[i].Group.ID(); ok {
			out[id] = append(out[id], &h.Functions[i])
		}
	}
	return out
}
