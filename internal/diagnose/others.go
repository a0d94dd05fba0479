package diagnose

import (
	"slices"
	"strings"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// forOthers reports a node whose cards are meant to be on NVIDIA's driver: it serves
// containers, or it makes vGPUs of them.
func forOthers(n *gpu.Node, h *gpu.Host) bool {
	switch label := n.Labels[workloadConfigLabel]; {
	case label == "container":
		return true
	case label == "vm-vgpu" && h != nil && makesVGPUs(h):
		return true
	case label == "vm-passthrough":
		return false
	}
	return slices.ContainsFunc(n.Positive(), func(name gpu.ResourceName) bool { return name.IsContainer() || name.IsVGPU() })
}

// makesVGPUs reports a host on which vGPUs can be made or have been.
func makesVGPUs(h *gpu.Host) bool {
	return len(h.Mdevs) > 0 || slices.ContainsFunc(h.Functions, func(f gpu.Function) bool {
		return f.IsNVIDIA() && (f.VF || len(f.MdevTypes) > 0 || len(f.VGPUTypes) > 0)
	})
}

// others reports that what a machine asks for, and nobody serves, is a device of another
// vendor, as far as that can be told.
func (d *diagnosis) others(v *VM, f *Finding) bool {
	return slices.ContainsFunc(v.Devices, func(asked gpu.Device) bool {
		domain, _, _ := strings.Cut(string(asked.Name), "/")
		vendors := strings.HasSuffix(domain, "amd.com") || strings.HasSuffix(domain, "intel.com")
		return containsName(f.Message, asked.Name) && !d.concerns(asked.Name) && (vendors || asked.Field == "hostDevices")
	})
}

// untold returns the findings of the evidence without those that say of a node whose
// cards are for others that they are; somebody who gives a node's inventory is told.
func (d *diagnosis) untold() []Finding {
	others := map[string]bool{}
	for i := range d.Nodes {
		n := &d.Nodes[i]
		others[nodeObject(n.Name)] = forOthers(n, d.hosts[n.Name]) && !slices.Contains(d.Given, n.Name)
	}
	var out []Finding
	for _, f := range d.Findings {
		object, _, _ := strings.Cut(f.Object, " ")
		if others[object] && (f.Code == "GPU0201" || f.Code == "GPU0212") {
			continue
		}
		out = append(out, f)
	}
	return out
}
