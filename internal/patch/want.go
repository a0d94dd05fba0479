package patch

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/internal/gpu"
)

// want is a pair that should be permitted, and who wants it on what grounds.
type want struct {
	id    gpu.ID
	mdev  string
	name  gpu.ResourceName
	how   gpu.How  // the strongest
	nodes []string // "gpu-1", sorted; empty for an explicit pair
	units int64    // what the nodes serve under the name
}

func (w want) selector() string { return Permit{ID: w.id, Mdev: w.mdev}.Selector() }

// why says where the pair comes from, for the change list.
func (w want) why() string {
	on := someOf(w.nodes)
	switch w.how {
	case gpu.Explicit:
		return "named by --permit"
	case gpu.Served:
		return fmt.Sprintf("served by %s (allocatable %d)", on, w.units)
	case gpu.Renamed:
		return fmt.Sprintf("served by %s (allocatable %d) under another name than predicted", on, w.units)
	case gpu.Inferred:
		return fmt.Sprintf("served by %s (allocatable %d), without an inventory", on, w.units)
	default:
		return fmt.Sprintf("predicted for %s, served by no node yet", on)
	}
}

// someOf joins up to three names and counts the rest.
func someOf(names []string) string {
	if len(names) > 4 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:3], ", "), len(names)-3)
	}
	return strings.Join(names, ", ")
}

type pair struct {
	id   gpu.ID
	mdev string
	name gpu.ResourceName
}

// wants collects what --permit, the inventories and the nodes ask for.
func (p *planner) wants() []want {
	all := map[pair]*want{}
	ask := func(w want, node string, units int64) {
		key := pair{w.id, w.mdev, w.name}
		have, ok := all[key]
		if !ok {
			all[key] = &w
			have = &w
		}
		have.how = min(have.how, w.how)
		if node != "" {
			have.nodes = append(have.nodes, node)
		}
		have.units += units
	}
	for _, permit := range p.in.Permits {
		if why := unfit(permit.Name); why != "" {
			p.refuse("GPU0322", p.object, diagnose.Values{"selector": permit.Selector(), "name": string(permit.Name), "why": why})
			continue
		}
		ask(want{id: permit.ID, mdev: permit.Mdev, name: permit.Name, how: gpu.Explicit}, "", 0)
	}
	for _, node := range p.places() {
		p.wantsOf(node, ask)
	}
	out := make([]want, 0, len(all))
	for _, w := range all {
		slices.Sort(w.nodes)
		out = append(out, *w)
	}
	slices.SortFunc(out, func(a, b want) int {
		return cmp.Or(cmp.Compare(a.selector(), b.selector()), cmp.Compare(a.name, b.name))
	})
	return out
}

// unfit says why a name must never be written, "" when it may.
func unfit(name gpu.ResourceName) string {
	if err := name.Check(); err != nil {
		return err.Error()
	}
	if name.IsContainer() {
		return "it belongs to NVIDIA's container device plugin, and a VM gets no device from it"
	}
	return ""
}

// places returns the names of all nodes and hosts, sorted.
func (p *planner) places() []string {
	all := map[string]bool{}
	for name := range p.nodes {
		all[name] = true
	}
	for name := range p.hosts {
		all[name] = true
	}
	return slices.Sorted(maps.Keys(all))
}

// wantsOf asks for what one node needs, and reports what cannot be told.
func (p *planner) wantsOf(name string, ask func(w want, node string, units int64)) {
	host, node := p.hosts[name], p.nodes[name]
	release := p.releaseOf(node)
	if host == nil {
		p.infer(node, ask)
		p.findings = append(p.findings, diagnose.Node(node, nil, nil)...)
		return
	}
	p.findings = append(p.findings, diagnose.Host(host, release)...)
	matches := gpu.MatchNames(host, node, release)
	for _, m := range matches {
		p.match(host, node, release, m, ask)
	}
	switch {
	case node != nil:
		p.findings = append(p.findings, diagnose.Node(node, host, matches)...)
	case name != "" && len(p.nodes) > 0:
		p.report("GPU0217", "node/"+name, diagnose.Values{"node": name})
	}
}

func (p *planner) releaseOf(n *gpu.Node) gpu.Release {
	if n != nil && n.Plugin.Known() {
		return n.Plugin
	}
	return p.release
}

// match asks for one matched id, or reports why it has no name.
func (p *planner) match(h *gpu.Host, n *gpu.Node, r gpu.Release, m gpu.Match, ask func(w want, node string, units int64)) {
	place := cmp.Or(h.Node, "the given host")
	w := want{id: gpu.NVIDIA(m.Device), name: m.Name, how: m.How}
	values := diagnose.Values{
		"node": place, "id": w.id.Selector(), "count": fmt.Sprint(m.Count), "release": r.String(),
		"expected": string(m.Expected), "name": string(m.Name),
	}
	switch m.How {
	case gpu.Illegal: // diagnose.Host reports it
	case gpu.Unmatched:
		values["served"], values["permit"] = listNames(n.Positive()), candidateFlags(w.id, m.Candidates, m.Expected)
		p.report("GPU0404", "node/"+place, values)
	case gpu.Predicted:
		ask(w, place, 0)
	default:
		if m.How == gpu.Renamed {
			values["why"] = renamedWhy(m)
			p.report("GPU0402", "node/"+place, values)
		}
		ask(w, place, n.Allocatable[m.Name])
	}
}

// renamedWhy says what an unexpected name tells.
func renamedWhy(m gpu.Match) string {
	switch {
	case m.Name.Short() == m.Device.String():
		return " (the bare id: that plugin's pci.ids does not know the card)"
	case slices.Contains(gpu.DeviceIDs(m.Name), m.Device):
		return " (the name other plugin releases give it)"
	default:
		return " (matched by count; the plugin's data is wrong or it renames resources)"
	}
}

func candidateFlags(id gpu.ID, names []gpu.ResourceName, expected gpu.ResourceName) string {
	if len(names) == 0 && expected.Check() != nil {
		return "no name that Kubernetes accepts is served yet"
	}
	if len(names) == 0 {
		names = []gpu.ResourceName{expected}
	}
	var flags []string
	for _, name := range names {
		flags = append(flags, PermitFlag(id, name))
	}
	return strings.Join(flags, " or ")
}

// infer asks for what a node's own resource names say, where they say one id.
func (p *planner) infer(n *gpu.Node, ask func(w want, node string, units int64)) {
	for _, x := range gpu.Infer(n) {
		values := diagnose.Values{"node": n.Name, "name": string(x.Name), "permit": permitHint(x.Name)}
		switch {
		case len(x.IDs) == 1:
			ask(want{id: gpu.NVIDIA(x.IDs[0]), name: x.Name, how: gpu.Inferred}, n.Name, n.Allocatable[x.Name])
		case p.table.Permits(x.Name): // permitted already, whatever its id
		case len(x.IDs) > 1:
			values["ids"] = listIDs(x.IDs)
			p.report("GPU0407", "node/"+n.Name, values)
		default:
			p.report("GPU0408", "node/"+n.Name, values)
		}
	}
}

func listNames(names []gpu.ResourceName) string {
	var out []string
	for _, n := range names {
		out = append(out, string(n))
	}
	return strings.Join(out, ", ")
}

func listIDs(ids []gpu.DeviceID) string {
	var out []string
	for _, d := range ids {
		out = append(out, gpu.NVIDIA(d).Selector())
	}
	return strings.Join(out, " and ")
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
