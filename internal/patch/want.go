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
	nodes []string // that want it on these grounds, sorted; empty for an explicit pair
	units int64    // what these nodes serve under the name
	// weaker are the nodes that want it on weaker grounds: it is predicted there.
	weaker  []string
	release gpu.Release // that the prediction assumes
	inTree  bool        // KubeVirt serves it itself
}

func (w want) selector() string { return Permit{ID: w.id, Mdev: w.mdev}.Selector() }

// device is what the pair selects, in one spelling.
func (w want) device() string { return spell(w.selector()) }

// why says where the pair comes from, for the change list.
func (w want) why() string {
	on, more := someOf(w.nodes), ""
	if len(w.weaker) > 0 {
		more = "; also for " + someOf(w.weaker)
	}
	if w.inTree && w.how != gpu.Explicit {
		return "vGPUs on " + someOf(slices.Concat(w.nodes, w.weaker)) + ", which KubeVirt serves itself"
	}
	switch w.how {
	case gpu.Explicit:
		return "named by --permit" + more
	case gpu.Served:
		return fmt.Sprintf("served by %s (allocatable %d)%s", on, w.units, more)
	case gpu.Renamed:
		return fmt.Sprintf("served by %s (allocatable %d) under another name than predicted%s", on, w.units, more)
	case gpu.Inferred:
		return fmt.Sprintf("served by %s (allocatable %d), without an inventory%s", on, w.units, more)
	default:
		return fmt.Sprintf("predicted for %s, served by no node yet", on)
	}
}

// merge adds what another node asks for.
func (w *want) merge(o want) {
	w.inTree = w.inTree || o.inTree
	switch {
	case o.how < w.how:
		w.weaker = append(w.weaker, w.nodes...)
		w.how, w.nodes, w.units, w.release = o.how, o.nodes, o.units, o.release
	case o.how > w.how:
		w.weaker = append(w.weaker, o.nodes...)
	default:
		w.nodes = append(w.nodes, o.nodes...)
		w.units += o.units
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
	ask := func(w want) {
		p.note(w)
		key := pair{w.id, spell(w.mdev), w.name}
		if have, ok := all[key]; ok {
			have.merge(w)
			return
		}
		all[key] = &w
	}
	for _, permit := range p.in.Permits {
		if why := unfit(permit.Name); why != "" {
			p.leaveOut("GPU0322", p.object, diagnose.Values{"selector": permit.Selector(), "name": string(permit.Name), "why": why})
			continue
		}
		ask(want{id: permit.ID, mdev: permit.Mdev, name: permit.Name, how: gpu.Explicit})
	}
	for _, node := range p.places() {
		p.wantsOf(node, ask)
	}
	p.vgpuWants(all, ask)
	out := make([]want, 0, len(all))
	for _, w := range all {
		slices.Sort(w.nodes)
		slices.Sort(w.weaker)
		out = append(out, *w)
	}
	slices.SortFunc(out, func(a, b want) int {
		return cmp.Or(cmp.Compare(a.selector(), b.selector()), cmp.Compare(a.name, b.name))
	})
	return out
}

// note remembers what a node serves an id as.
func (p *planner) note(w want) {
	if w.mdev != "" || w.units == 0 {
		return
	}
	if p.serving[w.id] == nil {
		p.serving[w.id] = map[string]gpu.ResourceName{}
	}
	for _, node := range w.nodes {
		p.serving[w.id][node] = w.name
	}
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
	if p.sorted != nil {
		return p.sorted
	}
	all := map[string]bool{}
	for name := range p.nodes {
		all[name] = true
	}
	for name := range p.hosts {
		all[name] = true
	}
	p.sorted = slices.Sorted(maps.Keys(all))
	return p.sorted
}

// wantsOf asks for what one node needs, and reports what cannot be told.
func (p *planner) wantsOf(name string, ask func(want)) {
	host, node := p.hosts[name], p.nodes[name]
	release := p.releaseOf(node)
	if host == nil {
		p.infer(node, ask)
		p.findings = append(p.findings, diagnose.Node(node, nil, nil)...)
		return
	}
	p.findings = append(p.findings, diagnose.Host(host, release)...)
	matches := gpu.MatchNames(host, node, release, p.table)
	for _, m := range matches {
		p.match(host, node, release, m, ask)
	}
	switch {
	case node != nil:
		p.findings = append(p.findings, diagnose.Node(node, host, matches)...)
	case name != "" && len(p.nodes) > 0:
		p.report("GPU0217", "node/"+name, diagnose.Values{"which": "of " + name})
	case len(p.nodes) > 0:
		p.report("GPU0217", "host", diagnose.Values{"which": "without NODE= (several Nodes have none)"})
	}
}

func (p *planner) releaseOf(n *gpu.Node) gpu.Release {
	if n != nil && n.Plugin.Known() {
		return n.Plugin
	}
	return p.release
}

// match asks for one matched id, or reports why it has no name.
func (p *planner) match(h *gpu.Host, n *gpu.Node, r gpu.Release, m gpu.Match, ask func(want)) {
	place := cmp.Or(h.Node, "the given host")
	w := want{id: gpu.NVIDIA(m.Device), name: m.Name, how: m.How, nodes: []string{place}, release: r}
	values := diagnose.Values{
		"node": place, "id": w.id.Selector(), "count": fmt.Sprint(m.Count), "release": r.String(),
		"expected": string(m.Expected), "name": string(m.Name),
	}
	switch m.How {
	case gpu.Illegal: // diagnose.Host reports it
	case gpu.Unmatched:
		values["served"], values["advice"] = listNames(n.Positive()), candidateAdvice(w.id, m.Candidates)
		p.report("GPU0404", "node/"+place, values)
	case gpu.Predicted:
		ask(w)
	default:
		if m.How == gpu.Renamed {
			values["why"] = renamedWhy(m)
			p.report("GPU0402", "node/"+place, values)
		}
		if gpu.NoLauncherFinds(m.Device, m.Name) {
			p.report("GPU0415", "node/"+place, values)
		}
		w.units = n.Allocatable[m.Name]
		ask(w)
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

// candidateAdvice offers the names that could be the id's, for somebody who knows.
func candidateAdvice(id gpu.ID, names []gpu.ResourceName) string {
	if len(names) == 0 {
		return "if the device plugin is still starting, wait for it; else look at its pod on the node"
	}
	var flags []string
	for _, name := range names {
		flags = append(flags, permitFlag(id, name))
	}
	return "if one of them is right, say so: " + strings.Join(flags, " or ") + "; if the plugin is still starting, wait for it"
}

// ambiguous is a served name that does not tell an id.
type ambiguous struct {
	name  gpu.ResourceName
	ids   []gpu.DeviceID
	nodes []string
}

// infer asks for what a node's own resource names say, where they say one id.
func (p *planner) infer(n *gpu.Node, ask func(want)) {
	release := n.Plugin
	if !release.Known() {
		release = p.in.Release // zero when nobody named one: then all releases count
	}
	for _, x := range gpu.Infer(n, release) {
		if len(x.IDs) != 1 {
			p.ambiguous(n.Name, x)
			continue
		}
		if gpu.NoLauncherFinds(x.IDs[0], x.Name) {
			p.report("GPU0415", "node/"+n.Name, diagnose.Values{"id": gpu.NVIDIA(x.IDs[0]).Selector(), "name": string(x.Name)})
		}
		if diagnose.IsGrace(x.IDs[0]) {
			p.report("GPU0211", "node/"+n.Name, diagnose.Values{"id": gpu.NVIDIA(x.IDs[0]).Selector(), "node": n.Name})
		}
		ask(want{id: gpu.NVIDIA(x.IDs[0]), name: x.Name, how: gpu.Inferred, nodes: []string{n.Name}, units: n.Allocatable[x.Name]})
	}
}

// ambiguous collects the nodes of a name, so that many alike give one finding.
func (p *planner) ambiguous(node string, x gpu.Inference) {
	for i := range p.unclear {
		if u := &p.unclear[i]; u.name == x.Name && slices.Equal(u.ids, x.IDs) {
			u.nodes = append(u.nodes, node)
			return
		}
	}
	p.unclear = append(p.unclear, ambiguous{x.Name, x.IDs, []string{node}})
}

// reportUnclear reports the served names that told no id and that the table, as
// it will be, does not permit either.
func (p *planner) reportUnclear(after gpu.Table) {
	for _, u := range p.unclear {
		if after.Permits(u.name) {
			continue
		}
		object, nodes := "node/"+u.nodes[0], "node "+u.nodes[0]
		if len(u.nodes) > 1 {
			object, nodes = p.object, "nodes "+someOf(u.nodes)
		}
		values := diagnose.Values{"nodes": nodes, "node": u.nodes[0], "name": string(u.name), "permit": permitText(u.name)}
		if len(u.ids) == 0 {
			p.report("GPU0408", object, values)
			continue
		}
		var ids []gpu.ID
		for _, d := range u.ids {
			ids = append(ids, gpu.NVIDIA(d))
		}
		values["ids"] = diagnose.JoinIDs(ids)
		p.report("GPU0407", object, values)
	}
}

func listNames(names []gpu.ResourceName) string {
	var out []string
	for _, n := range names {
		out = append(out, string(n))
	}
	return strings.Join(out, ", ")
}
