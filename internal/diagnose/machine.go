package diagnose

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// machine walks the chain of one VM. more are findings that go with the root cause
// and do not replace it.
func (x *index) machine(v *VM, said []symptom) (chain Chain, more []Finding) {
	if v.refers() {
		return x.errand(v, said)
	}
	w := walker{chain: Chain{Subject: v.String(), VM: v}}
	if v.Running() {
		x.passes(&w, v)
		return w.chain, nil
	}
	early := x.early(v, said) // what makes the rest meaningless
	supply, beside := (*Finding)(nil), []Finding(nil)
	if early == nil {
		supply, beside = x.supply(v)
		supply = cmp.Or(supply, x.sharedGroup(v, said))
	}
	more = append(more, beside...)
	links := Links()
	if v.Mould { // nobody places a pool, or starts it
		links = links[:LinkSpec.order()+1]
	}
	for _, link := range links {
		var f *Finding
		switch {
		case early != nil:
			if early.link() == link {
				f = early
			} else if !w.broken {
				w.on(link, Unknown, "")
				continue
			}
		case supply != nil && supply.link() == link:
			f = supply
		case link.order() > LinkAllocatable.order():
			f = x.later(link, v, said)
		}
		if f == nil && !w.broken && (!x.knows(link) || supply != nil && x.cardless(link, v)) {
			w.on(link, Unknown, "")
			continue
		}
		w.check(link, f, x.passedText(link, v))
	}
	if v.Mould {
		return w.chain, more
	}
	return w.chain, append(more, x.consequences(v, said, w.chain.Root())...)
}

// passes is the chain of a machine that runs.
func (x *index) passes(w *walker, v *VM) {
	for _, link := range Links() {
		w.on(link, Passed, x.passedText(link, v))
	}
}

// knows reports whether the evidence says anything about a link of a VM.
func (x *index) knows(link Link) bool {
	switch link {
	case LinkFunction, LinkDriver, LinkGroup:
		return len(x.Hosts) > 0
	case LinkPlugin, LinkAllocatable, LinkPlacement:
		return len(x.Nodes) > 0
	case LinkTable, LinkGate:
		return x.Wiring != nil
	default:
		return true
	}
}

// cardless reports a link of the supply for which no card is known: a name that
// nobody has says nothing about drivers and groups.
func (x *index) cardless(link Link, v *VM) bool {
	return link.order() <= LinkPlugin.order() && x.supplyText(LinkFunction, v) == ""
}

// early returns what explains a refusal whatever the nodes offer: a ConfigMap that
// shadows the CR, and a request that can never be met.
func (x *index) early(v *VM, said []symptom) *Finding {
	if len(x.Legacy) > 0 && x.Wiring.readsLegacy() && slices.ContainsFunc(said, func(s symptom) bool { return x.contradicts(&s) }) {
		return raised(x.Legacy[0].Finding())
	}
	for _, problem := range v.BadName {
		field, what, _ := strings.Cut(problem, " ")
		return raised(New("GPU0510", v.String(), Values{"user": v.String(), "field": field, "problem": what}))
	}
	check := workloadCheck{nodes: x.Nodes, served: x.served}
	for _, name := range v.names() {
		if f, bad := check.impossible(gpu.Workload{Kind: v.Kind, Namespace: v.Namespace, Name: v.Name, Owner: v.Owner}, name); bad {
			return raised(f)
		}
	}
	for _, key := range v.Keys {
		if x.concerns(key) && slices.Contains(v.names(), key) {
			return raised(New("GPU0511", v.String(), Values{"user": v.String(), "name": string(key)}))
		}
	}
	return nil
}

// contradicts reports a refusal that the CR, as it is, does not explain.
func (x *index) contradicts(s *symptom) bool {
	switch {
	case x.Wiring == nil:
		return s.code == "GPU0301" || s.code == "GPU0315" || s.code == "GPU0302"
	case s.code == "GPU0301":
		return x.Wiring.Gate || !x.Wiring.NeedsGate
	case s.code == "GPU0302":
		return x.Wiring.permits(s.name)
	}
	return s.code == "GPU0315" // no release that reads the CR asks for the GPU gate
}

// later returns what breaks a link behind the nodes' supply.
func (x *index) later(link Link, v *VM, said []symptom) *Finding {
	switch link {
	case LinkTable:
		return x.permit(v, said)
	case LinkGate:
		return x.gate(v, said)
	case LinkInstance:
		return x.instance(v, said)
	case LinkPlacement:
		return x.placement(v, said)
	case LinkLauncher, LinkDomain:
		if link == LinkLauncher {
			if f := x.launcher(v); f != nil {
				return f
			}
		}
		for i := range said {
			if f := x.symptomFinding(v, &said[i]); f != nil && f.link() == link {
				return f
			}
		}
	}
	return nil
}

// permit returns why the table does not let the machine have a name.
func (x *index) permit(v *VM, said []symptom) *Finding {
	if x.Wiring == nil {
		for _, s := range said {
			if s.code == "GPU0302" {
				return x.notPermitted(s.name, "the host device table of KubeVirt")
			}
		}
		return nil
	}
	for _, name := range v.names() {
		switch w := x.Wiring; {
		case !w.Table.Set && slices.ContainsFunc(said, func(s symptom) bool { return s.code == "GPU0302" && s.name == name }):
			if f := x.foundAbout("GPU0303", w.Object); f != nil {
				return f // the table is there, where KubeVirt does not look
			}
		case w.permits(name):
		case w.Table.Set && !w.Table.Permits(name):
			return x.notPermitted(name, w.Object)
		default:
			return raised(New("GPU0327", w.Object, Values{"target": w.Object, "kubevirt": w.Copy.Object}))
		}
	}
	return nil
}

// foundAbout returns what was found about an object, as an error.
func (x *index) foundAbout(code Code, object string) *Finding {
	for _, f := range x.Findings {
		if f.Code == code && f.Object == object {
			return raised(f)
		}
	}
	return nil
}

// notPermitted is the finding about a name that the table lacks.
func (x *index) notPermitted(name gpu.ResourceName, object string) *Finding {
	values := Values{"name": string(name), "object": object, "nodes": x.whoServes(name), "more": x.instead(name), "hint": "gpuctl wire --dry-run shows what is missing, gpuctl wire adds it"}
	if x.Wiring != nil && !x.Wiring.lacks(name) && x.Wiring.Permit != nil {
		values["hint"] = "permit it: gpuctl wire " + x.Wiring.Permit(name)
	}
	f := New("GPU0302", object, values)
	return &f
}

func (x *index) whoServes(name gpu.ResourceName) string {
	servers := x.servers(name)
	switch {
	case len(servers) == 0 && len(x.Nodes) == 0:
		return "some node may serve"
	case len(servers) == 0:
		return "no node serves"
	case len(servers) == 1:
		return "node " + servers[0].Name + " serves"
	}
	return count(len(servers), "node", "nodes") + " serve"
}

// instead says what the table lists for the same cards, or nearly under the name.
func (x *index) instead(name gpu.ResourceName) string {
	if x.Wiring == nil {
		return ""
	}
	ids := gpu.DeviceIDs(name)
	for _, e := range x.Wiring.Table.Entries {
		id, ok := e.ID()
		if strings.EqualFold(string(e.Name), string(name)) || ok && id.IsNVIDIA() && slices.Contains(ids, id.Device) {
			return "; for these cards it lists " + string(e.Name)
		}
	}
	return ""
}

// gate returns why virt-api refuses host devices.
func (x *index) gate(v *VM, said []symptom) *Finding {
	closed := slices.ContainsFunc(said, func(s symptom) bool { return s.code == "GPU0301" })
	switch w := x.Wiring; {
	case w == nil && closed:
		return raised(gateFinding("KubeVirt", []string{v.String()}))
	case w != nil && w.NeedsGate && !w.Gate && (closed || v.usesHostDevices()):
		if f := x.foundAbout("GPU0314", w.Object); f != nil {
			return f // the gate is off on purpose, and wire cannot add it
		}
		return raised(gateFinding(w.Object, []string{v.String()}))
	}
	return nil
}

func gateFinding(object string, users []string) Finding {
	values := Values{"object": object, "users": ""}
	if len(users) > 0 {
		values["users"] = ", as " + somebody(users)
	}
	return New("GPU0301", object, values)
}

// instance returns why KubeVirt made no instance or no launcher of the machine.
func (x *index) instance(v *VM, said []symptom) *Finding {
	for i := range said {
		s := &said[i]
		switch {
		case s.told:
			return passOn(v, s)
		case s.code == "GPU0302" && x.Wiring != nil && x.contradicts(s):
			return notTried(v, string(s.name)+", which is permitted now")
		case s.code == "GPU0301" && x.Wiring != nil && x.contradicts(s):
			return notTried(v, "host devices, which are permitted now")
		case s.code == "GPU0513" || s.code == "GPU0315":
			hint := "see who refuses it: kubectl get events -n " + v.Namespace
			if strings.Contains(s.text, "exceeded quota") {
				hint = "kubectl describe resourcequota -n " + v.Namespace
			}
			f := New("GPU0513", v.String(), Values{"user": v.String(), "text": s.text, "hint": hint})
			return &f
		}
	}
	return nil
}

// notTried reports a machine that waits out KubeVirt's back-off. wire wakes instances;
// a VM that has none is not touched by it.
func notTried(v *VM, what string) *Finding {
	hint := "gpuctl wire wakes it; without that KubeVirt tries within 16 minutes"
	if v.Kind == "VirtualMachine" && v.Phase == "" {
		hint = "KubeVirt tries within 16 minutes, and at once when the VM is changed: kubectl annotate vm " + v.Name + " -n " + v.Namespace + " --overwrite gpuctl.dev/woken-at=now"
	}
	f := New("GPU0509", v.String(), Values{"user": v.String(), "text": what, "hint": hint})
	return &f
}

// launcher returns why the machine's launcher does not run.
func (x *index) launcher(v *VM) *Finding {
	for _, p := range x.pods[Ref{Namespace: v.Namespace, Name: v.Name}] {
		switch {
		case p.Refused != "":
			f := New("GPU0508", v.String(), Values{"user": v.String(), "text": p.Refused, "hint": refusedHint(p)})
			return &f
		case p.Problem != "" && !p.Done && p.Node != "":
			for _, s := range read(&Message{About: Ref{"Pod", p.Namespace, p.Name}, Text: p.Problem}) {
				if s.code == "GPU0525" {
					return x.symptomFinding(v, &s)
				}
			}
			return raised(New("GPU0529", v.String(), Values{"user": v.String(), "text": p.Problem, "namespace": p.Namespace, "pod": p.Name}))
		}
	}
	return nil
}

// refusedHint says where to look when kubelet refused a pod: at the device plugin, unless
// the node was out of something else.
func refusedHint(p *Pod) string {
	node := cmp.Or(p.Node, "NAME")
	short, out := strings.CutPrefix(p.Refused, "OutOf")
	if out && !strings.Contains(strings.SplitN(short, ": ", 2)[0], "/") {
		return "see what else runs on the node: kubectl describe node " + node
	}
	return "look at the device plugin on the node: kubectl get pods -A -o wide | grep device-plugin; gpuctl diagnose node/" + node
}

// consequences are the symptoms of QEMU and the launcher that go with another root.
func (x *index) consequences(v *VM, said []symptom, root *Finding) []Finding {
	var out []Finding
	for i := range said {
		if f := x.symptomFinding(v, &said[i]); f != nil && (root == nil || f.Code != root.Code) {
			out = append(out, *f)
		}
	}
	return out
}

// symptomFinding says what a message about the launcher or the domain means; nil
// for other messages.
func (x *index) symptomFinding(v *VM, s *symptom) *Finding {
	if s.told || !s.onDomain() {
		return nil
	}
	if device, other := x.foreign(v, s); other {
		f := New("GPU0514", v.String(), Values{"user": v.String(), "device": device})
		return &f
	}
	values := Values{
		"user": v.String(), "text": s.text, "group": s.group, "device": x.device(s),
		"namespace": v.Namespace, "vm": v.Name, "hint": "upgrade the device plugin to v1.4.0 or newer, and see which plugin serves the name: kubectl get pods -A | grep device-plugin",
	}
	values["pod"] = "-l vm.kubevirt.io/name=" + v.Name
	if s.code == "GPU0508" {
		values["hint"] = refusedHint(&Pod{Node: v.Node, Refused: s.text})
	}
	if s.message.About.Kind == "Pod" {
		values["pod"] = s.message.About.Name
	}
	switch {
	case len(v.Claims) > 0 && len(v.Devices) == 0, strings.Contains(s.text, "DRA GPU"), strings.Contains(s.text, "in metadata for claim"):
		values["hint"] = "see what the claim's driver has published: kubectl get resourceclaims -n " + v.Namespace + " -o yaml"
	case slices.ContainsFunc(v.names(), gpu.ResourceName.IsContainer):
		values["hint"] = "ask for the name that the KubeVirt device plugin serves; nvidia.com/gpu belongs to containers"
	}
	f := New(s.code, v.String(), values)
	return &f
}

// foreign names the device of another vendor that the symptom is about.
func (x *index) foreign(v *VM, s *symptom) (device string, ok bool) {
	if f := x.function(s.address); f != nil {
		return fmt.Sprintf("%s (%s)", f.Address, f.ID), f.ID.Known() && !f.IsNVIDIA()
	}
	names := v.names()
	if len(names) == 0 || slices.ContainsFunc(names, x.concerns) {
		return "", false
	}
	return string(names[0]), true
}

// function finds a function by its address on any host.
func (x *index) function(address string) *gpu.Function {
	if address != "" && x.at == nil {
		x.at = map[string]*gpu.Function{}
		for i := range slices.Backward(x.Hosts) {
			for j := range slices.Backward(x.Hosts[i].Functions) {
				f := &x.Hosts[i].Functions[j]
				x.at[f.Address.String()] = f
			}
		}
	}
	return x.at[address]
}

// device returns " 0000:35:00.0 (10de:1eb8, IOMMU group 75)", with what the message
// and the inventories tell; "" when that is nothing.
func (x *index) device(s *symptom) string {
	var more []string
	if f := x.function(s.address); f != nil && f.ID.Known() {
		more = append(more, f.ID.String())
	}
	if s.group != "" {
		more = append(more, "IOMMU group "+s.group)
	}
	switch {
	case s.address == "" && s.group == "":
		return ""
	case s.address == "":
		return " of " + more[0]
	case len(more) == 0:
		return " " + s.address
	}
	return " " + s.address + " (" + strings.Join(more, ", ") + ")"
}
