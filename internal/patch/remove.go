package patch

import (
	"slices"

	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/internal/manifest"
)

// Remove plans the removal of exactly what gpuctl recorded as its own: entries,
// the gate, and the mappings and lists it created, as far as they are empty
// again. An entry that somebody changed since is no longer gpuctl's. A target
// without a record needs no change.
func Remove(in Input) (Result, error) {
	p, err := newPlanner(in)
	if err != nil {
		return Result{}, err
	}
	p.removeEntries()
	if p.gateInUse() {
		p.keptGate = p.record.Gate
	} else {
		p.removeGate()
	}
	p.shrinkRecord()
	if err := p.removeEmpty(); err != nil {
		return Result{}, err
	}
	return p.result()
}

// shrinkRecord deletes gpuctl's record, or leaves in it what had to stay.
func (p *planner) shrinkRecord() {
	path := join(annotations, RecordKey)
	_, there := manifest.Lookup(p.in.Target.Object, path)
	switch {
	case !there || len(p.edits) == 0 && (len(p.kept) > 0 || p.keptGate):
	case len(p.kept) == 0 && !p.keptGate:
		p.edits = append(p.edits, manifest.Delete{Path: path})
	default:
		p.record.Entries, p.record.Gate = p.kept, p.keptGate
		p.edits = append(p.edits, manifest.Set{Path: path, Value: jsonText(p.record)})
	}
}

// removeEntries removes the recorded entries, the last of equal ones first: ours
// were appended.
func (p *planner) removeEntries() {
	mine := slices.Clone(p.record.Entries)
	for _, e := range slices.Backward(p.table.Entries) {
		j := slices.IndexFunc(mine, func(w wired) bool { return w.is(e) })
		if j < 0 || e.Disabled {
			continue
		}
		own := mine[j]
		mine = slices.Delete(mine, j, j+1)
		if users := p.users(e.Name); len(users) > 0 && !p.in.Force {
			p.kept = append(p.kept, own)
			p.report("GPU0326", p.object, diagnose.Values{"selector": e.Selector, "name": string(e.Name), "users": someOf(users)})
			continue
		}
		p.drop(p.schema.list(e.List), e.Index, e)
	}
}

// gateInUse reports an instance with host devices that is not finished: without
// the gate it could not be started again.
func (p *planner) gateInUse() bool {
	return !p.in.Force && slices.ContainsFunc(p.in.Workloads, func(w gpu.Workload) bool {
		return w.Active && slices.ContainsFunc(w.Devices, func(d gpu.Device) bool { return d.Field == "hostDevices" })
	})
}

// users returns the instances that are not finished and ask for the name.
func (p *planner) users(name gpu.ResourceName) []string {
	var out []string
	for _, w := range p.in.Workloads {
		if w.Active && slices.Contains(w.Names(), name) {
			out = append(out, w.Ref())
		}
	}
	return out
}

func (p *planner) drop(path manifest.Path, index int, e gpu.Entry) {
	key := p.schema.selectorKey(e.List)
	p.edits = append(p.edits, manifest.RemoveItem{Path: path, Index: index})
	p.changes = append(p.changes, Change{
		Op: "remove", Path: path.String(), Why: "written by gpuctl",
		Value: map[string]any{key: e.Selector, "resourceName": string(e.Name), "externalResourceProvider": e.External},
	})
}

func (p *planner) removeGate() {
	if !p.record.Gate || p.schema.gates == nil {
		return
	}
	v, _ := manifest.Lookup(p.in.Target.Object, p.schema.gates)
	items, _ := v.([]any)
	for i, item := range slices.Backward(items) {
		if item == gate {
			p.edits = append(p.edits, manifest.RemoveItem{Path: p.schema.gates, Index: i})
			p.changes = append(p.changes, Change{Op: "remove", Path: p.schema.gates.String(), Value: gate, Why: "written by gpuctl"})
			return
		}
	}
}

// removeEmpty takes away the recorded containers that are empty now, innermost
// first, and puts back the nulls that stood in their place.
func (p *planner) removeEmpty() error {
	now, err := manifest.ApplyTo(p.in.Target.Object, p.edits)
	if err != nil {
		return badShape(p.object, err)
	}
	for _, path := range p.containers() {
		v, ok := manifest.Lookup(now, path)
		if !ok || !isEmpty(v) {
			continue
		}
		var edit manifest.Edit
		switch {
		case slices.Contains(p.record.Nulls, path.String()):
			edit = manifest.Set{Path: path, Value: nil}
		case p.created(path):
			edit = manifest.Delete{Path: path}
		default:
			continue
		}
		p.edits = append(p.edits, edit)
		if now, err = manifest.ApplyTo(now, []manifest.Edit{edit}); err != nil {
			return badShape(p.object, err)
		}
	}
	return nil
}

// containers returns every path that gpuctl can have created, innermost first.
func (p *planner) containers() []manifest.Path {
	var out []manifest.Path
	for _, leaf := range []manifest.Path{p.schema.list(gpu.ListPCI), p.schema.list(gpu.ListMdev), p.schema.gates, annotations} {
		for n := len(leaf); n > 0; n-- {
			if !slices.ContainsFunc(out, func(o manifest.Path) bool { return o.String() == leaf[:n].String() }) {
				out = append(out, leaf[:n])
			}
		}
	}
	slices.SortStableFunc(out, func(a, b manifest.Path) int { return len(b) - len(a) })
	return out
}

// created reports whether the record says that gpuctl created path: it, or a
// container around it, was missing or null.
func (p *planner) created(path manifest.Path) bool {
	for n := len(path); n > 0; n-- {
		at := path[:n].String()
		if slices.Contains(p.record.Created, at) || n < len(path) && slices.Contains(p.record.Nulls, at) {
			return true
		}
	}
	return false
}

func isEmpty(v any) bool {
	switch t := v.(type) {
	case map[string]any:
		return len(t) == 0
	case []any:
		return len(t) == 0
	}
	return false
}
