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

// mdevType is a mediated device type of which nodes have instances.
type mdevType struct {
	name     string // of the type: what an entry selects by
	resource gpu.ResourceName
	ids      []string // "nvidia-592"
	wants    []want   // one per node, without the provider
	count    int      // instances that inventories show
	plugins  []string // nodes among them that run NVIDIA's device plugin
}

// vgpuWants asks for the vGPUs of all nodes. Without a target nobody can say who serves
// them.
func (p *planner) vgpuWants(all map[pair]*want, ask func(want)) {
	if p.in.Target.Object == nil {
		return
	}
	plugin := map[gpu.ResourceName]bool{}
	p.mdevWants(func(w want) {
		plugin[w.name] = plugin[w.name] || !w.inTree
		ask(w)
	})
	wholeCards := map[gpu.ID]bool{}
	for k := range all {
		wholeCards[k.id] = wholeCards[k.id] || k.mdev == "" && !k.name.IsVGPU()
	}
	p.vfWants(wholeCards, plugin, ask)
}

// mdevWants asks for the mediated devices that nodes have. A type that could be made
// is none that is there.
func (p *planner) mdevWants(ask func(want)) {
	types := p.mdevTypes()
	if len(types) == 0 {
		return
	}
	made, served := p.madeByKubeVirt(), diagnose.Served(p.in.Nodes)
	for _, name := range slices.Sorted(maps.Keys(types)) {
		p.wantMdev(types[name], made, served[name] > 0, ask)
	}
}

// mdevTypes returns the types by resource name: what inventories show, then what
// nodes serve that no inventory explains.
func (p *planner) mdevTypes() map[gpu.ResourceName]*mdevType {
	types := map[gpu.ResourceName]*mdevType{}
	places := p.places()
	for _, place := range places {
		if host := p.hosts[place]; host != nil {
			p.existingMdevs(host, types)
		}
	}
	for _, place := range places {
		p.servedMdevs(place, types)
	}
	return types
}

// existingMdevs collects NVIDIA's mediated devices of one host. NVIDIA's plugin skips
// a type without a name, and KubeVirt takes its id in place of it.
func (p *planner) existingMdevs(host *gpu.Host, types map[gpu.ResourceName]*mdevType) {
	here, nameless := map[gpu.ResourceName]*mdevType{}, map[string]int{}
	for i := range host.Mdevs {
		m := &host.Mdevs[i]
		switch {
		case !strings.HasPrefix(m.TypeID, "nvidia-"): // another vendor's
			continue
		case m.TypeName == "":
			nameless[m.TypeID]++
			continue
		}
		name := gpu.MdevResource(m.TypeName)
		t := types[name]
		if t == nil {
			t = &mdevType{name: m.TypeName, resource: name}
			types[name] = t
		}
		t.ids = appendNew(t.ids, m.TypeID)
		t.count++
		here[name] = t
	}
	for _, t := range here {
		t.see(cmp.Or(host.Node, "the given host"), p.nodes[host.Node], gpu.Served, p.release)
	}
	for id, count := range nameless {
		p.report("GPU0339", hostObject(host), diagnose.Values{
			"node": cmp.Or(host.Node, "the given host"), "count": fmt.Sprint(count), "type": id,
			"why": "the host shows no name of it", "hint": "see mdev_type/name of the device there; KubeVirt itself would take the id as the selector: write such an entry by hand",
		})
	}
}

// see notes a node that has the type. how is what counts when it serves the name.
func (t *mdevType) see(place string, node *gpu.Node, how gpu.How, release gpu.Release) {
	w := want{mdev: t.name, name: t.resource, how: gpu.Predicted, nodes: []string{place}, release: release}
	if node != nil && node.Plugin.Known() {
		w.release = node.Plugin
		t.plugins = append(t.plugins, place)
	}
	if node != nil && node.Allocatable[t.resource] > 0 {
		w.how, w.units = how, node.Allocatable[t.resource]
	}
	t.wants = append(t.wants, w)
}

// servedMdevs collects what a node without an inventory serves under a vGPU's name. An
// entry of that name, in whatever spelling, is somebody's: what it permits needs no
// guess, and what it misses is reported. What gpuctl wrote for KubeVirt to serve is no
// other plugin's.
func (p *planner) servedMdevs(place string, types map[gpu.ResourceName]*mdevType) {
	node := p.nodes[place]
	if node == nil {
		return
	}
	for name, count := range node.Allocatable {
		if count <= 0 || !name.IsNVIDIA() || !name.IsVGPU() || unfit(name) != "" || p.recordedInTree(name) {
			continue
		}
		t := types[name]
		listed := slices.ContainsFunc(p.table.Entries, func(e gpu.Entry) bool { return diagnose.Alike(string(e.Name), string(name)) })
		switch host := p.hosts[place]; {
		case host != nil:
			if t == nil && !listed && !p.explicit(name) && !tellsVGPUs(host) {
				p.report("GPU0335", hostObject(host), unserved("node "+place+" serves "+string(name)+", and its inventory shows no such vGPU", name.Short(), name))
			}
			continue
		case t == nil && listed:
			continue
		case t == nil:
			t = &mdevType{name: p.typeName(name), resource: name}
			types[name] = t
		}
		t.see(place, node, gpu.Inferred, p.release)
	}
}

// tellsVGPUs reports an inventory that says which vGPUs the host has, or that it can
// have none: nothing is on a driver that makes them. Text of lspci shows the cards of
// a vGPU host and no mediated device.
func tellsVGPUs(host *gpu.Host) bool {
	makes, shows := false, len(host.Mdevs) > 0
	for i := range host.Functions {
		f := &host.Functions[i]
		shows = shows || f.CurrentVGPU != ""
		makes = makes || f.IsNVIDIA() && f.Class.IsGPU() && !f.Driver.IsVFIO()
	}
	return shows || !makes
}

// typeName returns the type that a resource name stands for, as some inventory or
// some entry spells it. Without one the underscores of the resource name stay: to
// KubeVirt they equal blanks in a selector, and a blank would be a guess. It must not
// be just any text, although KubeVirt serves no external entry: virt-handler removes
// the devices of types that neither its configuration nor an external entry names.
func (p *planner) typeName(name gpu.ResourceName) string {
	for _, place := range p.places() {
		host := p.hosts[place]
		for i := 0; host != nil && i < len(host.Functions); i++ {
			for _, t := range host.Functions[i].MdevTypes {
				if gpu.MdevResource(t.Name) == name {
					return t.Name
				}
			}
		}
	}
	for _, e := range p.table.Entries {
		if e.List == gpu.ListMdev && gpu.MdevResource(e.Selector) == name {
			return e.Selector
		}
	}
	return name.Short()
}

// wantMdev asks for one type, or says why it is left alone.
func (p *planner) wantMdev(t *mdevType, made map[string]bool, served bool, ask func(want)) {
	if why := unfit(t.resource); why != "" {
		p.report("GPU0339", p.object, diagnose.Values{
			"node": t.where(), "count": fmt.Sprint(t.count), "type": t.name, "why": why, "hint": "permit it by hand under a name of your own, in-tree",
		})
		return
	}
	inTree, known := p.provider(t, made, served)
	if !known {
		if !p.table.Permits(t.resource) && !p.explicit(t.resource) {
			what := fmt.Sprintf("%s has %d x %s, NVIDIA's device plugin was not seen there, and KubeVirt does not make them", t.where(), t.count, t.name)
			p.report("GPU0335", p.object, unserved(what, t.name, t.resource))
		}
		return
	}
	if p.heldOtherwise(t, inTree) {
		return
	}
	for _, w := range t.wants {
		w.inTree = inTree
		ask(w)
	}
}

// unserved fills in the finding about a vGPU that nobody is known to serve.
func unserved(what, typeName string, name gpu.ResourceName) diagnose.Values {
	return diagnose.Values{
		"what": what, "name": string(name), "permit": fmt.Sprintf("--permit %q", typeName+"="+string(name)),
		"or": "; if KubeVirt shall make and serve the devices, list the type under mediatedDevicesConfiguration",
	}
}

// provider says who serves a type: NVIDIA's plugin, when it runs there or a node
// serves the name that no in-tree entry accounts for; KubeVirt, when it makes the
// devices.
func (p *planner) provider(t *mdevType, made map[string]bool, served bool) (inTree, known bool) {
	listed := func(id string) bool { return made[id] }
	switch {
	case len(t.plugins) > 0, served && !p.inTreeName(t.resource):
		return false, true
	case made[spell(t.name)], slices.ContainsFunc(t.ids, listed):
		return true, true
	}
	return false, false
}

// inTreeName reports that KubeVirt serves the name itself: by an entry of the table,
// or by one that gpuctl wrote and somebody has just taken away.
func (p *planner) inTreeName(name gpu.ResourceName) bool {
	return p.recordedInTree(name) || slices.ContainsFunc(p.table.Entries, func(e gpu.Entry) bool {
		return e.Name == name && !e.External && !e.Disabled
	})
}

func (p *planner) recordedInTree(name gpu.ResourceName) bool {
	return slices.ContainsFunc(p.record.Entries, func(w wired) bool { return w.InTree && w.Name == name })
}

// explicit reports that --permit names the resource.
func (p *planner) explicit(name gpu.ResourceName) bool {
	return slices.ContainsFunc(p.in.Permits, func(permit Permit) bool { return permit.Name == name })
}

// heldOtherwise reports the entries that a new one would contradict. They stay as
// they are: whoever wrote them may know why.
func (p *planner) heldOtherwise(t *mdevType, inTree bool) bool {
	for _, e := range p.table.Entries {
		same := e.List == gpu.ListMdev && spell(e.Selector) == spell(t.name)
		switch {
		case e.Disabled && same:
			p.report("GPU0318", p.object, diagnose.Values{"target": p.object, "selector": e.Selector, "name": string(e.Name)})
			return true
		case e.Disabled:
		case e.Name == t.resource && e.External == inTree:
			if !inTree && p.owns(e) && !p.named(e) {
				// Its own word, from before the plugin was there. The other way round, a
				// plugin that was not seen may only be starting again.
				p.forget(e, "a plugin on "+t.where()+" serves the devices now")
				continue
			}
			p.reportHeld(t, e, inTree)
			return true
		case !same || e.Name == t.resource:
		case inTree && !e.External:
			return true // KubeVirt serves the devices under that name
		case inTree, p.schema.keyed:
			p.reportHeld(t, e, inTree)
			return true
		}
	}
	return false
}

func (p *planner) reportHeld(t *mdevType, e gpu.Entry, inTree bool) {
	provider := map[bool]string{true: "in-tree", false: "for an external provider"}
	fact, right := "a plugin on "+t.where()+" serves the devices", "externalResourceProvider: true"
	if inTree {
		fact, right = "KubeVirt makes the devices, and no plugin on "+t.where()+" serves them", "externalResourceProvider: false"
	}
	p.report("GPU0336", p.object, diagnose.Values{
		"selector": e.Selector, "have": string(e.Name), "provider": provider[!e.External], "fact": fact, "name": string(t.resource), "right": right,
	})
}

// where names the nodes that have the type.
func (t *mdevType) where() string {
	var nodes []string
	for _, w := range t.wants {
		nodes = append(nodes, w.nodes...)
	}
	slices.Sort(nodes)
	return someOf(nodes)
}

// hostObject is how a finding names the host.
func hostObject(h *gpu.Host) string {
	if h.Node == "" {
		return "host"
	}
	return "node/" + h.Node
}
