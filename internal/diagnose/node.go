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
	out = append(out, zeros(n)...)
	if h == nil {
		return out
	}
	out = append(out, mode(n, h)...)
	return append(out, counts(n, h, matches)...)
}

// Unserved reports whether a node is meant for GPUs, as gpu-operator and NFD label
// nodes, and serves nothing of NVIDIA's yet; why names the label. A host, nil when
// its inventory is not known, without a GPU is not waited for.
func Unserved(n *gpu.Node, h *gpu.Host) (why string, missing bool) {
	config := n.Labels[workloadConfigLabel]
	if config == "container" || n.Labels["nvidia.com/gpu.deploy.operands"] == "false" || len(n.Positive()) > 0 {
		return "", false
	}
	if h != nil && !slices.ContainsFunc(h.Functions, func(f gpu.Function) bool { return f.IsGPU() || f.IsNVIDIA() && f.VF }) {
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

// UnservedNodes reports the nodes that are meant for VM GPUs and serve none yet.
func UnservedNodes(nodes []gpu.Node, hosts []gpu.Host) []Finding {
	known := map[string]*gpu.Host{}
	for i := range hosts {
		known[hosts[i].Node] = &hosts[i]
	}
	var out []Finding
	for i := range nodes {
		n := &nodes[i]
		if why, missing := Unserved(n, known[n.Name]); missing {
			out = append(out, New("GPU0102", nodeObject(n.Name), Values{"node": n.Name, "why": why}))
		}
	}
	return out
}

// zeros reports names that the node lists and does not serve. With capacity left
// the plugin is there and its devices are unhealthy; without, the name is left
// over. The container plugin's own name at 0 is normal on a passthrough node.
func zeros(n *gpu.Node) []Finding {
	var stale []string
	var out []Finding
	for _, name := range slices.Sorted(maps.Keys(n.Allocatable)) {
		switch capacity := n.Capacity[name]; {
		case n.Allocatable[name] > 0 || !name.IsNVIDIA() || name.IsContainer():
		case capacity > 0:
			out = append(out, New("GPU0414", nodeObject(n.Name), Values{
				"node": n.Name, "name": string(name), "count": strconv.FormatInt(capacity, 10),
			}))
		default:
			stale = append(stale, string(name))
		}
	}
	if len(stale) > 0 {
		out = append(out, New("GPU0412", nodeObject(n.Name), Values{"node": n.Name, "names": strings.Join(stale, ", ")}))
	}
	return out
}

// mode reports a node whose label keeps its cards from being passed through.
func mode(n *gpu.Node, h *gpu.Host) []Finding {
	label := n.Labels[workloadConfigLabel]
	if label != "vm-vgpu" && label != "container" {
		return nil
	}
	cards := map[gpu.ID]int{}
	vgpu := makesVGPUs(h)
	for i := range h.Functions {
		f := &h.Functions[i]
		if f.IsGPU() && !f.DriverUnknown && !f.Driver.IsVFIO() {
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

// counts compares what the node offers with the functions behind it.
func counts(n *gpu.Node, h *gpu.Host, matches []gpu.Match) []Finding {
	ids := map[gpu.ResourceName][]gpu.DeviceID{}
	for _, m := range matches {
		if m.How != gpu.Predicted && m.Name != "" {
			ids[m.Name] = append(ids[m.Name], m.Device)
		}
	}
	unmatched := func(name gpu.ResourceName) bool { _, matched := ids[name]; return !matched }
	if !slices.ContainsFunc(n.Positive(), unmatched) {
		return countAll(n, h, ids)
	}
	for _, x := range gpu.Infer(n, n.Plugin) { // names whose cards are gone altogether
		if _, matched := ids[x.Name]; !matched && len(x.IDs) > 0 {
			ids[x.Name] = x.IDs
		}
	}
	return countAll(n, h, ids)
}

func countAll(n *gpu.Node, h *gpu.Host, ids map[gpu.ResourceName][]gpu.DeviceID) []Finding {
	var out []Finding
	for _, name := range slices.Sorted(maps.Keys(ids)) {
		if f, bad := compare(n, h, name, ids[name]); bad {
			out = append(out, f)
		}
	}
	return out
}

// compare compares what the node offers under one name with the functions of its
// ids that are on a vfio driver: virtual ones count like cards.
func compare(n *gpu.Node, h *gpu.Host, name gpu.ResourceName, ids []gpu.DeviceID) (Finding, bool) {
	have, present := n.Allocatable[name], 0
	for i := range h.Functions {
		switch f := &h.Functions[i]; {
		case !f.IsNVIDIA() || !slices.Contains(ids, f.ID.Device):
		case f.DriverUnknown: // lspci without -k: there is nothing to compare with
			return Finding{}, false
		case f.Driver.IsVFIO():
			present++
		}
	}
	values := Values{
		"node": n.Name, "have": strconv.FormatInt(have, 10), "count": strconv.Itoa(present),
		"id": gpu.NVIDIA(ids[0]).Selector(), "name": string(name), "why": "",
		"next": "if the cards were bound after the device plugin started, restart its pod on the node",
	}
	groups, shared := groupsOf(h, ids[0])
	switch {
	case have > int64(present):
		return New("GPU0410", nodeObject(n.Name), values), true
	case have == int64(present) || len(ids) > 1: // two ids under one name are GPU0406
		return Finding{}, false
	case have == int64(groups) && shared > 0:
		values["why"] = fmt.Sprintf(": its plugin offers one per IOMMU group, and %d cards share groups", shared)
		values["next"] = "give each card a group of its own (another slot, or ACS in firmware), or count a group as one unit"
	}
	return New("GPU0409", nodeObject(n.Name), values), true
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
