package diagnose

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// placement returns why the scheduler finds no node for the machine's launcher.
func (x *index) placement(v *VM, said []symptom) *Finding {
	if v.Node != "" || v.Phase == "Scheduled" {
		return nil
	}
	if f := x.busy(v, said); f != nil {
		return f
	}
	for _, s := range said {
		if s.code == "GPU0507" {
			return x.unplaced(v, &s)
		}
	}
	return nil
}

// unplaced passes on what the scheduler says.
func (x *index) unplaced(v *VM, s *symptom) *Finding {
	node := "NAME"
	for _, name := range v.names() {
		if servers := x.servers(name); len(servers) > 0 {
			node = servers[0].Name
			break
		}
	}
	hint := "compare the VM's node selector, affinity, tolerations, CPU and memory with the node: kubectl describe node " + node
	f := New("GPU0507", v.String(), Values{"user": v.String(), "text": s.text, "hint": hint})
	return &f
}

// busy reports that no node has all the units free that the machine asks for.
func (x *index) busy(v *VM, said []symptom) *Finding {
	if len(x.Nodes) == 0 {
		return x.schedulerSays(v, said)
	}
	counts := v.Counts()
	for i := range x.Nodes {
		if x.fits(&x.Nodes[i], counts) {
			return x.schedulerSays(v, said)
		}
	}
	if f := x.shut(v); f != nil {
		return f
	}
	for _, name := range v.names() {
		if !x.concerns(name) || len(x.servers(name)) == 0 || x.mostFree(name) >= counts[name] {
			continue
		}
		holders := "nobody is seen to hold the others"
		if who := x.holders(name); len(who) > 0 {
			holders = "held by " + somebody(who)
		}
		holders += x.closed(name)
		total := x.open(name)
		free := "all " + itoa(total) + " are taken"
		switch n := x.allFree(name); {
		case n > 0:
			free = itoa(n) + " of " + itoa(total) + " are free"
		case total == 1:
			free = "the only one is taken"
		}
		where := ", and at most " + itoa(x.mostFree(name)) + " on one node"
		switch {
		case x.mostFree(name) == 0 && len(x.servers(name)) > 1:
			where = ""
		case len(x.servers(name)) == 1:
			where = " on node " + x.servers(name)[0].Name
		}
		f := New("GPU0506", v.String(), Values{
			"user": v.String(), "count": itoa(counts[name]), "name": string(name), "free": free, "where": where, "holders": holders,
		})
		return &f
	}
	return nil
}

// closed names the nodes that serve a name and take nothing new.
func (x *index) closed(name gpu.ResourceName) string {
	var out []string
	for _, n := range x.servers(name) {
		switch {
		case n.NotReady:
			out = append(out, n.Name+" is not ready")
		case n.Cordoned:
			out = append(out, n.Name+" is cordoned")
		}
	}
	if len(out) == 0 {
		return ""
	}
	return "; node " + somebody(out)
}

// open returns how many units nodes serve that take something new.
func (x *index) open(name gpu.ResourceName) int64 {
	var all int64
	for _, n := range x.servers(name) {
		if !n.NotReady && !n.Cordoned {
			all += n.Allocatable[name]
		}
	}
	return all
}

// shut reports that all nodes with a name that the machine asks for take nothing new:
// nobody holds the units.
func (x *index) shut(v *VM) *Finding {
	for _, name := range v.names() {
		servers := x.servers(name)
		if !x.concerns(name) || len(servers) == 0 || x.open(name) > 0 {
			continue
		}
		n := servers[0]
		state, hint := "is cordoned", "kubectl uncordon "+n.Name+" when its maintenance is over"
		if n.NotReady {
			state, hint = "is not ready", "kubectl describe node "+n.Name
		}
		text := "node " + n.Name + ", which has " + units(n.Allocatable[name], name) + ", " + state
		if len(servers) > 1 {
			text = "no node that has " + string(name) + " takes anything new" + x.closed(name)
		}
		return raised(New("GPU0507", v.String(), Values{"user": v.String(), "text": text, "hint": hint}))
	}
	return nil
}

// schedulerSays passes on that the scheduler finds no units although some look free.
func (x *index) schedulerSays(v *VM, said []symptom) *Finding {
	for _, s := range said {
		if s.code == "GPU0506" {
			return x.unplaced(v, &s)
		}
	}
	return nil
}

// fits reports whether all units that are asked for are free on the node.
func (x *index) fits(n *gpu.Node, counts map[gpu.ResourceName]int64) bool {
	for name, count := range counts {
		if x.concerns(name) && x.free(n, name) < count {
			return false
		}
	}
	return true
}

func (x *index) mostFree(name gpu.ResourceName) int64 {
	var most int64
	for _, n := range x.servers(name) {
		most = max(most, x.free(n, name))
	}
	return most
}

func (x *index) allFree(name gpu.ResourceName) int64 {
	var all int64
	for _, n := range x.servers(name) {
		all += x.free(n, name)
	}
	return all
}

// cards returns the cards that a device plugin gives one of the machine's names, by
// node.
func (x *index) cards(v *VM) map[string][]*gpu.Function {
	out := map[string][]*gpu.Function{}
	for i := range x.Nodes {
		n := &x.Nodes[i]
		for _, name := range v.names() {
			ids := x.cardsOf(n, name)
			if len(ids) == 0 {
				continue
			}
			for _, f := range x.hosts[n.Name].GPUs() {
				if slices.Contains(ids, f.ID.Device) {
					out[n.Name] = append(out[n.Name], f)
				}
			}
		}
	}
	return out
}

// supplyText says in short how a link of the cards stands.
func (x *index) supplyText(link Link, v *VM) string {
	return x.supplied.of(fmt.Sprint(link, v.names()), func(string) string { return x.findSupplyText(link, v) })
}

func (x *index) findSupplyText(link Link, v *VM) string {
	var cards []*gpu.Function
	var releases []string
	nodes := x.cards(v)
	for _, node := range slices.Sorted(maps.Keys(nodes)) {
		cards = append(cards, nodes[node]...)
		if n := x.nodes[node]; n.Plugin.Known() && !slices.Contains(releases, n.Plugin.String()) {
			releases = append(releases, n.Plugin.String())
		}
	}
	switch {
	case len(cards) == 0:
		return ""
	case link == LinkFunction:
		return count(len(cards), "GPU", "GPUs") + " on " + count(len(nodes), "node", "nodes")
	case link == LinkDriver:
		return bound(cards)
	case link == LinkPlugin && len(releases) > 0:
		return "device plugin " + strings.Join(releases, ", ")
	}
	return ""
}

// passedText says in short why a link of a machine is fine.
func (x *index) passedText(link Link, v *VM) string {
	names := v.names()
	switch {
	case len(names) == 0:
		return ""
	case link.order() <= LinkPlugin.order():
		return x.supplyText(link, v)
	case link == LinkAllocatable && len(x.Nodes) > 0:
		var out []string
		for _, name := range names {
			if servers := x.servers(name); len(servers) > 0 {
				out = append(out, units(x.served[name], name)+" on "+count(len(servers), "node", "nodes"))
			}
		}
		return strings.Join(out, ", ")
	case link == LinkTable && x.Wiring != nil && !x.Wiring.Table.Set:
		return "no table: KubeVirt checks no name"
	case link == LinkTable && x.Wiring != nil:
		return "permitted by " + x.Wiring.Object
	case link == LinkGate && x.Wiring != nil && x.Wiring.Gate:
		return "HostDevices"
	case link == LinkSpec:
		var out []string
		for _, name := range names {
			out = append(out, units(v.Counts()[name], name))
		}
		return strings.Join(out, ", ")
	case link == LinkInstance:
		return v.Phase
	case link == LinkPlacement && v.Node != "":
		return "node " + v.Node
	}
	return ""
}
