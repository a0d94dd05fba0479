package diagnose

import (
	"strconv"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// driver reports a GPU that is on no vfio driver; VMs cannot use it, whatever
// else may be wrong.
func (j *judge) driver(f *gpu.Function) (Finding, bool) {
	switch {
	case f.DriverUnknown:
		return j.about("GPU0203", f, nil), true
	case f.Driver == "":
		return j.about("GPU0202", f, nil), true
	case !f.Driver.IsVFIO():
		return j.about("GPU0201", f, Values{"driver": string(f.Driver)}), true
	}
	return Finding{}, false
}

// blocks reports a function whose driver makes its whole IOMMU group unusable:
// the rule of the kernel's vfio_dev_viable. Bridges, pci-stub and functions
// without a driver do not.
func blocks(f *gpu.Function) bool {
	return f.Driver != "" && !f.Driver.IsVFIO() && f.Driver != "pci-stub" && f.Driver != "pcieport" && !f.Class.IsBridge()
}

// blockers returns the functions that keep the GPU's group from being viable.
// Without known groups, the other functions of the card are likely ones.
func (j *judge) blockers(f *gpu.Function) []Finding {
	var out []Finding
	others := ""
	report := func(code Code, other *gpu.Function, group string) {
		out = append(out, New(code, objectOf(j.host, f), Values{
			"address": other.Address.String(), "device": j.describe(other),
			"driver": string(other.Driver), "group": group, "gpu": f.Address.String(), "others": others,
		}))
	}
	if id, ok := f.Group.ID(); ok {
		others = unbound(j.groups[id], f)
		for _, other := range j.groups[id] {
			if other != f && blocks(other) {
				report("GPU0204", other, f.Group.String())
			}
		}
		return out
	}
	if f.Group.None() {
		return nil
	}
	for i := range j.host.Functions {
		if other := &j.host.Functions[i]; other.Address != f.Address && other.Address.SameCard(f.Address) && blocks(other) {
			report("GPU0205", other, "")
		}
	}
	return out
}

// unbound names the functions of a group that are on no driver: VFIO allows them,
// and yet they belong on vfio-pci with the others.
func unbound(group []*gpu.Function, but *gpu.Function) string {
	var out []*gpu.Function
	for _, f := range group {
		if f != but && f.Driver == "" && !f.DriverUnknown && !f.Class.IsBridge() {
			out = append(out, f)
		}
	}
	if len(out) == 0 {
		return ""
	}
	return "; " + addresses(out) + " of the group on no driver"
}

// shared reports GPUs that sit in one group.
func (j *judge) shared(f *gpu.Function) (Finding, bool) {
	id, ok := f.Group.ID()
	if !ok {
		return Finding{}, false
	}
	var cards []*gpu.Function
	for _, other := range j.groups[id] {
		if other.IsGPU() {
			cards = append(cards, other)
		}
	}
	if len(cards) < 2 {
		return Finding{}, false
	}
	return New("GPU0207", nodeObject(j.host.Node), Values{
		"group": f.Group.String(), "count": strconv.Itoa(len(cards)), "addresses": addresses(cards),
	}), true
}
