package patch

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	semver "k8s.io/apimachinery/pkg/util/version"

	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/internal/manifest"
)

// vfGroup is the virtual functions of one PCI id that carry a vGPU type.
type vfGroup struct {
	id       gpu.ID
	profiles map[string][]string // the nodes that have a type; a name, or a number where none is known
	count    int
}

// vfWants asks for the vGPUs of NVIDIA's vendor VFIO framework: virtual functions on
// driver nvidia with a type set. KubeVirt's own plugin offers those from 1.9 on
// (shouldPermitNvidia), by PCI id and nothing else, so one id must be one thing in the
// whole cluster. Names of mediated devices that a plugin serves are that plugin's.
func (p *planner) vfWants(wholeCards map[gpu.ID]bool, plugin map[gpu.ResourceName]bool, ask func(want)) {
	for _, g := range p.vfGroups() {
		w, ok := p.vfWant(g, wholeCards[g.id])
		switch _, named := p.vfName(g); {
		case !ok:
		case plugin[w.name] && !named:
			what := fmt.Sprintf("%s: a plugin serves %s for mediated devices of other nodes, and KubeVirt would serve it for %d virtual functions of %s", someOf(g.nodes()), w.name, g.count, g.id.Selector())
			p.report("GPU0335", p.object, diagnose.Values{"what": what, "name": string(w.name), "permit": permitFlag(g.id, w.name), "or": ", under a name of its own"})
		default:
			ask(w)
		}
	}
}

// vfGroups returns the groups, by id.
func (p *planner) vfGroups() []*vfGroup {
	groups := map[gpu.ID]*vfGroup{}
	for _, place := range p.places() {
		host := p.hosts[place]
		if host == nil {
			continue
		}
		for i := range host.Functions {
			f := &host.Functions[i]
			if !f.IsNVIDIA() || !f.VF || f.CurrentVGPU == "" || f.Driver != "nvidia" || f.Group.None() {
				continue
			}
			g := groups[f.ID]
			if g == nil {
				g = &vfGroup{id: f.ID, profiles: map[string][]string{}}
				groups[f.ID] = g
			}
			profile := p.profile(host, f.CurrentVGPU)
			g.profiles[profile] = appendNew(g.profiles[profile], cmp.Or(host.Node, "the given host"))
			g.count++
		}
	}
	return slices.SortedFunc(maps.Values(groups), func(a, b *vfGroup) int { return strings.Compare(a.id.Selector(), b.id.Selector()) })
}

// profile returns the name of a vGPU type. sysfs says its number; what it is called is
// in the lists of what could be made, of this function's siblings or, when the card is
// full, of other hosts: NVIDIA numbers its types once for all boards.
func (p *planner) profile(host *gpu.Host, current string) string {
	id, err := strconv.Atoi(current)
	if err != nil {
		return current
	}
	if name := typeNamed(host, id); name != "" {
		return name
	}
	for _, place := range p.places() {
		if other := p.hosts[place]; other != nil {
			if name := typeNamed(other, id); name != "" {
				return name
			}
		}
	}
	return current
}

func typeNamed(host *gpu.Host, id int) string {
	for i := range host.Functions {
		for _, t := range host.Functions[i].VGPUTypes {
			if t.ID == id {
				return t.Name
			}
		}
	}
	return ""
}

// vfWant returns what one group needs, or reports why it gets nothing. whole says that
// cards of the id are wanted for passthrough.
func (p *planner) vfWant(g *vfGroup, whole bool) (want, bool) {
	name, named := p.vfName(g)
	switch {
	case len(g.profiles) > 1:
		p.oneIDForMore(g, "", "would offer all of them under one name")
	case p.vfListed(g, name, whole || len(p.wholeCards(g.id)) > 0):
	case whole || len(p.wholeCards(g.id)) > 0:
		on := cmp.Or(someOf(p.wholeCards(g.id)), "no node yet")
		p.oneIDForMore(g, ", and whole cards of the id are for VMs ("+on+")", "would offer those as vGPUs, beside NVIDIA's plugin that offers them as cards")
	case !named && p.externalEntry(g.id) != "":
		p.oneIDForMore(g, ", and the table lists the id for an external provider as "+p.externalEntry(g.id), "would offer such cards as vGPUs, too")
	case name == "":
		p.report("GPU0339", p.object, diagnose.Values{
			"node": someOf(g.nodes()), "count": fmt.Sprint(g.count), "type": g.list(), "why": "no virtual function of any host lists its name",
			"hint": "name it: " + permitFlag(g.id, "nvidia.com/NVIDIA_PROFILE") + ", as nvidia-smi vgpu shows the profile, with underscores",
		})
	case diagnose.Served(p.in.Nodes)[name] > 0 && !p.inTreeName(name):
		// Some other plugin knows these functions, or an in-tree entry has just been
		// taken away and kubelet has not noticed yet.
		if !named {
			what := fmt.Sprintf("a node serves %s for %d virtual functions of %s, and no in-tree entry accounts for it", name, g.count, g.id.Selector())
			p.report("GPU0335", p.object, diagnose.Values{"what": what, "name": string(name), "permit": permitFlag(g.id, name), "or": ""})
		}
	case !servesVFs(p.kubeVirtVersion()):
		p.tooOld(g)
	default:
		return want{id: g.id, name: name, how: gpu.Predicted, nodes: g.nodes(), inTree: true}, true
	}
	return want{}, false
}

// vfName returns the resource name of a group with one type: what --permit says of
// the id, else the name that NVIDIA's plugin would give a mediated device of that
// type. "" when the type has no name that could be written.
func (p *planner) vfName(g *vfGroup) (name gpu.ResourceName, named bool) {
	for _, permit := range p.in.Permits {
		if permit.ID == g.id && permit.Name.IsVGPU() && unfit(permit.Name) == "" && (name == "" || permit.Name < name) {
			name = permit.Name
		}
	}
	if name != "" {
		return name, true
	}
	for profile := range g.profiles {
		name = gpu.MdevResource(profile)
		if _, err := strconv.Atoi(profile); err == nil || unfit(name) != "" || len(g.profiles) > 1 {
			return "", false
		}
	}
	return name, false
}

// vfListed reports an in-tree entry of the id, under whatever name: KubeVirt serves
// the functions by it. One of gpuctl's own that is not right any more, since the
// functions carry another type or there are whole cards of the id, goes when nobody
// asks for it.
func (p *planner) vfListed(g *vfGroup, name gpu.ResourceName, whole bool) bool {
	for _, e := range p.table.Of(g.id) {
		if !e.External && p.owns(e) && !p.named(e) && (whole || name != "" && e.Name != name) {
			if p.in.WorkloadsKnown && !p.used(e.Name) {
				p.forget(e, "KubeVirt would offer "+g.list()+", and whole cards of the id, under that name")
				continue
			}
			p.oneIDForMore(g, ", and the table lists them as "+string(e.Name)+", which is in use", "offers all of the id under that name")
			return true
		}
		if e.Disabled {
			p.report("GPU0318", p.object, diagnose.Values{"target": p.object, "selector": e.Selector, "name": string(e.Name)})
			return true
		}
		if !e.External {
			if version := p.kubeVirtVersion(); version != "" && !servesVFs(version) {
				p.tooOld(g)
			}
			return true
		}
	}
	return false
}

func (p *planner) externalEntry(id gpu.ID) string {
	var names []gpu.ResourceName
	for _, e := range p.table.Of(id) {
		if e.External {
			names = append(names, e.Name)
		}
	}
	return listNames(names)
}

// wholeCards returns the nodes on which KubeVirt's plugin would take other functions
// for the vGPUs: it offers whatever of the id is on vfio-pci. Without an inventory the
// served names tell.
func (p *planner) wholeCards(id gpu.ID) []string {
	var out []string
	for _, place := range p.places() {
		host, node := p.hosts[place], p.nodes[place]
		takes := func(f gpu.Function) bool {
			return f.ID == id && (f.Driver.IsVFIO() || f.IsGPU() && f.DriverUnknown)
		}
		carries := func(x gpu.Inference) bool { return id.IsNVIDIA() && slices.Contains(x.IDs, id.Device) }
		switch {
		case host != nil && slices.ContainsFunc(host.Functions, takes),
			host == nil && slices.ContainsFunc(gpu.Infer(node, node.Plugin), carries):
			out = append(out, cmp.Or(place, "the given host"))
		}
	}
	return out
}

func (p *planner) oneIDForMore(g *vfGroup, more, effect string) {
	p.report("GPU0338", p.object, diagnose.Values{"id": g.id.Selector(), "types": g.list(), "more": more, "effect": effect})
}

func (p *planner) tooOld(g *vfGroup) {
	version := p.kubeVirtVersion()
	if version == "" {
		version = "of unknown version"
	}
	p.report("GPU0337", p.object, diagnose.Values{
		"node": someOf(g.nodes()), "count": fmt.Sprint(g.count), "id": g.id.Selector(), "type": g.list(), "version": version,
	})
}

func (g *vfGroup) nodes() []string {
	var out []string
	for _, nodes := range g.profiles {
		for _, n := range nodes {
			out = appendNew(out, n)
		}
	}
	slices.Sort(out)
	return out
}

// list names the types, and where each is when there are several.
func (g *vfGroup) list() string {
	var out []string
	for _, profile := range slices.Sorted(maps.Keys(g.profiles)) {
		text := profile
		if len(g.profiles) > 1 {
			text += " (" + someOf(g.profiles[profile]) + ")"
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

// kubeVirtVersion returns the release that the KubeVirt CR reports, "" when it is not
// given or says none.
func (p *planner) kubeVirtVersion() string {
	kubevirt := &p.in.Target.Document
	if p.in.Target.Managed != nil {
		kubevirt = p.in.Target.Managed
	}
	if kubevirt.Kind() != KindKubeVirt {
		return ""
	}
	v, _ := manifest.Lookup(kubevirt.Object, manifest.Path{"status", "observedKubeVirtVersion"})
	version, _ := v.(string)
	return version
}

// servesVFs reports a KubeVirt that knows vGPU functions on driver nvidia; those before
// 1.9 take nothing that is not on vfio-pci. Its pre-releases know them, too.
func servesVFs(version string) bool {
	v, err := semver.ParseGeneric(version)
	return err == nil && v.AtLeast(semver.MajorMinor(1, 9))
}
