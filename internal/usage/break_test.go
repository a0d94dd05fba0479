package usage

import (
	"testing"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// TestCardsOfAnOldNameAreTaken: a plugin's upgrade renames the cards under a VM that runs.
// They are none that another VM can have.
func TestCardsOfAnOldNameAreTaken(t *testing.T) {
	const old gpu.ResourceName = "nvidia.com/2335"
	d := Device{UID: "a", Namespace: "acme", Name: "a", Class: "h200", Resource: old, Units: 4, Node: "n1", VMI: "v", Lost: true}
	n := shows(map[gpu.ResourceName]int64{old: 0, h200: 8})
	n.Host = &gpu.Host{Functions: cards(8)}
	s := Snapshot{
		Names:   EffectiveNames(NameFacts{Devices: []Device{d}, Nodes: []Node{n}}),
		Devices: []Device{d}, VMIs: []VMI{{UID: "v", Namespace: "acme", ActivePods: map[string]string{"p": "n1"}}},
		Pods: []Pod{{UID: "p", Namespace: "acme", Node: "n1", Containers: []Requests{{old: 4}}}},
	}
	served, taken := Served(&n, gpu.Table{}), s.CapacityUse()["n1"]
	if got := taken[h200].Free(served.Units[h200]); got != 4 {
		t.Errorf("a VM runs with 4 of 8 cards, and %d are free", got)
	}
}

// TestCardsAreServedOnce: a node serves no more units than it has healthy cards, by
// however many names.
func TestCardsAreServedOnce(t *testing.T) {
	n := shows(map[gpu.ResourceName]int64{h200: 4, own: 4})
	n.Host = &gpu.Host{Functions: cards(4)}
	got := Served(&n, gpu.Table{Set: true, Entries: []gpu.Entry{pci("10de:2335", own), pci("10de:2335", h200)}})
	if sum := got.Units[h200] + got.Units[own]; sum > 4 {
		t.Errorf("4 cards are %d units: %v", sum, got.Units)
	}
}
