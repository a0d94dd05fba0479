package diagnose

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// Labels of gpu-operator that decide what happens to a node's cards.
const (
	workloadConfigLabel = "nvidia.com/gpu.workload.config"
	deployDriverLabel   = "nvidia.com/gpu.deploy.driver"
)

// Node reports where a node's labels and served resources disagree with its
// inventory. h is nil when the inventory is not known.
func Node(n *gpu.Node, h *gpu.Host, matches []gpu.Match) []Finding {
	var out []Finding
	if n.Labels[deployDriverLabel] == "pre-installed" {
		out = append(out, New("GPU0213", nodeObject(n.Name), Values{"node": n.Name}))
	}
	out = append(out, stale(n)...)
	if h == nil {
		return out
	}
	out = append(out, mode(n, h)...)
	ids := map[gpu.ResourceName]int{}
	for _, m := range matches {
		ids[m.Name]++
	}
	for _, m := range matches {
		// Two ids under one name are GPU0406, and no count explains them.
		if m.Name != "" && m.How != gpu.Predicted && ids[m.Name] == 1 {
			out = append(out, counts(n, h, m)...)
		}
	}
	return out
}

// Unserved reports whether a node is meant for GPUs, as gpu-operator and NFD label
// nodes, and serves nothing of NVIDIA's yet; why names the label.
func Unserved(n *gpu.Node) (why string, missing bool) {
	config := n.Labels[workloadConfigLabel]
	if config == "container" || n.Labels["nvidia.com/gpu.deploy.operands"] == "false" || len(n.Positive()) > 0 {
		return "", false
	}
	for _, label := range []string{
		workloadConfigLabel, "nvidia.com/gpu.present", "nvidia.com/gpu.deploy.sandbox-device-plugin",
		"feature.node.kubernetes.io/pci-10de.present", "feature.node.kubernetes.io/pci-0302_10de.present", "feature.node.kubernetes.io/pci-0300_10de.present",
	} {
		if v := n.Labels[label]; v != "" && v != "false" {
			return label + "=" + v, true
		}
	}
	return "", false
}

// stale reports names that the node still lists with nothing behind them. The
// container plugin's own name at 0 is normal on a passthrough node.
func stale(n *gpu.Node) []Finding {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(n.Allocatable)) {
		if n.Allocatable[name] == 0 && name.IsNVIDIA() && !name.IsContainer() {
			names = append(names, string(name))
		}
	}
	if len(names) == 0 {
		return nil
	}
	return []Finding{New("GPU0412", nodeObject(n.Name), Values{"node": n.Name, "names": strings.Join(names, ", ")})}
}

// mode reports a node whose label keeps its cards from being passed through.
func mode(n *gpu.Node, h *gpu.Host) []Finding {
	label := n.Labels[workloadConfigLabel]
	if label != "vm-vgpu" && label != "container" {
		return nil
	}
	cards := map[gpu.ID]int{}
	vgpu := len(h.Mdevs) > 0
	for i := range h.Functions {
		f := &h.Functions[i]
		vgpu = vgpu || f.IsNVIDIA() && (f.VF || len(f.MdevTypes) > 0 || len(f.VGPUTypes) > 0)
		if f.IsGPU() && !f.Driver.IsVFIO() {
			cards[f.ID]++
		}
	}
	why := ""
	if label == "vm-vgpu" && !vgpu {
		why = "; nor does it show a mediated device type or a virtual function to make vGPUs of"
	}
	var out []Finding
	for id, count := range cards {
		out = append(out, New("GPU0212", nodeObject(n.Name), Values{
			"node": n.Name, "mode": label, "count": strconv.Itoa(count), "why": why,
			"device": id.String() + " (" + string(gpu.Newest().Name(id.Device)) + ")",
		}))
	}
	return out
}

// counts compares what the node offers under a name with the cards behind it.
func counts(n *gpu.Node, h *gpu.Host, m gpu.Match) []Finding {
	have := n.Allocatable[m.Name]
	groups, shared := groupsOf(h, m.Device)
	values := Values{
		"node": n.Name, "have": strconv.FormatInt(have, 10), "count": strconv.Itoa(m.Count),
		"id": gpu.NVIDIA(m.Device).Selector(), "name": string(m.Name), "why": "",
	}
	switch {
	case have > int64(m.Count):
		return []Finding{New("GPU0410", nodeObject(n.Name), values)}
	case have < int64(m.Count) && have == int64(groups):
		values["why"] = fmt.Sprintf(": its plugin offers one per IOMMU group, and %d cards share groups", shared)
		return []Finding{New("GPU0409", nodeObject(n.Name), values)}
	case have < int64(m.Count):
		return []Finding{New("GPU0409", nodeObject(n.Name), values)}
	}
	return nil
}

// groupsOf counts the IOMMU groups of the passthrough GPUs of one id, and the
// cards that share one with another.
func groupsOf(h *gpu.Host, d gpu.DeviceID) (groups, shared int) {
	sizes := map[int]int{}
	for _, f := range h.GPUs() {
		if id, ok := f.Group.ID(); ok && f.ID.Device == d && f.Driver.IsVFIO() {
			sizes[id]++
		}
	}
	for _, size := range sizes {
		if size > 1 {
			shared += size
		}
	}
	return len(sizes), shared
}
