package alloc

import (
	"maps"
	"slices"

	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/internal/usage"
)

// NodeOf returns a node as accounting sees it: what it serves, and what pods take
// there by name. What runs of lost devices is not among that; each of these says it
// itself, as Running.
func NodeOf(s usage.Supply, taken map[gpu.ResourceName]usage.Taken) Node {
	n := Node{Name: s.Node, Closed: !s.Open, Doubted: !s.Certain}
	for _, name := range slices.Sorted(maps.Keys(s.Units)) {
		n.Serves = append(n.Serves, Served{
			Resource: name, Units: s.Units[name], NUMA: s.NUMA[name], Raw: taken[name].Raw - taken[name].Under,
		})
	}
	return n
}
