package diagnose

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// NodeGPUs says what VMs can use of one node's GPUs.
type NodeGPUs struct {
	Node   string   `json:"node"`
	GPUs   *int     `json:"gpus"`   // physical ones; null when there is no inventory
	Usable int64    `json:"usable"` // units that are sound, served and permitted
	Served []Units  `json:"served"` // by name
	Why    []Reason `json:"why"`    // why others are not usable
}

// Units are what a node serves under one resource name.
type Units struct {
	Name      gpu.ResourceName `json:"resourceName"`
	Count     int64            `json:"count"`
	Permitted bool             `json:"permitted"`
}

// Reason is why some GPUs of a node cannot be used, with the code of its finding
// if it has one.
type Reason struct {
	Code Code   `json:"code,omitempty"`
	Text string `json:"text"`
}

// String returns "GPU is on a host driver: 0000:41:00.0 (GPU0201)".
func (r Reason) String() string {
	if r.Code == "" {
		return r.Text
	}
	return r.Text + " (" + string(r.Code) + ")"
}

// Summary is what Summarize goes by. Table is the host device table as it is, or
// will be; Release is that of nodes on which no plugin was seen.
type Summary struct {
	Nodes   []gpu.Node
	Hosts   []gpu.Host
	Agents  []Agent
	Table   gpu.Table
	Release gpu.Release
}

// Summarize says for each node with something of GPUs what VMs can use there, in
// the order of their names.
func (s *Summary) Summarize() []NodeGPUs {
	hosts := map[string]*gpu.Host{}
	for i := range s.Hosts {
		hosts[s.Hosts[i].Node] = &s.Hosts[i]
	}
	silent := map[string]bool{}
	for _, a := range s.Agents {
		silent[a.Node] = !a.Reports
	}
	var out []NodeGPUs
	for i := range s.Nodes {
		n := &s.Nodes[i]
		h := hosts[n.Name]
		if _, meant := Unserved(n, h); !meant && !silent[n.Name] && len(n.Positive()) == 0 && (h == nil || len(h.GPUs()) == 0) {
			continue
		}
		v := s.node(n, h)
		if silent[n.Name] {
			v.because("GPU0105", "")
		}
		out = append(out, v)
	}
	slices.SortFunc(out, func(a, b NodeGPUs) int { return cmp.Compare(a.Node, b.Node) })
	return out
}

func (s *Summary) node(n *gpu.Node, h *gpu.Host) NodeGPUs {
	v := NodeGPUs{Node: n.Name, Served: []Units{}, Why: []Reason{}}
	release := n.Plugin
	if !release.Known() {
		release = s.Release
	}
	sound := map[gpu.ResourceName]int64{} // of the names whose cards are known
	var matches []gpu.Match
	if h != nil {
		count := len(h.GPUs())
		v.GPUs = &count
		matches = gpu.MatchNames(h, n, release, s.Table)
		v.judge(h, release, matches, sound)
	}
	for _, name := range n.Positive() {
		v.serve(n, name, s.Table, sound)
	}
	if _, missing := Unserved(n, h); missing {
		v.because("GPU0102", "")
	}
	for _, f := range Node(n, h, matches) {
		if f.Severity.Level() > Info.Level() {
			v.because(f.Code, "")
		}
	}
	return v
}

// judge counts the sound cards under each name, and says what is wrong with the
// others.
func (v *NodeGPUs) judge(h *gpu.Host, r gpu.Release, matches []gpu.Match, sound map[gpu.ResourceName]int64) {
	names := map[gpu.DeviceID]gpu.ResourceName{}
	for _, m := range matches {
		names[m.Device] = m.Name
		sound[m.Name] += 0 // known, even when none is sound
	}
	cards := map[Code][]*gpu.Function{}
	for _, verdict := range Judge(h, r) {
		if !verdict.Function.IsGPU() {
			continue
		}
		if verdict.Usable {
			sound[names[verdict.Function.ID.Device]]++
			continue
		}
		for _, reason := range verdict.Reasons {
			if reason.Severity.Level() > Info.Level() {
				cards[reason.Code] = append(cards[reason.Code], verdict.Function)
			}
		}
	}
	for _, code := range slices.Sorted(maps.Keys(cards)) {
		v.because(code, someCards(slices.Compact(cards[code])))
	}
}

// serve adds what the node serves under one name.
func (v *NodeGPUs) serve(n *gpu.Node, name gpu.ResourceName, table gpu.Table, sound map[gpu.ResourceName]int64) {
	units := Units{Name: name, Count: n.Allocatable[name], Permitted: !table.Set || table.Permits(name)}
	v.Served = append(v.Served, units)
	switch {
	case name.IsContainer():
		v.Why = append(v.Why, Reason{Text: string(name) + " is for containers"})
	case !name.MayBeGPU():
	case !units.Permitted:
		v.Why = append(v.Why, Reason{Text: string(name) + " is not permitted"})
	default:
		usable := units.Count
		if good, known := sound[name]; known {
			usable = min(usable, good)
		}
		v.Usable += usable
	}
}

// because adds a reason in the catalogue's words, once.
func (v *NodeGPUs) because(code Code, what string) {
	entry, _ := Lookup(string(code))
	text := entry.Title
	if what != "" {
		text += ": " + what
	}
	if !slices.ContainsFunc(v.Why, func(r Reason) bool { return r.Code == code }) {
		v.Why = append(v.Why, Reason{Code: code, Text: text})
	}
}

func someCards(cards []*gpu.Function) string {
	if len(cards) > 3 {
		return fmt.Sprintf("%d GPUs", len(cards))
	}
	var out []string
	for _, f := range cards {
		out = append(out, f.Address.String())
	}
	return strings.Join(out, ", ")
}
