package cluster

import (
	"fmt"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/internal/manifest"
)

// maxWarnings is how many warnings a GPUNode holds.
const maxWarnings = 64

// InventoryOf returns what a GPUNode says of a host: NVIDIA's functions, and those
// that share an IOMMU group with one. What changes without anybody's doing (power
// state, link speed) is left out: it would be written again and again.
func InventoryOf(h *gpu.Host, version string, warnings []string) v1alpha1.GPUNodeSpec {
	spec := v1alpha1.GPUNodeSpec{
		AgentVersion: version, IOMMU: truth(h.IOMMU), IOMMUFD: truth(h.IOMMUFD),
		Warnings: append([]string(nil), warnings[:min(len(warnings), maxWarnings)]...),
	}
	near := groupsOfNVIDIA(h)
	for i := range h.Functions {
		f := &h.Functions[i]
		if id, ok := f.Group.ID(); !f.IsNVIDIA() && (!ok || !near[id]) {
			continue
		}
		spec.Functions = append(spec.Functions, function(f))
		if f.IsGPU() {
			spec.GPUs++
			if f.Driver.IsVFIO() {
				spec.OnVFIO++
			}
		}
	}
	for _, m := range h.Mdevs {
		spec.Mdevs = append(spec.Mdevs, v1alpha1.Mdev{
			UUID: m.UUID, TypeID: m.TypeID, TypeName: m.TypeName, Parent: m.Parent.String(),
			IOMMUGroup: groupText(m.Group), NUMANode: numaOut(m.NUMA),
		})
	}
	return spec
}

func groupsOfNVIDIA(h *gpu.Host) map[int]bool {
	near := map[int]bool{}
	for i := range h.Functions {
		if id, ok := h.Functions[i].Group.ID(); ok && h.Functions[i].IsNVIDIA() {
			near[id] = true
		}
	}
	return near
}

func function(f *gpu.Function) v1alpha1.Function {
	out := v1alpha1.Function{
		Address: f.Address.String(), ID: f.ID.String(), Class: f.Class.String(),
		Driver: string(f.Driver), DriverOverride: f.DriverForced, IOMMUGroup: groupText(f.Group), NUMANode: numaOut(f.NUMA),
		TotalVFs: int32(f.TotalVFs), NumVFs: int32(f.NumVFs), CurrentVGPU: f.CurrentVGPU, OffBus: f.OffBus,
	}
	if f.IsNVIDIA() {
		out.Role = string(f.Role())
	}
	if f.PhysFn != nil {
		out.PhysFn = f.PhysFn.String()
	}
	for _, t := range f.MdevTypes {
		out.MdevTypes = append(out.MdevTypes, v1alpha1.MdevType{ID: t.ID, Name: t.Name, Available: int32(t.Available)})
	}
	for _, t := range f.VGPUTypes {
		out.VGPUTypes = append(out.VGPUTypes, v1alpha1.VGPUType{ID: int32(t.ID), Name: t.Name})
	}
	return out
}

// HostOf returns the host that a GPUNode of the given name describes. An error
// names the field that cannot be understood.
func HostOf(name string, spec *v1alpha1.GPUNodeSpec) (gpu.Host, error) {
	h := gpu.Host{Node: name, IOMMU: presenceOf(spec.IOMMU), IOMMUFD: presenceOf(spec.IOMMUFD)}
	for i := range spec.Functions {
		f, err := functionOf(&spec.Functions[i])
		if err != nil {
			return gpu.Host{}, fmt.Errorf("spec.functions[%d]: %w", i, err)
		}
		h.Functions = append(h.Functions, f)
	}
	for i, m := range spec.Mdevs {
		parent, err := gpu.ParseAddress(m.Parent)
		if err != nil {
			return gpu.Host{}, fmt.Errorf("spec.mdevs[%d].parent: %w", i, err)
		}
		group, err := parseGroup(m.IOMMUGroup)
		if err != nil {
			return gpu.Host{}, fmt.Errorf("spec.mdevs[%d].iommuGroup: %w", i, err)
		}
		h.Mdevs = append(h.Mdevs, gpu.Mdev{
			UUID: m.UUID, TypeID: m.TypeID, TypeName: m.TypeName, Parent: parent, Group: group, NUMA: numaIn(m.NUMANode),
		})
	}
	h.Sort()
	return h, nil
}

func functionOf(in *v1alpha1.Function) (f gpu.Function, err error) {
	f = gpu.Function{
		Driver: gpu.Driver(in.Driver), DriverForced: in.DriverOverride, NUMA: numaIn(in.NUMANode), VF: in.Role == string(gpu.RoleVF),
		TotalVFs: int(in.TotalVFs), NumVFs: int(in.NumVFs), CurrentVGPU: in.CurrentVGPU, OffBus: in.OffBus,
	}
	if f.Address, err = gpu.ParseAddress(in.Address); err != nil {
		return f, err
	}
	if f.ID, err = gpu.ParseID(in.ID); err != nil {
		return f, err
	}
	if f.Class, err = gpu.ParseClass(in.Class); err != nil {
		return f, err
	}
	if f.Group, err = parseGroup(in.IOMMUGroup); err != nil {
		return f, err
	}
	if in.PhysFn != "" {
		parent, err := gpu.ParseAddress(in.PhysFn)
		if err != nil {
			return f, err
		}
		f.PhysFn = &parent
	}
	for _, t := range in.MdevTypes {
		f.MdevTypes = append(f.MdevTypes, gpu.MdevType{ID: t.ID, Name: t.Name, Available: int(t.Available)})
	}
	for _, t := range in.VGPUTypes {
		f.VGPUTypes = append(f.VGPUTypes, gpu.VGPUType{ID: int(t.ID), Name: t.Name})
	}
	return f, nil
}

// readGPUNode reads the inventory that a node's agent has reported.
func readGPUNode(f *Facts, d *manifest.Document) error {
	if f.alike == nil {
		f.alike = &pool{}
	}
	h, err := f.alike.hostOf(d)
	if err == nil {
		f.Hosts = append(f.Hosts, *h)
	}
	return err
}

// hostOf reads a GPUNode. Those of which the inventories say the same share what they
// have.
func (p *pool) hostOf(d *manifest.Document) (*gpu.Host, error) {
	content := appendValue([]byte("gpu.Host"), d.Object["spec"])
	h, known := p.find(content).(gpu.Host)
	if !known {
		var err error
		if h, err = readHost(d); err != nil {
			return nil, err
		}
		h = p.value(content, h).(gpu.Host)
	}
	h.Node = d.Meta("name")
	return &h, nil
}

func readHost(d *manifest.Document) (gpu.Host, error) {
	var n v1alpha1.GPUNode
	if err := typed(d, &n); err != nil {
		return gpu.Host{}, err
	}
	return HostOf(n.Name, &n.Spec)
}

func groupText(g gpu.Group) string {
	if !g.Known() {
		return ""
	}
	return g.String()
}

func parseGroup(s string) (gpu.Group, error) {
	if s == "" {
		return gpu.Group{}, nil
	}
	return gpu.ParseGroup(s)
}

func truth(p gpu.Presence) *bool {
	if p == gpu.PresenceUnknown {
		return nil
	}
	present := p == gpu.Present
	return &present
}

func presenceOf(b *bool) gpu.Presence {
	switch {
	case b == nil:
		return gpu.PresenceUnknown
	case *b:
		return gpu.Present
	default:
		return gpu.Absent
	}
}

func numaOut(n *int) *int32 {
	if n == nil {
		return nil
	}
	v := int32(*n)
	return &v
}

func numaIn(n *int32) *int {
	if n == nil {
		return nil
	}
	v := int(*n)
	return &v
}
