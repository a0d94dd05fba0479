package usage

import (
	"maps"
	"slices"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// Node is what is known of one node.
type Node struct {
	Facts gpu.Node
	Host  *gpu.Host // what its agent reported last; nil when it never did
	// Silent says that the Lease of its agent has run out: Host may be old.
	Silent bool
}

// Supply is what one node serves.
type Supply struct {
	Node  string
	Units map[gpu.ResourceName]int64 // by name, 0 and more
	// NUMA is how many units are at each NUMA node, for names of which that is known
	// of all units.
	NUMA map[gpu.ResourceName][]int64
	// Open says that new units may be placed there.
	Open bool
	// Certain says that something can be concluded from the units: that held ones
	// are lost, or that lost ones have returned. Where it is false, what was served
	// when it was last true holds for both.
	Certain bool
}

// Served returns what a node serves under each name of its allocatable: that many,
// but no more than its agent reports healthy. A name of which the report says
// nothing, or a node without an agent, is taken at its allocatable. Raw use takes
// nothing away here: what is taken says CapacityUse.
//
//	node       units                          new ones   conclusions
//	NotReady   as kubelet and agent last said no         none: VMs may run on, and after a reboot
//	                                                     kubelet shows 0 until plugins are back
//	cordoned   as ever                        no         as ever
//	silent     as the agent last said, which  yes        none: a GPU that was broken is not
//	           only takes away                           healed by silence
//
// The table says which ids and types stand behind names that somebody made up.
func Served(n *Node, table gpu.Table) Supply {
	s := Supply{
		Node: n.Facts.Name, Units: map[gpu.ResourceName]int64{},
		Open:    !n.Facts.NotReady && !n.Facts.Cordoned,
		Certain: !n.Facts.NotReady && (n.Host == nil || !n.Silent),
	}
	var report *report
	if n.Host != nil {
		report = newReport(n, table)
	}
	for name, units := range n.Facts.Allocatable {
		if report != nil {
			if healthy, says := report.healthy(name); says {
				units = min(units, healthy)
			}
			if sides := report.sides(name, units); sides != nil {
				if s.NUMA == nil {
					s.NUMA = map[gpu.ResourceName][]int64{}
				}
				s.NUMA[name] = sides
			}
		}
		s.Units[name] = max(0, units)
	}
	return s
}

// SameCards returns a name that the node serves the cards of another name under by now:
// a plugin's upgrade renames them while VMs run with them. ok is false for a name that is
// served, and for one whose cards are served by no other.
func (s Supply) SameCards(name gpu.ResourceName) (now gpu.ResourceName, ok bool) {
	if s.Units[name] > 0 {
		return "", false
	}
	ids := gpu.DeviceIDs(name)
	for _, other := range slices.Sorted(maps.Keys(s.Units)) {
		shares := func(id gpu.DeviceID) bool { return slices.Contains(ids, id) }
		if s.Units[other] > 0 && slices.ContainsFunc(gpu.DeviceIDs(other), shares) {
			return other, true
		}
	}
	return "", false
}
