package diagnose

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// index is the evidence, looked up. Large clusters have thousands of machines that
// ask the same: each answer is worked out once.
type index struct {
	*Evidence
	served map[gpu.ResourceName]int64
	hosts  map[string]*gpu.Host
	used   map[string]map[gpu.ResourceName]int64 // by node
	nodes  map[string]*gpu.Node
	about  map[string][]*Finding // by node, of those that are about one
	pods   map[Ref][]*Pod        // by the machine that they launch, without its kind
	podsOn map[string][]*Pod     // by node, of those that hold something

	serving  memo[gpu.ResourceName, []*gpu.Node]
	holding  memo[gpu.ResourceName, []string]
	ours     memo[gpu.ResourceName, bool]
	elsewise memo[gpu.ResourceName, string]
	breaking memo[gpu.ResourceName, *Finding]
	supplied memo[string, string] // texts about the cards, by link and names
	matches  memo[*gpu.Node, []gpu.Match]
	verdicts memo[string, []Verdict]
	at       map[string]*gpu.Function // by address; made when first needed
	orders   map[Ref]*Device          // without their kind; the same
}

// memo holds what was worked out so far.
type memo[K comparable, V any] map[K]V

// of returns the answer for a key.
func (m *memo[K, V]) of(key K, work func(K) V) V {
	v, known := (*m)[key]
	if !known {
		if v = work(key); *m == nil {
			*m = memo[K, V]{}
		}
		(*m)[key] = v
	}
	return v
}

func newIndex(e *Evidence) *index {
	x := &index{
		Evidence: e, served: Served(e.Nodes), hosts: map[string]*gpu.Host{}, used: map[string]map[gpu.ResourceName]int64{},
		nodes: map[string]*gpu.Node{}, about: aboutNodes(e.Findings), pods: map[Ref][]*Pod{}, podsOn: map[string][]*Pod{},
	}
	for i := range e.Hosts {
		x.hosts[e.Hosts[i].Node] = &e.Hosts[i]
	}
	for i := range e.Nodes {
		x.nodes[e.Nodes[i].Name] = &e.Nodes[i]
	}
	for i := range e.Pods {
		p := &e.Pods[i]
		if p.VM != "" {
			launched := Ref{Namespace: p.Namespace, Name: p.VM}
			x.pods[launched] = append(x.pods[launched], p)
		}
		if p.Done || p.Node == "" {
			continue
		}
		x.podsOn[p.Node] = append(x.podsOn[p.Node], p)
		if x.used[p.Node] == nil {
			x.used[p.Node] = map[gpu.ResourceName]int64{}
		}
		for name, n := range p.Requests {
			x.used[p.Node][name] += n
		}
	}
	return x
}

// aboutNodes returns the findings by the node that they are about, in their order.
func aboutNodes(findings []Finding) map[string][]*Finding {
	out := map[string][]*Finding{}
	for i := range findings {
		head, _, _ := strings.Cut(findings[i].Object, " ")
		if node, ok := strings.CutPrefix(head, "node/"); ok {
			out[node] = append(out[node], &findings[i])
		}
	}
	return out
}

// servers returns the nodes that serve a name, the fullest first.
func (x *index) servers(name gpu.ResourceName) []*gpu.Node {
	return x.serving.of(name, func(name gpu.ResourceName) (out []*gpu.Node) {
		for i := range x.Nodes {
			if x.Nodes[i].Allocatable[name] > 0 {
				out = append(out, &x.Nodes[i])
			}
		}
		slices.SortStableFunc(out, func(a, b *gpu.Node) int { return cmp.Compare(b.Allocatable[name], a.Allocatable[name]) })
		return out
	})
}

// free returns how many units of a name nobody on the node has requested; none where
// nothing new is placed.
func (x *index) free(n *gpu.Node, name gpu.ResourceName) int64 {
	if n.NotReady || n.Cordoned {
		return 0
	}
	return max(n.Allocatable[name]-x.used[n.Name][name], 0)
}

// holders returns who requests units of a name on any node, sorted.
func (x *index) holders(name gpu.ResourceName) []string {
	return x.holding.of(name, func(name gpu.ResourceName) (out []string) {
		for node := range x.podsOn {
			out = append(out, x.usersOn(node, name)...)
		}
		slices.Sort(out)
		return slices.Compact(out)
	})
}

// usersOn returns who requests units of a name on a node, sorted.
func (x *index) usersOn(node string, name gpu.ResourceName) []string {
	out := []string{}
	for _, p := range x.podsOn[node] {
		if p.Requests[name] > 0 {
			out = append(out, p.user())
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// matched returns the names of the node's cards.
func (x *index) matched(n *gpu.Node) []gpu.Match {
	return x.matches.of(n, func(n *gpu.Node) []gpu.Match {
		return gpu.MatchNames(x.hosts[n.Name], n, x.releaseOf(n), x.table())
	})
}

// judged returns the verdicts on a node's functions, none without its inventory.
func (x *index) judged(node string) []Verdict {
	return x.verdicts.of(node, func(node string) []Verdict {
		if h := x.hosts[node]; h != nil {
			return Judge(h, x.releaseOf(x.nodes[node]))
		}
		return nil
	})
}

// concerns reports whether a device name has to do with NVIDIA's GPUs. Names of
// other vendors' devices are nobody's business here.
func (x *index) concerns(name gpu.ResourceName) bool { return x.ours.of(name, x.isOurs) }

func (x *index) isOurs(name gpu.ResourceName) bool { return ours(name, x.table(), x.served) }

func ours(name gpu.ResourceName, table gpu.Table, served map[gpu.ResourceName]int64) bool {
	if name.IsNVIDIA() || !strings.Contains(string(name), "/") {
		return true
	}
	for _, e := range table.Entries {
		id, ok := e.ID()
		if e.Name == name && (ok && id.IsNVIDIA() || e.List == gpu.ListMdev) {
			return true
		}
	}
	short := strings.ToLower(name.Short())
	for served := range served { // a domain that was mistyped
		if served.IsNVIDIA() && strings.ToLower(served.Short()) == short {
			return true
		}
	}
	return false
}
