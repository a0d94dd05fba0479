package diagnose

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// supply returns why no node offers what the machine asks for, nil when one does
// or nothing is known of any node. more are findings beside the root cause.
func (x *index) supply(v *VM) (root *Finding, more []Finding) {
	if len(x.Nodes) == 0 {
		return nil, nil
	}
	counts := v.Counts()
	for _, name := range v.names() {
		if !x.concerns(name) {
			continue
		}
		servers := x.servers(name)
		switch {
		case len(servers) == 0:
			return x.unserved(v, name), nil
		case servers[0].Allocatable[name] < counts[name]:
			return x.tooFew(v, name, servers[0])
		}
	}
	return nil, nil
}

// sharedGroup returns that a GPU which is in use shares its IOMMU group with another:
// VFIO gives a group to one machine.
func (x *index) sharedGroup(v *VM, said []symptom) *Finding {
	for _, s := range said {
		for _, f := range x.Findings {
			if s.code == "GPU0523" && s.address != "" && f.Code == "GPU0207" && strings.Contains(f.Message, s.address) && (v.Node == "" || f.Object == nodeObject(v.Node)) {
				return raised(f)
			}
		}
	}
	return nil
}

// unserved returns why no node serves a name: what breaks the chain on a node that
// has its cards, else that nobody has them.
func (x *index) unserved(v *VM, name gpu.ResourceName) *Finding {
	for _, f := range x.Findings {
		if (f.Code == "GPU0310" || f.Code == "GPU0305" && x.inTree(name)) && containsName(f.Message, name) {
			return raised(f)
		}
	}
	check := workloadCheck{nodes: x.Nodes, served: x.served}
	values := Values{"user": v.String(), "name": shown(name)}
	values["near"], values["hint"] = check.alternatives(name)
	if _, miss := nearMiss(name, x.served); !miss {
		if where := x.renamed(name); where != "" {
			values["near"] = "; " + where
		} else if f := x.brokenSupply(name); f != nil {
			return f
		}
	}
	if w := x.Wiring; w != nil && w.Table.Set && !w.Table.Permits(name) {
		values["near"] += "; " + w.Object + " does not permit it either"
	}
	return raised(New("GPU0501", v.String(), values))
}

// inTree reports a name that virt-handler is to serve, by the selector of its entry.
func (x *index) inTree(name gpu.ResourceName) bool {
	return slices.ContainsFunc(x.table().Entries, func(e gpu.Entry) bool { return e.Name == name && !e.External })
}

// containsName reports whether a text has the name, and not as part of a longer one.
func containsName(text string, name gpu.ResourceName) bool {
	return slices.Contains(strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" ,:;()\"", r) }), string(name))
}

// renamed says where the cards of a name are served under another one: "node n
// serves its card 0000:41:00.0 (on vfio-pci) as nvidia.com/20b0".
func (x *index) renamed(name gpu.ResourceName) string { return x.elsewise.of(name, x.findRenamed) }

func (x *index) findRenamed(name gpu.ResourceName) string {
	ids := gpu.DeviceIDs(name)
	for i := range x.Nodes {
		n := &x.Nodes[i]
		h := x.hosts[n.Name]
		if h == nil {
			if as := servedAs(n, name, ids); as != "" {
				return fmt.Sprintf("node %s serves these cards as %s", n.Name, as)
			}
			continue
		}
		for _, m := range x.matched(n) {
			if !slices.Contains(ids, m.Device) || m.Name == name || n.Allocatable[m.Name] == 0 {
				continue
			}
			for _, f := range h.GPUs() {
				if f.ID.Device == m.Device && f.Driver.IsVFIO() {
					return fmt.Sprintf("node %s serves its card %s (on %s) as %s", n.Name, f.Address, f.Driver, m.Name)
				}
			}
		}
	}
	return ""
}

// servedAs returns the name of another device plugin release for one of the ids, that
// a node without an inventory serves: a bare id, or a name of those ids alone.
func servedAs(n *gpu.Node, name gpu.ResourceName, ids []gpu.DeviceID) gpu.ResourceName {
	for _, served := range n.Positive() {
		have := gpu.DeviceIDs(served)
		other := func(d gpu.DeviceID) bool { return !slices.Contains(ids, d) }
		if served != name && len(have) > 0 && !slices.ContainsFunc(have, other) {
			return served
		}
	}
	return ""
}

func (x *index) releaseOf(n *gpu.Node) gpu.Release {
	switch {
	case n != nil && n.Plugin.Known():
		return n.Plugin
	case x.Release.Known():
		return x.Release
	default:
		return gpu.Newest()
	}
}

func (x *index) table() gpu.Table {
	if x.Wiring == nil {
		return gpu.Table{}
	}
	return x.Wiring.Table
}

// brokenSupply returns the most causal finding on a node that should serve the
// name and does not.
func (x *index) brokenSupply(name gpu.ResourceName) *Finding {
	return x.breaking.of(name, x.findBroken)
}

func (x *index) findBroken(name gpu.ResourceName) *Finding {
	var all []Finding
	for i := range x.Nodes {
		n := &x.Nodes[i]
		ids := x.cardsOf(n, name)
		_, meant := Unserved(n, x.hosts[n.Name])
		unknown := x.hosts[n.Name] == nil && meant
		if len(ids) == 0 && !unknown && n.Capacity[name] == 0 {
			continue
		}
		all = append(all, x.breaks(n.Name, ids)...)
	}
	return mostCausal(all)
}

// cardsOf returns the ids of the node's cards that a device plugin gives the name.
func (x *index) cardsOf(n *gpu.Node, name gpu.ResourceName) []gpu.DeviceID {
	h := x.hosts[n.Name]
	if h == nil {
		return nil
	}
	ids := gpu.DeviceIDs(name)
	for _, m := range x.matched(n) {
		if m.Name == name {
			ids = append(ids, m.Device)
		}
	}
	var out []gpu.DeviceID
	for _, f := range h.GPUs() {
		if slices.Contains(ids, f.ID.Device) && !slices.Contains(out, f.ID.Device) {
			out = append(out, f.ID.Device)
		}
	}
	return out
}

// breaks returns the findings on a node that keep cards of the ids from being
// served; of findings about single cards only those of these ids.
func (x *index) breaks(node string, ids []gpu.DeviceID) []Finding {
	ofCards := map[Code]bool{} // true for those of the ids
	for _, verdict := range x.judged(node) {
		for _, reason := range verdict.Reasons {
			ofCards[reason.Code] = ofCards[reason.Code] || slices.Contains(ids, verdict.Function.ID.Device)
		}
	}
	var out []Finding
	for _, f := range x.about[node] {
		mine, isCard := ofCards[f.Code]
		if f.Severity.Level() > Info.Level() && f.link().order() <= LinkAllocatable.order() && (mine || !isCard) {
			out = append(out, *f)
		}
	}
	return out
}

// weak are the codes of what explains nothing when there is another finding, the
// weakest first: a silent agent, a gap in an inventory, and that a node does not serve.
var weak = []Code{"GPU0105", "GPU0215", "GPU0102"}

// mostCausal returns the finding that comes first along the chain, as an error; nil
// when there is none.
func mostCausal(findings []Finding) *Finding {
	if len(findings) == 0 {
		return nil
	}
	same := slices.Clone(findings)
	for _, code := range weak {
		isOther := func(f Finding) bool { return f.Code != code }
		if slices.ContainsFunc(same, isOther) {
			same = slices.DeleteFunc(same, func(f Finding) bool { return !isOther(f) })
		}
	}
	for i := range same {
		same[i].Severity = Error // the chain alone decides
	}
	return &SortCausal(same)[0]
}

// tooFew returns why no node offers as many units as the machine asks for.
func (x *index) tooFew(v *VM, name gpu.ResourceName, most *gpu.Node) (*Finding, []Finding) {
	short := New("GPU0505", v.String(), Values{
		"user": v.String(), "count": itoa(v.Counts()[name]), "name": string(name),
		"most": itoa(most.Allocatable[name]), "node": most.Name,
	})
	if why := mostCausal(x.breaks(most.Name, x.cardsOf(most, name))); why != nil {
		return why, []Finding{short}
	}
	return &short, nil
}
