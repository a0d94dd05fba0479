package diagnose

import (
	"slices"
	"strconv"
	"strings"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// wiring reports what the CR lacks whether or not somebody asks for it.
func (d *diagnosis) wiring(subject Subject) {
	w := d.Wiring
	if w == nil || subject.Name != "" {
		return
	}
	var names []string
	for _, l := range w.Lacks {
		switch {
		case !l.Served:
		case w.Table.Set && !w.Table.Permits(l.Name):
			d.found = append(d.found, *d.unasked(d.notPermitted(l.Name, w.Object), l.Name))
		case !w.Table.Set && !slices.Contains(names, string(l.Name)):
			names = append(names, string(l.Name))
		}
	}
	misplaced := slices.ContainsFunc(d.found, func(f Finding) bool { return f.Code == "GPU0303" }) // and names are refused all the same
	if len(names) > 0 && !misplaced {
		d.found = append(d.found, New("GPU0304", w.Object, Values{"object": w.Object, "names": strings.Join(names, ", ")}))
	}
	if w.NeedsGate && !w.Gate && d.foundAbout("GPU0314", w.Object) == nil && !slices.ContainsFunc(d.found, func(f Finding) bool { return f.Code == "GPU0301" }) && d.anyGPU() {
		d.found = append(d.found, d.gateMissing())
	}
}

// unasked returns the finding about a name as a warning when a machine waits for
// something else, and none for the name.
func (d *diagnosis) unasked(f *Finding, name gpu.ResourceName) *Finding {
	asks := func(v VM) bool { return !v.Halted && slices.Contains(v.names(), name) }
	waits := func(f Finding) bool { return f.Severity == Error }
	if slices.ContainsFunc(d.vms, asks) || !slices.ContainsFunc(d.found, waits) || len(d.covered) == 0 {
		return f
	}
	f.Severity = Warning
	return f
}

// gateMissing is the finding about a gate that no machine's chain has come to: an
// error all the same when one needs it.
func (d *diagnosis) gateMissing() Finding {
	var users []string
	for i := range d.vms {
		if v := &d.vms[i]; !v.Halted && v.usesHostDevices() && slices.ContainsFunc(v.names(), d.concerns) {
			users = append(users, v.String())
		}
	}
	f := gateFinding(d.Wiring.Object, users)
	switch {
	case len(users) > 0:
		f.Severity = Error
	case d.Wiring.Table.Set: // what is permitted works under gpus
		f.Severity = Info
	}
	return f
}

func (d *diagnosis) anyGPU() bool { return AnyGPU(d.Nodes, d.Hosts) }

// nodeChain is the chain of one node, to the table.
func (d *diagnosis) nodeChain(n *gpu.Node, root *Finding) Chain {
	w := walker{chain: Chain{Subject: nodeObject(n.Name)}}
	h := d.hosts[n.Name]
	if root == nil {
		root = d.asFound(mostCausal(d.breaks(n.Name, d.allCards(n))))
	}
	for _, link := range Links()[:LinkTable.order()+1] {
		var f *Finding
		if root != nil && root.link() == link {
			f = root
		}
		known := h != nil || link.order() >= LinkPlugin.order()
		if link == LinkTable {
			known = d.Wiring != nil
			if names := Unpermitted(n, d.table()); len(names) > 0 {
				f = d.notPermitted(names[0], d.Wiring.Object)
			}
		}
		if f == nil && !w.broken && !known {
			w.on(link, Unknown, "")
			continue
		}
		w.check(link, f, d.nodeText(link, n, h))
	}
	return w.chain
}

// asFound returns the finding with the severity that it was found with.
func (d *diagnosis) asFound(f *Finding) *Finding {
	for i := range d.Findings {
		if f != nil && *raised(d.Findings[i]) == *f {
			return &d.Findings[i]
		}
	}
	return f
}

// Unpermitted returns the names of GPUs that the node serves and the table lacks; none
// while the table is unset.
func Unpermitted(n *gpu.Node, table gpu.Table) []gpu.ResourceName {
	return slices.DeleteFunc(n.Positive(), func(name gpu.ResourceName) bool {
		return !name.MayBeGPU() || !table.Set || table.Permits(name)
	})
}

// bound says how many of the cards are on a vfio driver.
func bound(cards []*gpu.Function) string {
	on := 0
	for _, f := range cards {
		if f.Driver.IsVFIO() {
			on++
		}
	}
	return strconv.Itoa(on) + " of " + strconv.Itoa(len(cards)) + " on a vfio driver"
}

// nodeText says in short how a link of a node stands.
func (d *diagnosis) nodeText(link Link, n *gpu.Node, h *gpu.Host) string {
	switch {
	case link == LinkFunction && h != nil:
		return count(len(h.GPUs()), "GPU", "GPUs")
	case link == LinkDriver && h != nil:
		return bound(h.GPUs())
	case link == LinkPlugin && n.Plugin.Known():
		return "device plugin " + n.Plugin.String()
	case link == LinkAllocatable:
		var out []string
		for _, name := range n.Positive() {
			if name.MayBeGPU() {
				out = append(out, units(n.Allocatable[name], name))
			}
		}
		return strings.Join(out, ", ")
	}
	return ""
}
