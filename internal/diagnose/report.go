package diagnose

import (
	"slices"
	"strings"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// Subject is what a diagnosis is about; the zero Subject is the whole cluster.
type Subject struct {
	Kind      string // "vm", "vmi", "node" or "device"
	Namespace string
	Name      string
}

// Report is what a diagnosis came to.
type Report struct {
	Findings []Finding // most causal first
	Chains   []Chain   // of the subject, or of what has a broken link
}

// diagnosis is one in the making.
type diagnosis struct {
	*index
	vms      []VM
	places   map[Ref]int       // of vms, by namespace and name
	symptoms map[Ref][]symptom // by machine
	found    []Finding
	chains   []Chain
	covered  map[string]bool // objects whose root cause is known
	ok       bool            // the subject was found
}

// Diagnose walks the chain for every node and every VM, and puts what broke it
// first. ok is false when the subject is not among the evidence.
func Diagnose(e *Evidence, subject Subject) (r Report, ok bool) {
	return newDiagnosis(e).run(subject)
}

// newDiagnosis puts the evidence into order and looks it up.
func newDiagnosis(e *Evidence) *diagnosis {
	all := ordered(e)
	all.Findings = gathered(&all)
	d := &diagnosis{index: newIndex(&all), symptoms: map[Ref][]symptom{}}
	d.collect()
	return d
}

// run walks what the subject is about.
func (d *diagnosis) run(subject Subject) (r Report, ok bool) {
	for i := range d.Nodes {
		d.node(&d.Nodes[i], subject)
	}
	for i := range d.vms {
		d.vm(&d.vms[i], subject)
	}
	d.orders(subject)
	d.wiring(subject)
	d.logs(subject)
	for _, f := range d.untold() {
		if subject.Name == "" || f.Code == "GPU0130" { // what was not read may have told more
			d.found = append(d.found, f)
		}
	}
	d.controller(subject)
	d.ok = d.ok || subject.Name == ""
	return Report{Findings: SortCausal(d.settled()), Chains: d.chains}, d.ok
}

// heard is what one message says, whoever it is about.
type heard struct{ reason, text string }

// collect brings the messages to the machines that they are about.
func (d *diagnosis) collect() {
	d.covered = map[string]bool{}
	d.vms = slices.Clone(d.VMs)
	d.places = map[Ref]int{}
	for i := range slices.Backward(d.vms) {
		d.places[Ref{Namespace: d.vms[i].Namespace, Name: d.vms[i].Name}] = i
	}
	launches := map[Ref]Ref{} // pods to instances
	for i := range slices.Backward(d.Pods) {
		if p := &d.Pods[i]; p.VM != "" {
			launches[Ref{"Pod", p.Namespace, p.Name}] = Ref{"VirtualMachineInstance", p.Namespace, p.VM}
		}
	}
	var known memo[heard, []symptom]
	for i := range d.Messages {
		m := &d.Messages[i]
		said := known.of(heard{m.Reason, m.Text}, func(heard) []symptom { return read(m) })
		if len(said) == 0 {
			continue
		}
		about := m.About
		if launched, ok := launches[about]; ok {
			about = launched
		}
		v := d.machineOf(about)
		if v == nil || v.Running() || !m.At.IsZero() && !v.Created.IsZero() && m.At.Before(v.Created) {
			continue
		}
		for _, s := range said {
			s.message = m // the same words may have been read of another
			d.symptoms[v.Ref] = append(d.symptoms[v.Ref], s)
		}
	}
}

// machineOf returns the machine that an event's object belongs to. One that is not
// among the evidence is made up of its name; nil when there is none to think of.
func (d *diagnosis) machineOf(about Ref) *VM {
	switch about.Kind {
	case "":
		if len(d.vms) == 1 {
			return &d.vms[0]
		}
		return nil
	case "VirtualMachine", "VirtualMachineInstance":
	case "Pod":
		return d.launchedBy(about.Namespace, about.Name)
	default:
		return nil
	}
	place := Ref{Namespace: about.Namespace, Name: about.Name}
	i, ok := d.places[place]
	if !ok {
		i = len(d.vms)
		d.places[place] = i
		d.vms = append(d.vms, VM{Ref: about})
	}
	return &d.vms[i]
}

// launchedBy returns the machine that a launcher belongs to by its name.
func (d *diagnosis) launchedBy(namespace, pod string) *VM {
	name, ok := strings.CutPrefix(pod, "virt-launcher-")
	if !ok {
		return nil
	}
	if i := strings.LastIndexByte(name, '-'); i > 0 {
		name = name[:i] // what the API server made up behind generateName
	}
	return d.machineOf(Ref{"VirtualMachineInstance", namespace, name})
}

// node walks one node: its first broken link is an error when the node is meant
// for GPUs and serves none.
func (d *diagnosis) node(n *gpu.Node, subject Subject) {
	mine := subject.Kind == "node" && subject.Name == n.Name
	if subject.Name != "" && !mine {
		return
	}
	breaks := d.breaks(n.Name, d.allCards(n))
	var root *Finding
	if _, meant := Unserved(n, d.hosts[n.Name]); meant {
		root = mostCausal(breaks)
	}
	if root != nil && (root.Code != "GPU0102" || mine) {
		d.found = append(d.found, *root)
	}
	if !mine {
		return
	}
	d.ok = true
	for _, f := range d.about[n.Name] {
		d.found = append(d.found, *f)
	}
	for _, name := range Unpermitted(n, d.table()) {
		d.found = append(d.found, *d.notPermitted(name, d.Wiring.Object))
	}
	d.chains = append(d.chains, d.nodeChain(n, root))
}

func (d *diagnosis) allCards(n *gpu.Node) []gpu.DeviceID {
	var out []gpu.DeviceID
	if h := d.hosts[n.Name]; h != nil {
		for _, f := range h.GPUs() {
			out = append(out, f.ID.Device)
		}
	}
	return out
}

// vm walks one machine.
func (d *diagnosis) vm(v *VM, subject Subject) {
	mine := (subject.Kind == "vm" || subject.Kind == "vmi") && subject.Name == v.Name && subject.Namespace == v.Namespace
	if subject.Name != "" && !mine {
		return
	}
	d.ok = d.ok || mine
	said := d.symptoms[v.Ref]
	if len(v.Claims) > 0 && d.dra() {
		d.found = append(d.found, d.claims(v))
	}
	if !v.refers() && !slices.ContainsFunc(v.names(), d.concerns) && (d.heard(v, said) || !mine) {
		return
	}
	if (v.Halted || v.Running()) && !mine {
		return
	}
	d.walk(v, said, mine)
}

// heard takes what messages say of a machine that is not known to want a GPU. It
// reports whether they tell of one, so that the machine's chain was walked.
func (d *diagnosis) heard(v *VM, said []symptom) bool {
	for i := range said {
		s := &said[i]
		if f := d.symptomFinding(v, s); f != nil {
			if s.aboutDevice() {
				d.found = append(d.found, *f)
			}
			continue
		}
		if s.told || s.code == "GPU0301" || s.code == "GPU0302" || s.code == "GPU0315" || d.lacksGPU(v, s) {
			d.fromMessages(v, said)
			return true
		}
	}
	return false
}

// lacksGPU reports that the scheduler names a GPU that is short, for a machine of which
// nothing else is known.
func (d *diagnosis) lacksGPU(v *VM, s *symptom) bool {
	return s.code == "GPU0506" && len(v.Devices) == 0 && d.concerns(s.name)
}

// walk walks a machine's chain and keeps what it found.
func (d *diagnosis) walk(v *VM, said []symptom, always bool) {
	chain, more := d.machine(v, said)
	root := chain.Root()
	if root != nil {
		d.found = append(d.found, *root)
		d.covered[v.String()] = true
	}
	d.found = append(d.found, more...)
	if always || root != nil {
		d.chains = append(d.chains, chain)
	}
}

// fromMessages walks a machine of which nothing but messages is known.
func (d *diagnosis) fromMessages(v *VM, said []symptom) {
	for _, s := range said {
		if s.name != "" && len(v.Devices) == 0 {
			v.Devices = []gpu.Device{{Field: "gpus", Name: s.name}}
		}
	}
	d.walk(v, said, false)
}

func (d *diagnosis) dra() bool { return d.Wiring == nil || d.Wiring.DRA != gpu.Absent }

func (d *diagnosis) claims(v *VM) Finding {
	hint := "take GPUsWithDRA and HostDevicesWithDRA out of featureGates; from KubeVirt 1.9 list them under disabledFeatureGates"
	if d.Wiring != nil {
		hint += ": in " + d.Wiring.Object
	}
	return New("GPU0512", v.String(), Values{"user": v.String(), "devices": strings.Join(v.Claims, ", "), "hint": hint})
}

// settled returns what was found, without what the root causes say better.
func (d *diagnosis) settled() []Finding {
	raisedAs := map[Finding]bool{}
	for _, f := range d.found {
		if f.Severity == Error {
			raisedAs[f] = true
		}
	}
	explained := map[string]bool{} // nodes of which it is known why they serve nothing
	for _, f := range d.found {
		node, _, _ := strings.Cut(f.Object, " ")
		explained[node] = explained[node] || f.Severity == Error && f.Code != "GPU0102" && f.link().order() < LinkTable.order()
	}
	machines := map[string]*VM{}
	for i := range d.vms {
		machines[d.vms[i].String()] = &d.vms[i]
	}
	return slices.DeleteFunc(d.found, func(f Finding) bool {
		if f.Severity != Error && raisedAs[*raised(f)] {
			return true
		}
		if f.Severity == Error {
			return false
		}
		switch f.Code {
		case "GPU0102":
			return explained[f.Object]
		case "GPU0501", "GPU0502", "GPU0503", "GPU0504":
			instance, isInstance := strings.CutPrefix(f.Object, "VirtualMachineInstance ")
			if v := machines[f.Object]; v != nil && f.Code == "GPU0501" && d.others(v, &f) {
				return true
			}
			covered := f.Code == "GPU0501" || f.Code == "GPU0504"
			return covered && d.covered[f.Object] || isInstance && machines["VirtualMachine "+instance] != nil
		}
		return false
	})
}
