package patch

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/internal/manifest"
)

// Input is everything a plan depends on. The order of its lists does not matter.
type Input struct {
	Target    Target
	Hosts     []gpu.Host // at most one per node; Node "" is a host of no known node
	Nodes     []gpu.Node
	Workloads []gpu.Workload
	// WorkloadsKnown says that Workloads is complete: without VMs in the input,
	// nobody can tell whether a first entry breaks one.
	WorkloadsKnown bool
	Legacy         []diagnose.Legacy
	Permits        []Permit
	Release        gpu.Release // assumed where no plugin was seen; zero: the newest known
	Force          bool        // Remove: take away entries that instances still use
	Idle           Idle        // Plan: take away own entries that are stale
	// Partial leaves out what must not be written, and plans the rest, where a plan is
	// refused otherwise.
	Partial bool
}

// Permit is a pair that somebody named explicitly: a PCI id, or for vGPUs the
// exact name of a mediated device type, and the resource name.
type Permit struct {
	ID   gpu.ID // zero for a mediated device type
	Mdev string
	Name gpu.ResourceName
}

// Selector returns what the entry of the pair selects by.
func (p Permit) Selector() string {
	if p.Mdev != "" {
		return p.Mdev
	}
	return p.ID.Selector()
}

// Check says why the pair can never work.
func (p Permit) Check() error {
	if why := unfit(p.Name); why != "" {
		return fmt.Errorf("%s=%s: %s", p.Selector(), p.Name, why)
	}
	return nil
}

// ParsePermit reads SELECTOR=NAME. The error begins with the quoted text.
func ParsePermit(text string) (Permit, error) {
	i := strings.LastIndex(text, "=")
	if i <= 0 || i == len(text)-1 {
		return Permit{}, fmt.Errorf("%q: want SELECTOR=NAME, for example 10DE:2335=nvidia.com/GH100_H200_SXM_141GB", text)
	}
	p := Permit{Name: gpu.ResourceName(text[i+1:])}
	selector := text[:i]
	if !strings.Contains(selector, ":") {
		if p.Mdev = selector; !gpu.MdevResource(selector).IsVGPU() {
			return Permit{}, fmt.Errorf("%q: %q is neither vendor:device nor the name of a vGPU type such as \"GRID T4-16Q\"", text, selector)
		}
		return p, nil
	}
	var err error
	if p.ID, err = gpu.ParseID(selector); err != nil {
		return Permit{}, fmt.Errorf("%q: %w", text, err)
	}
	return p, nil
}

// Change is one thing that a plan adds or removes.
type Change struct {
	Op    string `json:"op"` // "add" or "remove"
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
	Why   string `json:"why"`
}

// Result is a plan. Object is the whole object as it should be; Edits lead to it
// from the given one. No edits: everything is wired.
type Result struct {
	Object   manifest.Object
	Edits    []manifest.Edit
	Changes  []Change
	Findings []diagnose.Finding
	LeftOut  []diagnose.Finding // of a partial plan: what it would have been refused for
}

// Plan decides what the target lacks so that the GPUs of the given hosts and
// nodes can be used by VMs. It adds a PCI entry per id and name, and the
// HostDevices gate. It takes away nothing but entries of gpuctl's own that are stale
// ([Idle]), or that make room for their new name in a list with one entry a selector.
// A plan that must not be carried out is a *Refusal.
func Plan(in Input) (Result, error) {
	p, err := newPlanner(in)
	if err != nil {
		return Result{}, err
	}
	// 1. What the nodes and the operator want, each pair with its grounds.
	wants := p.wants()
	// 2. Without what nodes have left behind.
	p.prune(wants)
	// 3. Without what is there, and what must not be added.
	adds := p.missing(wants)
	// 4. The first entry switches enforcement on for everybody.
	if p.breaksOthers(adds) {
		adds = nil
	}
	// 5. The edits, and gpuctl's record of them.
	p.dropLeaving()
	p.gate()
	for _, w := range adds {
		p.add(w)
	}
	p.keepRecord()
	// 6. What is worth knowing besides.
	p.lint(adds)
	return p.result()
}

type planner struct {
	in      Input
	release gpu.Release
	object  string // how findings name the target
	schema  schema
	table   gpu.Table
	record  record
	hosts   map[string]*gpu.Host
	nodes   map[string]*gpu.Node
	sorted  []string                               // their names, once asked for
	serving map[gpu.ID]map[string]gpu.ResourceName // what each node serves the id as

	edits    []manifest.Edit
	changes  []Change
	findings []diagnose.Finding
	refused  bool
	stopped  bool // by the first entry
	dirty    bool // the record changed
	unclear  []ambiguous
	leaving  []leaving
	leftOut  []diagnose.Finding
	kept     []wired // own entries that Remove leaves, since they are in use
	keptGate bool    // and the own gate
}

func newPlanner(in Input) (*planner, error) {
	in.Nodes = slices.SortedFunc(slices.Values(in.Nodes), func(a, b gpu.Node) int { return strings.Compare(a.Name, b.Name) })
	in.Workloads = slices.SortedFunc(slices.Values(in.Workloads), func(a, b gpu.Workload) int { return strings.Compare(a.Ref(), b.Ref()) })
	p := &planner{in: in, release: in.Release, object: in.Target.Ref(), schema: schemaOf(&in.Target)}
	if !p.release.Known() {
		p.release = gpu.Newest()
	}
	var err error
	var odd []diagnose.Finding
	if p.table, odd, err = p.schema.read(in.Target.Object, p.object); err != nil {
		return nil, badShape(p.object, err)
	}
	p.findings = append(p.findings, odd...)
	if p.record, err = readRecord(in.Target.Object); err != nil {
		p.report("GPU0332", p.object, diagnose.Values{"object": p.object, "problem": err.Error()})
	}
	if len(in.Target.PassedOver) > 0 {
		p.report("GPU0331", p.object, diagnose.Values{"objects": strings.Join(in.Target.PassedOver, ", ")})
	}
	p.hosts, p.nodes, p.serving = map[string]*gpu.Host{}, map[string]*gpu.Node{}, map[gpu.ID]map[string]gpu.ResourceName{}
	for i := range in.Hosts {
		p.hosts[in.Hosts[i].Node] = &in.Hosts[i]
	}
	for i := range in.Nodes {
		p.nodes[in.Nodes[i].Name] = &in.Nodes[i]
	}
	return p, nil
}

// report adds a finding; refuse adds one that stops the plan.
func (p *planner) report(code diagnose.Code, object string, values diagnose.Values) {
	p.findings = append(p.findings, diagnose.New(code, object, values))
}

func (p *planner) refuse(code diagnose.Code, object string, values diagnose.Values) {
	p.report(code, object, values)
	p.refused = true
}

// leaveOut refuses the plan, or in a partial one leaves one thing out of it.
func (p *planner) leaveOut(code diagnose.Code, object string, values diagnose.Values) {
	if !p.in.Partial {
		p.refuse(code, object, values)
		return
	}
	p.report(code, object, values)
	p.leftOut = append(p.leftOut, p.findings[len(p.findings)-1])
}

// breaksOthers reports entries that would switch the permit check on while workloads
// use names that would then be refused. Names that nobody could run with today,
// and those that gpuctl would never permit, are reported with the other findings
// and stop nothing.
func (p *planner) breaksOthers(adds []want) bool {
	if p.table.Set || len(adds) == 0 {
		return false
	}
	if !p.in.WorkloadsKnown {
		p.report("GPU0328", p.object, nil)
	}
	planned := map[gpu.ResourceName]bool{}
	for _, w := range adds {
		planned[w.name] = true
	}
	served := diagnose.Served(p.in.Nodes)
	users := map[gpu.ResourceName][]string{}
	for _, w := range p.in.Workloads {
		for _, name := range w.Names() {
			if alive := w.Running || served[name] > 0; alive && !planned[name] && unfit(name) == "" {
				users[name] = append(users[name], w.Ref())
			}
		}
	}
	if len(users) == 0 {
		return false
	}
	var names, who, flags []string
	note := ""
	for _, name := range slices.Sorted(maps.Keys(users)) {
		flag, more := permitHint(name)
		names, flags, note = append(names, string(name)), append(flags, flag), cmp.Or(note, more)
		for _, u := range users[name] {
			who = appendNew(who, u)
		}
	}
	slices.Sort(who)
	p.stopped = true
	p.leaveOut("GPU0319", p.object, diagnose.Values{
		"names": strings.Join(names, ", "), "users": someOf(who), "permit": strings.Join(flags, " "), "note": note,
	})
	return true
}

// gate ensures HostDevices, which hostDevices entries of VMs need.
func (p *planner) gate() {
	if p.schema.gates == nil {
		return
	}
	gates, err := p.schema.strings(p.in.Target.Object, p.schema.gates)
	disabled, err2 := p.schema.strings(p.in.Target.Object, p.schema.disabled)
	for _, e := range []error{err, err2} {
		if e != nil {
			p.refuse("GPU0321", p.object, diagnose.Values{"object": p.object, "problem": e.Error()})
			return
		}
	}
	p.findings = append(p.findings, misspeltGates(gates, p.object)...)
	if slices.Contains(disabled, gate) {
		p.refuse("GPU0314", p.object, diagnose.Values{"object": p.object})
		return
	}
	if slices.Contains(gates, gate) {
		return
	}
	p.record.Gate = true
	p.append(p.schema.gates, gate, "VMs with hostDevices need the gate")
}

// add appends one entry.
func (p *planner) add(w want) {
	list, key := gpu.ListPCI, p.schema.pciSelector
	if w.mdev != "" {
		list, key = gpu.ListMdev, "mdevNameSelector"
	}
	entry := manifest.Fields{{Key: key, Value: w.selector()}, {Key: "resourceName", Value: string(w.name)}, {Key: "externalResourceProvider", Value: !w.inTree}}
	p.record.add(wired{list, w.selector(), w.name, w.inTree, w.how == gpu.Explicit})
	p.append(p.schema.list(list), entry, w.why())
}

func (p *planner) append(path manifest.Path, value any, why string) {
	p.record.noteMissing(p.in.Target.Object, path)
	p.dirty = true
	p.edits = append(p.edits, manifest.Append{Path: path, Value: value})
	if fields, ok := value.(manifest.Fields); ok {
		value = fields.Map()
	}
	p.changes = append(p.changes, Change{Op: "add", Path: path.String(), Value: value, Why: why})
}

// keepRecord writes the annotation when the plan adds something.
func (p *planner) keepRecord() {
	if !p.dirty {
		return
	}
	p.record.noteMissing(p.in.Target.Object, annotations)
	p.edits = append(p.edits, manifest.Set{Path: join(annotations, RecordKey), Value: jsonText(p.record)})
}

func (p *planner) result() (Result, error) {
	findings := diagnose.Sort(p.findings)
	if p.refused {
		return Result{}, &Refusal{Findings: findings}
	}
	object, err := manifest.ApplyTo(p.in.Target.Object, p.edits)
	if err != nil {
		return Result{}, badShape(p.object, err)
	}
	return Result{Object: object, Edits: p.edits, Changes: p.changes, Findings: findings, LeftOut: p.leftOut}, nil
}
