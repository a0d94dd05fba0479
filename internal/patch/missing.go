package patch

import (
	"slices"
	"strings"

	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/internal/gpu"
)

// missing returns the wants that the table lacks and may be given.
func (p *planner) missing(wants []want) []want {
	explicit, certain := map[gpu.ID]bool{}, map[gpu.ID]bool{}
	for _, w := range wants {
		explicit[w.id] = explicit[w.id] || w.how == gpu.Explicit && w.mdev == ""
		certain[w.id] = certain[w.id] || w.how != gpu.Predicted
	}
	var out []want
	for _, w := range wants {
		switch {
		case w.mdev != "" && p.hasMdev(w), w.mdev == "" && p.table.Has(w.id, w.name):
			p.present(w)
		case w.how == gpu.Predicted && explicit[w.id]: // the operator has named the pair
		case w.how == gpu.Predicted && p.schema.keyed && certain[w.id]: // one name a selector, and another is certain
		case w.how == gpu.Predicted && p.inTree(w):
		case p.schema.keyed && w.mdev == "" && p.conflict(w, out):
		default:
			if w.how == gpu.Predicted {
				p.report("GPU0401", p.object, diagnose.Values{
					"id": w.selector(), "name": string(w.name), "release": p.release.String(), "nodes": someOf(w.nodes),
				})
			}
			out = append(out, w)
		}
	}
	return out
}

func (p *planner) hasMdev(w want) bool {
	return slices.ContainsFunc(p.table.Entries, func(e gpu.Entry) bool {
		return e.List == gpu.ListMdev && e.Selector == w.mdev && e.Name == w.name
	})
}

// present reports a wanted pair that is there but switched off.
func (p *planner) present(w want) {
	for _, e := range p.table.Of(w.id) {
		if e.Name == w.name && e.Disabled {
			p.report("GPU0318", p.object, diagnose.Values{"target": p.object, "selector": e.Selector, "name": string(e.Name)})
			return
		}
	}
}

// inTree reports whether the selector is taken by in-tree entries: KubeVirt
// serves these cards itself, and a prediction is no reason to add a second
// provider.
func (p *planner) inTree(w want) bool {
	var names []string
	for _, e := range p.table.Of(w.id) {
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

// conflict refuses a second name for a selector in a list that is keyed by it.
func (p *planner) conflict(w want, adds []want) bool {
	values := diagnose.Values{
		"target": p.object, "selector": w.selector(), "want": string(w.name), "disabled": "", "enable": "",
		"source": w.source(),
	}
	if there := p.table.Of(w.id); len(there) > 0 { // the key allows one
		values["have"] = string(there[0].Name)
		if there[0].Disabled {
			values["disabled"], values["enable"] = " (disabled: true)", ", and remove disabled: true"
		}
		p.refuse("GPU0317", p.object, values)
		return true
	}
	for _, other := range adds {
		if other.id == w.id {
			values["have"] = string(other.name) + " (" + other.source() + " it so)"
			p.refuse("GPU0317", p.object, values)
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
		after.Entries = append(after.Entries, gpu.Entry{List: list, Selector: w.selector(), Name: w.name, External: true})
	}
	p.findings = append(p.findings, p.schema.misplaced(t, p.object)...)
	p.findings = append(p.findings, diagnose.Table(p.object, after, p.in.Nodes)...)
	p.findings = append(p.findings, diagnose.Workloads(after, p.in.Nodes, p.in.Workloads, permitHint)...)
	for _, l := range p.in.Legacy {
		p.findings = append(p.findings, l.finding())
	}
	if t.Managed != nil {
		p.report("GPU0316", t.Managed.Ref(), diagnose.Values{"object": t.Managed.Ref(), "target": p.object})
	}
}
