package diagnose

import (
	"slices"
	"strings"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// errand is a machine that names devices, and how they stand.
type errand struct {
	*index
	vm     *VM
	said   []symptom
	word   *symptom   // what gpuctl said last of its start, nil when it has said nothing
	named  []*Device  // those that it names, and that there are
	made   []*Device  // from its templates
	lacks  []Template // from which there is none yet
	judged SetJudgement
}

// errandLinks are the chain of a machine that names devices: what is ordered, and then
// what that needs.
func errandLinks() []Link {
	return []Link{
		LinkOrder, LinkClass, LinkBudget, LinkPlacement, LinkFunction, LinkDriver, LinkGroup, LinkPlugin, LinkAllocatable, LinkTable,
		LinkGate, LinkSpec, LinkInstance, LinkLauncher, LinkDomain,
	}
}

// errand walks the chain of a machine that names devices.
func (x *index) errand(v *VM, said []symptom) (chain Chain, more []Finding) {
	e := x.newErrand(v, said)
	w := walker{chain: Chain{Subject: v.String(), VM: v}}
	if v.Running() {
		return e.running(&w)
	}
	f := e.orders()
	w.check(LinkOrder, f, e.ordersText())
	if f == nil && !v.Mould && !v.Live() {
		e.judged = e.judge()
	}
	asks := e.asking()
	supply, beside := x.supply(asks)
	for _, link := range errandLinks()[1:] {
		if v.Mould && link.order() > LinkSpec.order() && link != LinkClass {
			continue // nobody places a mould, or starts it
		}
		e.step(&w, link, asks, supply)
	}
	root := w.chain.Root()
	switch {
	case root == nil:
	case root.Code == "GPU0702" && supply != nil:
		more = slices.Concat(beside, []Finding{*supply}) // why no node serves it
	case supply != nil && root.Code == supply.Code:
		more = beside
	}
	if v.Mould {
		return w.chain, more
	}
	return w.chain, append(more, x.consequences(v, said, root)...)
}

// step looks at one link behind the order.
func (e *errand) step(w *walker, link Link, asks *VM, supply *Finding) {
	f, text, known := e.look(link, asks)
	if f == nil && supply != nil && supply.link() == link {
		f = supply
	}
	if f == nil && !known && !w.broken {
		w.on(link, Unknown, "")
		return
	}
	w.check(link, f, text)
}

func (x *index) newErrand(v *VM, said []symptom) *errand {
	e := &errand{index: x, vm: v, said: said, word: lastWord(v, said), lacks: slices.Clone(v.Templates)}
	for _, name := range v.Orders {
		if d := x.ordered(v.Namespace, name); d != nil {
			e.named = append(e.named, d)
		}
	}
	for i := range x.Devices {
		d := &x.Devices[i]
		if !d.Made || !v.mine(d) || !d.Deleted.IsZero() || slices.Contains(v.Orders, d.Name) {
			continue
		}
		if at := slices.Index(e.lacks, Template{d.Class, d.Count}); at >= 0 {
			e.made, e.lacks = append(e.made, d), slices.Delete(e.lacks, at, at+1)
		}
	}
	return e
}

// running is the chain of a machine that runs: all passes. Units that are lost are told
// beside it.
func (e *errand) running(w *walker) (chain Chain, more []Finding) {
	w.on(LinkOrder, Passed, e.ordersText())
	for _, link := range errandLinks()[1:] {
		switch link {
		case LinkClass, LinkBudget: // what it has it keeps
		case LinkPlacement:
			w.on(link, Passed, e.place())
		case LinkLauncher:
			w.on(link, Passed, e.launcherText())
		default:
			w.on(link, Passed, e.passedText(link, e.vm))
		}
	}
	for _, d := range e.devices() {
		if f := e.lost(d); f != nil {
			f.Severity = Warning // the VM runs
			more = append(more, *f)
		}
	}
	return w.chain, more
}

// devices returns those that there are.
func (e *errand) devices() []*Device { return slices.Concat(e.named, e.made) }

// judge asks the books about what the machine would start with.
func (e *errand) judge() SetJudgement {
	if e.JudgeSet == nil {
		return SetJudgement{}
	}
	ask := Ask{Object: e.vm.String(), Namespace: e.vm.Namespace, New: e.lacks}
	for _, d := range e.devices() {
		ask.Devices = append(ask.Devices, d.Name)
	}
	return e.JudgeSet(ask)
}

// asking is the machine with the names that its devices come to: before it has an
// instance, it asks for none itself.
func (e *errand) asking() *VM {
	if e.vm.Live() {
		return e.vm
	}
	v := *e.vm
	v.Devices = nil
	add := func(name gpu.ResourceName, count int64) {
		for range count {
			if name != "" {
				v.Devices = append(v.Devices, gpu.Device{Field: "gpus", Name: name})
			}
		}
	}
	for _, d := range e.devices() {
		name := gpu.ResourceName(d.Resource)
		if name == "" && e.Judge != nil {
			name = e.Judge(d.Namespace, d.Name).Class.Resource
		}
		add(name, d.Count)
	}
	for _, t := range e.lacks {
		add(e.judged.Resources[t.Class], t.Count)
	}
	return &v
}

// refusedAt returns what the books refuse the set for, if it belongs to the link.
func (e *errand) refusedAt(link Link) *Finding {
	if r := e.judged.Refusal; r != nil && startLink(r.Code) == link {
		f := r.Finding
		return &f
	}
	return nil
}

// saidAt returns what gpuctl said last, if it belongs to the link.
func (e *errand) saidAt(link Link) *Finding {
	if e.word != nil && startLink(e.word.code) == link {
		return passOn(e.vm, e.word)
	}
	return nil
}

// look says what breaks a link behind the order, or what is known of it.
func (e *errand) look(link Link, asks *VM) (f *Finding, text string, known bool) {
	switch link {
	case LinkClass, LinkBudget, LinkPlacement:
		return e.books(link)
	case LinkTable:
		f = e.permit(asks, e.said)
		if f == nil && e.Wiring == nil {
			f = e.saidAt(link)
		}
	case LinkGate:
		f = e.gate(asks, e.said)
	case LinkSpec:
		f = e.shape(asks)
	case LinkInstance:
		return e.instanceOf()
	case LinkLauncher:
		return e.launcherOf()
	case LinkDomain:
		return e.later(link, e.vm, e.said), "", false // one that has come up runs
	}
	if len(asks.Devices) == 0 {
		return f, "", false
	}
	return f, e.passedText(link, asks), e.knows(link) && !e.cardless(link, asks)
}

// shape returns why the machine's specification does not go with its devices.
func (e *errand) shape(asks *VM) *Finding {
	if f := e.early(asks, e.said); f != nil {
		return f
	}
	if e.vm.Live() || e.vm.Kind != "VirtualMachine" { // an instance has those that gpuctl gave it
		return nil
	}
	for _, name := range e.vm.names() {
		if e.concerns(name) {
			f := New("GPU0638", e.vm.String(), Values{"text": e.vm.String(), "name": string(name)})
			return &f
		}
	}
	return e.saidAt(LinkSpec)
}

// place says where the devices are: "worker-7 (4 of 8 free)".
func (e *errand) place() string {
	var out []string
	for _, d := range e.devices() {
		text := d.Node
		if text == "" {
			continue
		}
		if e.Judge != nil {
			if j := e.Judge(d.Namespace, d.Name); j.Served > 0 {
				text += " (" + itoa(max(j.Served-j.Held, 0)) + " of " + itoa(j.Served) + " free)"
			}
		}
		if !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	return strings.Join(out, ", ")
}
