package diagnose

import (
	"maps"
	"slices"
	"strings"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// books says how a link stands that the books judge: the devices that wait for units, and
// then all that the machine starts with.
func (e *errand) books(link Link) (f *Finding, text string, known bool) {
	if f := e.waitingAt(link); f != nil {
		return f, "", true
	}
	if f := e.refusedAt(link); f != nil {
		return f, "", true
	}
	if !e.superseded(link) {
		if f := e.saidAt(link); f != nil {
			return f, "", true
		}
	}
	switch link {
	case LinkClass:
		text = e.classText()
	case LinkBudget:
		text = e.budgetText()
	default:
		if f := e.leaderless(); f != nil {
			return f, "", true
		}
		text = e.placementText()
	}
	return nil, text, text != ""
}

// waitingAt returns why a device of the machine has no units, if it belongs to the link.
// It is judged by itself: a set of devices cannot have what one of them cannot.
func (e *errand) waitingAt(link Link) *Finding {
	if e.vm.Live() || e.vm.Mould {
		return nil
	}
	for _, d := range e.devices() {
		if d.Node != "" {
			continue
		}
		c := custody{index: e.index, Device: d}
		if e.Judge != nil {
			c.judged = e.Judge(d.Namespace, d.Name)
		}
		f, _, _ := c.look(link)
		if f == nil || f.Code == "GPU0624" && e.Wiring != nil {
			continue // the link of the table has more to say
		}
		f.Object = e.vm.String()
		f.Message = "GPUDevice " + d.Name + ": " + f.Message
		return f
	}
	return nil
}

// superseded reports that the books, or what else is read now, say otherwise than gpuctl
// did when it refused the machine.
func (e *errand) superseded(link Link) bool {
	if e.word == nil || startLink(e.word.code) != link {
		return false
	}
	switch link {
	case LinkOrder:
		return e.Devices != nil
	case LinkClass, LinkBudget:
		return e.judged.Known && e.refusedAt(link) == nil
	case LinkTable:
		return e.Wiring != nil
	case LinkInstance:
		return e.word.code == "GPU0637" && e.MachinesKnown && !e.vm.Live()
	}
	switch e.word.code {
	case "GPU0702", "GPU0703", "GPU0705":
		return e.judged.Known && e.judged.Refusal == nil
	case "GPU0710":
		return e.Controller.leads()
	}
	return false
}

// leads reports a replica that is known to lead.
func (c *Controller) leads() bool {
	return slices.ContainsFunc(c.Runs, func(r Deployment) bool { return r.Led == gpu.Present })
}

// leaderless reports that nobody would place what is to start.
func (e *errand) leaderless() *Finding {
	if e.vm.Live() || e.vm.Halted || e.vm.Mould {
		return nil
	}
	if problem, none := e.Controller.leaderless(); none {
		return &NoLeader(e.vm.String(), problem).Finding
	}
	return nil
}

func (e *errand) classText() string {
	gives := map[string]string{}
	for class, name := range e.judged.Resources {
		gives[class] = string(name)
	}
	for _, d := range e.devices() {
		if e.Judge == nil {
			continue
		}
		if j := e.Judge(d.Namespace, d.Name); j.Known && gives[d.Class] == "" {
			gives[d.Class] = d.Resource
			if j.Class.Exists {
				gives[d.Class] = string(j.Class.Resource)
			}
		}
	}
	var out []string
	for _, class := range slices.Sorted(maps.Keys(gives)) {
		out = append(out, class+" gives "+gives[class])
	}
	return strings.Join(out, ", ")
}

func (e *errand) budgetText() string {
	waits := slices.ContainsFunc(e.devices(), func(d *Device) bool { return d.Node == "" })
	switch {
	case !waits && len(e.lacks) == 0 && len(e.named) == len(e.vm.Orders):
		return "nothing is ordered beside what it holds"
	case !e.judged.Known:
		return ""
	case len(e.judged.Budgets) == 0:
		return "no level limits it"
	}
	var steps []string
	for _, s := range e.judged.Budgets {
		steps = append(steps, s.String())
	}
	return strings.Join(steps, "; ")
}

func (e *errand) placementText() string {
	at := e.place()
	switch node := e.judged.Node; {
	case e.vm.Live() || node == "":
		return at
	case at == "":
		return node + " has room for all of it"
	case at != node && !strings.HasPrefix(at, node+" (") || strings.Contains(at, ", "):
		return at + "; " + node + " has room for all of it"
	}
	return at
}

// instanceOf says whether KubeVirt has made an instance, and why not.
func (e *errand) instanceOf() (f *Finding, text string, known bool) {
	if e.word != nil && !e.vm.Live() && e.superseded(startLink(e.word.code)) {
		if at := e.word.message.At; !at.IsZero() && e.At.Sub(at) < startsWithin {
			return nil, "", false // it is tried again soon
		}
		return notTried(e.vm, string(e.word.code)+" ("+e.word.text+"), which holds no longer"), "", true
	}
	if !e.superseded(LinkInstance) {
		f = e.saidAt(LinkInstance)
	}
	if f == nil {
		f = e.instance(e.vm, slices.DeleteFunc(slices.Clone(e.said), func(s symptom) bool { return s.told }))
	}
	return f, e.vm.Phase, e.vm.Phase != ""
}

// launcherOf says whether the launcher runs where the devices are, and why not.
func (e *errand) launcherOf() (f *Finding, text string, known bool) {
	p := e.launcherPod()
	if found := e.later(LinkLauncher, e.vm, e.said); found != nil { // kubelet, or a container
		return found, "", true
	}
	if p == nil {
		if e.vm.Live() {
			f = e.saidAt(LinkLauncher)
		}
		return f, "", false
	}
	where := e.units()
	switch {
	case p.Node == "":
		f = e.unpinned(p, where)
	case where != "" && p.Node != where:
		r := NoBinding(e.vm.String(), "it is on node "+p.Node+", and the devices are on "+where)
		f = named(e.vm, &r.Finding)
	}
	return f, e.launcherText(), true
}

// units returns the node of the machine's devices, "" where they have none or several.
func (e *errand) units() (node string) {
	for _, d := range e.devices() {
		if d.Node == "" || node != "" && d.Node != node {
			return ""
		}
		node = d.Node
	}
	return node
}

// unpinned says why the scheduler leaves the launcher where it is.
func (e *errand) unpinned(p *Pod, where string) *Finding {
	i := slices.IndexFunc(e.said, func(s symptom) bool { return s.code == "GPU0506" || s.code == "GPU0507" })
	if i < 0 {
		return nil
	}
	text, node := strings.TrimSuffix(e.said[i].text, "."), p.Pinned
	if node == "" {
		node = where
	}
	if node == "" {
		return e.unplaced(e.vm, &e.said[i])
	}
	text += "; it can run on " + node + " only, where the devices of the VM are"
	if n := e.nodes[node]; n != nil {
		switch {
		case n.NotReady:
			text += ", and that is not ready"
		case n.Cordoned:
			text += ", and that is cordoned"
		}
	}
	f := New("GPU0507", e.vm.String(), Values{
		"user": e.vm.String(), "text": text,
		"hint": "compare the VM's node selector, affinity, tolerations, CPU and memory with the node: kubectl describe node " + node,
	})
	return &f
}

// launcherPod returns the launcher that is not over, one that has a node first.
func (e *errand) launcherPod() (found *Pod) {
	for _, p := range e.pods[Ref{Namespace: e.vm.Namespace, Name: e.vm.Name}] {
		if !p.Done && (found == nil || found.Node == "") {
			found = p
		}
	}
	return found
}

// launcherText says where the launcher is.
func (e *errand) launcherText() string {
	p := e.launcherPod()
	if p == nil {
		return ""
	}
	text := p.Name
	if p.Node != "" {
		text += " on " + p.Node
	}
	switch p.Pinned {
	case "":
		return text
	case p.Node:
		return text + ", pinned to it"
	}
	return text + ", pinned to " + p.Pinned
}
