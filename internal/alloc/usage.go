package alloc

import (
	"maps"
	"slices"

	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/internal/usage"
)

// NodeOf returns a node as accounting sees it: what it serves, and what pods take
// there by name. What runs of lost devices is not among that; each of these says it
// itself, as Running. It is where the node serves their cards under another name.
func NodeOf(s usage.Supply, taken map[gpu.ResourceName]usage.Taken) Node {
	n := Node{Name: s.Node, Closed: !s.Open, Doubted: !s.Certain}
	renamed := map[gpu.ResourceName]int64{}
	for old, t := range taken {
		if now, ok := s.SameCards(old); ok {
			renamed[now] = gpu.AddUnits(renamed[now], t.Raw)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Units)) {
		n.Serves = append(n.Serves, Served{
			Resource: name, Units: s.Units[name], NUMA: s.NUMA[name], Raw: gpu.AddUnits(taken[name].Raw-taken[name].Under, renamed[name]),
		})
	}
	return n
}
