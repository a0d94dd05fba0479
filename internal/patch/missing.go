package patch

import (
	"slices"
	"strings"

	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/internal/gpu"
)

// missing returns the wants that the table lacks and may be given.
func (p *planner) missing(wants []want) []want {
	explicit, certain := map[string]bool{}, map[string]bool{}
	for _, w := range wants {
		explicit[w.device()] = explicit[w.device()] || w.how == gpu.Explicit
		certain[w.device()] = certain[w.device()] || w.how != gpu.Predicted
	}
	var out []want
	for _, w := range wants {
		// The operator has named the pair; or another name is certain, and the list holds
		// one a selector, or nothing but the newest release speaks for the prediction.
		outdone := w.how == gpu.Predicted && (explicit[w.device()] || certain[w.device()] && (p.schema.keyed || !p.pluginSeen(w)))
		switch {
		case p.has(w):
			p.present(w)
		case outdone, w.how == gpu.Predicted && p.taken(w), p.conflict(w, out):
		default:
			p.predicted(w)
			out = append(out, w)
		}
	}
	return out
}

// pluginSeen reports that the device plugin was seen on a node that wants the pair.
func (p *planner) pluginSeen(w want) bool {
	return slices.ContainsFunc(w.nodes, func(name string) bool {
		n := p.nodes[name]
		return n != nil && n.Plugin.Known()
	})
}

// predicted says of a want that is one that it is a prediction.
func (p *planner) predicted(w want) {
	if w.how == gpu.Predicted && !w.inTree { // KubeVirt takes the name from the entry
		p.report("GPU0401", p.object, diagnose.Values{
			"id": w.selector(), "name": string(w.name), "release": assumed(w.release), "nodes": someOf(w.nodes),
		})
	}
}

// assumed names a release, and says when its names are not really known here.
func assumed(r gpu.Release) string {
	switch {
	case r.Compare(gpu.Newest()) > 0:
		return r.String() + " (not known here, taken for " + gpu.Newest().String() + ")"
	case r.NamesAnyVendor():
		return r.String() + " (which may take another vendor's name: it matches ids on any line)"
	default:
		return r.String()
	}
}

// has reports that the table has the pair.
func (p *planner) has(w want) bool {
	return slices.ContainsFunc(p.selecting(w), func(e gpu.Entry) bool { return e.Name == w.name })
}

// selecting returns the entries that select the same devices.
func (p *planner) selecting(w want) []gpu.Entry {
	if w.mdev == "" {
		return p.table.Of(w.id)
	}
	var out []gpu.Entry
	for _, e := range p.table.Entries {
		if e.List == gpu.ListMdev && spell(e.Selector) == w.device() {
			out = append(out, e)
		}
	}
	return out
}

// present reports a wanted pair that is there but switched off.
func (p *planner) present(w want) {
	for _, e := range p.selecting(w) {
		if e.Name == w.name && e.Disabled {
			p.report("GPU0318", p.object, diagnose.Values{"target": p.object, "selector": e.Selector, "name": string(e.Name)})
			return
		}
	}
}

// taken reports whether a prediction has to give way to what the table says of
// the selector. KubeVirt serves in-tree entries itself, and a prediction is no
// reason to add a second provider; a disabled entry is an administrator's word.
func (p *planner) taken(w want) bool {
	var names []string
	for _, e := range p.selecting(w) {
		if e.Disabled {
			p.report("GPU0318", p.object, diagnose.Values{"target": p.object, "selector": e.Selector, "name": string(e.Name)})
			return true
		}
		if !e.External {
			names = append(names, string(e.Name))
		}
	}
	if len(names) == 0 {
		return false
	}
	p.report("GPU0403", p.object, diagnose.Values{"id": w.selector(), "names": strings.Join(names, ", "), "name": string(w.name)})
	return true
}

// conflict refuses a second name for a selector in a list that is keyed by it, unless
// the first is gpuctl's own and can go.
func (p *planner) conflict(w want, adds []want) bool {
	if !p.schema.keyed {
		return false
	}
	p.supersede(w)
	for _, e := range p.table.Entries {
		id, ok := e.ID()
		if same := w.mdev == "" && ok && id == w.id || w.mdev != "" && e.List == gpu.ListMdev && e.Selector == w.mdev; !same {
			continue
		}
		values := diagnose.Values{
			"target": p.object, "selector": w.selector(), "have": string(e.Name), "disabled": "", "enable": "", "source": w.source(), "want": string(w.name),
		}
		if e.Disabled {
			values["disabled"], values["enable"] = " (disabled: true)", ", and remove disabled: true"
		}
		p.leaveOut("GPU0317", p.object, values)
		return true
	}
	for _, other := range adds {
		if other.selector() == w.selector() {
			p.leaveOut("GPU0329", p.object, diagnose.Values{
				"target": p.object, "selector": w.selector(), "one": string(other.name), "onewhy": other.why(), "two": string(w.name), "twowhy": w.why(),
			})
			return true
		}
	}
	return false
}

// source says who gives the pair its name, as the subject of a sentence.
func (w want) source() string {
	switch w.how {
	case gpu.Explicit:
		return "--permit names it"
	case gpu.Predicted:
		return "the device plugin is expected to name it"
	default:
		return someOf(w.nodes) + " serves it as"
	}
}

// lint reports what is wrong around the plan and is left as it is.
func (p *planner) lint(adds []want) {
	t := &p.in.Target
	after := gpu.Table{Set: p.table.Set || len(adds) > 0, Entries: slices.Clone(p.table.Entries)}
	for _, w := range adds {
		list := gpu.ListPCI
		if w.mdev != "" {
			list = gpu.ListMdev
		}
		after.Entries = append(after.Entries, gpu.Entry{List: list, Selector: w.selector(), Name: w.name, External: !w.inTree})
	}
	if p.stopped { // what holds while the table is unset
		after = p.table
	}
	p.reportUnclear(after)
	p.dropGrace()
	p.findings = append(p.findings, p.schema.misplaced(t, p.object)...)
	p.findings = append(p.findings, diagnose.Table(p.object, after, p.in.Nodes)...)
	p.findings = append(p.findings, diagnose.Workloads(after, p.in.Nodes, p.in.Workloads, permitText)...)
	for _, l := range p.in.Legacy {
		p.findings = append(p.findings, l.Finding())
	}
	if t.Managed != nil {
		p.report("GPU0316", t.Managed.Ref(), diagnose.Values{"object": t.Managed.Ref(), "target": p.object})
	}
}

// dropGrace takes back that Grace needs a gate when the gate is there.
func (p *planner) dropGrace() {
	gates, _ := p.schema.strings(p.in.Target.Object, p.schema.gates)
	if slices.Contains(gates, "GraceIOVirtualization") {
		p.findings = slices.DeleteFunc(p.findings, func(f diagnose.Finding) bool { return f.Code == "GPU0211" })
	}
}
