package usage

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// attached returns a device of a VMI, with its units on n1.
func attached(uid, vmi string, units int64) Device {
	return Device{UID: uid, Namespace: "acme", Class: "h200", Resource: h200, Units: units, Node: "n1", VMI: vmi}
}

func lost(d Device) Device {
	d.Lost = true
	return d
}

// vmi returns a VMI that lists the pods.
func vmi(uid string, pods ...string) VMI {
	v := VMI{UID: uid, Namespace: "acme", ActivePods: map[string]string{}}
	for _, p := range pods {
		v.ActivePods[p] = "n1"
	}
	return v
}

// pod returns one that takes units of the H200.
func pod(uid, node string, units int64) Pod {
	return Pod{UID: uid, Namespace: "acme", Node: node, Containers: []Requests{asks(units)}}
}

func done(p Pod) Pod {
	p.Done = true
	return p
}

func elsewhere(p Pod) Pod {
	p.Namespace = "mallory"
	return p
}

func TestUse(t *testing.T) {
	device := func(units int64) []gpu.Amount { return []gpu.Amount{{Resource: h200, Class: "h200", Units: units}} }
	withRaw := func(raw, units int64) []gpu.Amount {
		return []gpu.Amount{{Resource: h200, Units: raw}, {Resource: h200, Class: "h200", Units: units}}
	}
	raw := func(units int64) []gpu.Amount { return []gpu.Amount{{Resource: h200, Units: units}} }
	type budget = map[string][]gpu.Amount
	type nodes = map[string]Taken
	tests := map[string]struct {
		snapshot Snapshot
		budget   budget
		nodes    nodes
	}{
		"nothing": {budget: budget{}, nodes: nodes{}},
		"a device and its launcher are one use": {
			snapshot: Snapshot{Devices: []Device{attached("d", "v", 4)}, VMIs: []VMI{vmi("v", "p")}, Pods: []Pod{pod("p", "n1", 4)}},
			budget:   budget{"acme": device(4)}, nodes: nodes{"n1": {Held: 4}},
		},
		"a reservation counts though nothing runs": {
			snapshot: Snapshot{Devices: []Device{attached("d", "", 4)}},
			budget:   budget{"acme": device(4)}, nodes: nodes{"n1": {Held: 4}},
		},
		"a pending device counts for budgets and on no node": {
			snapshot: Snapshot{Devices: []Device{{UID: "d", Namespace: "acme", Class: "h200", Resource: h200, Units: 2}}},
			budget:   budget{"acme": device(2)}, nodes: nodes{},
		},
		"a device whose class is gone counts, too": {
			snapshot: Snapshot{Devices: []Device{{UID: "d", Namespace: "acme", Class: "h200", Units: 2}}},
			budget:   budget{"acme": {{Class: "h200", Units: 2}}}, nodes: nodes{},
		},
		"a pod that claims a VMI by owner reference or label but is not in activePods is raw": {
			snapshot: Snapshot{Devices: []Device{attached("d", "v", 4)}, VMIs: []VMI{vmi("v", "p")}, Pods: []Pod{pod("p", "n1", 4), pod("forged", "n1", 4)}},
			budget:   budget{"acme": withRaw(4, 4)}, nodes: nodes{"n1": {Held: 4, Raw: 4}},
		},
		"a launcher is raw until its VMI lists it": {
			snapshot: Snapshot{Devices: []Device{attached("d", "v", 4)}, VMIs: []VMI{vmi("v")}, Pods: []Pod{pod("p", "n1", 4)}},
			budget:   budget{"acme": withRaw(4, 4)}, nodes: nodes{"n1": {Held: 4, Raw: 4}},
		},
		"a forged pod that virt-controller lists is covered to the VMI's units, the rest is raw": {
			snapshot: Snapshot{Devices: []Device{attached("d", "v", 4)}, VMIs: []VMI{vmi("v", "p", "forged")}, Pods: []Pod{pod("p", "n1", 4), pod("forged", "n1", 3)}},
			budget:   budget{"acme": withRaw(3, 4)}, nodes: nodes{"n1": {Held: 4, Raw: 3}},
		},
		"a forged pod on another node takes that node's units": {
			snapshot: Snapshot{Devices: []Device{attached("d", "v", 4)}, VMIs: []VMI{vmi("v", "p", "forged")}, Pods: []Pod{pod("p", "n1", 1), pod("forged", "n2", 3)}},
			budget:   budget{"acme": device(4)}, nodes: nodes{"n1": {Held: 4}, "n2": {Raw: 3}},
		},
		"a forged pod of another namespace is no launcher": {
			snapshot: Snapshot{Devices: []Device{attached("d", "v", 4)}, VMIs: []VMI{vmi("v", "p")}, Pods: []Pod{elsewhere(pod("p", "n1", 4))}},
			budget:   budget{"acme": device(4), "mallory": raw(4)}, nodes: nodes{"n1": {Held: 4, Raw: 4}},
		},
		"a doppelganger that runs beside the launcher is raw": {
			snapshot: Snapshot{Devices: []Device{attached("d", "v", 4)}, VMIs: []VMI{vmi("v", "doppelganger", "p")}, Pods: []Pod{pod("doppelganger", "n1", 4), pod("p", "n1", 4)}},
			budget:   budget{"acme": withRaw(4, 4)}, nodes: nodes{"n1": {Held: 4, Raw: 4}},
		},
		"a doppelganger that is done is nothing": {
			snapshot: Snapshot{Devices: []Device{attached("d", "v", 4)}, VMIs: []VMI{vmi("v", "doppelganger", "p")}, Pods: []Pod{done(pod("doppelganger", "n1", 4)), pod("p", "n1", 4)}},
			budget:   budget{"acme": device(4)}, nodes: nodes{"n1": {Held: 4}},
		},
		"a VMI without a device is raw": {
			snapshot: Snapshot{VMIs: []VMI{vmi("v", "p")}, Pods: []Pod{pod("p", "n1", 4)}},
			budget:   budget{"acme": raw(4)}, nodes: nodes{"n1": {Raw: 4}},
		},
		"a device that no VMI has claimed yet covers nothing": {
			snapshot: Snapshot{Devices: []Device{attached("d", "", 4)}, VMIs: []VMI{vmi("", "p")}, Pods: []Pod{pod("p", "n1", 4)}},
			budget:   budget{"acme": withRaw(4, 4)}, nodes: nodes{"n1": {Held: 4, Raw: 4}},
		},
		"a device covers its own VMI's launcher only": {
			snapshot: Snapshot{Devices: []Device{attached("d", "v", 4)}, VMIs: []VMI{vmi("w", "p")}, Pods: []Pod{pod("p", "n1", 4)}},
			budget:   budget{"acme": withRaw(4, 4)}, nodes: nodes{"n1": {Held: 4, Raw: 4}},
		},
		"and units of its own name": {
			snapshot: Snapshot{Devices: []Device{attached("d", "v", 4)}, VMIs: []VMI{vmi("v", "p")}, Pods: []Pod{{UID: "p", Namespace: "acme", Containers: []Requests{{own: 4}}}}},
			budget:   budget{"acme": {{Resource: own, Units: 4}, {Resource: h200, Class: "h200", Units: 4}}}, nodes: nodes{"n1": {Held: 4}},
		},
		"all devices of a set cover together": {
			snapshot: Snapshot{Devices: []Device{attached("d", "v", 1), attached("e", "v", 3)}, VMIs: []VMI{vmi("v", "p")}, Pods: []Pod{pod("p", "n1", 4)}},
			budget:   budget{"acme": device(4)}, nodes: nodes{"n1": {Held: 4}},
		},
		"a lost device counts itself for budgets; on the node counts the pod that runs under it": {
			snapshot: Snapshot{Devices: []Device{lost(attached("d", "v", 4))}, VMIs: []VMI{vmi("v", "p")}, Pods: []Pod{pod("p", "n1", 4)}},
			budget:   budget{"acme": device(4)}, nodes: nodes{"n1": {Raw: 4, Under: 4}},
		},
		"a lost device of which nothing runs takes nothing of the node": {
			snapshot: Snapshot{Devices: []Device{lost(attached("d", "v", 4))}, VMIs: []VMI{vmi("v")}},
			budget:   budget{"acme": device(4)}, nodes: nodes{},
		},
		"a lost device beside one that holds": {
			snapshot: Snapshot{Devices: []Device{lost(attached("d", "v", 1)), attached("e", "v", 3)}, VMIs: []VMI{vmi("v", "p")}, Pods: []Pod{pod("p", "n1", 4)}},
			budget:   budget{"acme": device(4)}, nodes: nodes{"n1": {Held: 3, Raw: 1, Under: 1}},
		},
		"finished pods don't count": {snapshot: Snapshot{Pods: []Pod{done(pod("p", "n1", 4))}}, budget: budget{}, nodes: nodes{}},
		"a pod that waits for a node counts for budgets": {
			snapshot: Snapshot{Pods: []Pod{pod("p", "", 4)}}, budget: budget{"acme": raw(4)}, nodes: nodes{},
		},
		"a launcher that waits for a node is its device's": {
			snapshot: Snapshot{Devices: []Device{attached("d", "v", 4)}, VMIs: []VMI{vmi("v", "p")}, Pods: []Pod{pod("p", "", 4)}},
			budget:   budget{"acme": device(4)}, nodes: nodes{"n1": {Held: 4}},
		},
		"by a DeviceClass's name": {
			snapshot: Snapshot{Pods: []Pod{{UID: "p", Namespace: "acme", Node: "n2", Containers: []Requests{{dra: 1}, {h200: 1}}}}},
			budget:   budget{"acme": raw(2)}, nodes: nodes{"n2": {Raw: 2}},
		},
		"a device under a DeviceClass's name": {
			snapshot: Snapshot{
				Devices: []Device{{UID: "d", Namespace: "acme", Class: "h200", Resource: dra, Units: 4, Node: "n1", VMI: "v"}},
				VMIs:    []VMI{vmi("v", "p")}, Pods: []Pod{pod("p", "n1", 4)},
			},
			budget: budget{"acme": device(4)}, nodes: nodes{"n1": {Held: 4}},
		},
		"devices on two nodes cover what is on each": {
			snapshot: Snapshot{
				Devices: []Device{attached("d", "v", 2), {UID: "e", Namespace: "acme", Class: "h200", Resource: h200, Units: 2, Node: "n2", VMI: "v"}},
				VMIs:    []VMI{vmi("v", "p", "q")}, Pods: []Pod{pod("p", "n1", 2), pod("q", "n1", 2)},
			},
			budget: budget{"acme": device(4)}, nodes: nodes{"n1": {Held: 2, Raw: 2}, "n2": {Held: 2}},
		},
		"names that don't count": {snapshot: Snapshot{Pods: []Pod{{UID: "p", Containers: []Requests{{"cpu": 8}}}}}, budget: budget{}, nodes: nodes{}},
		"more than can be counted": {
			snapshot: Snapshot{Pods: []Pod{pod("p", "n1", math.MaxInt64), pod("q", "n1", 5)}},
			budget:   budget{"acme": raw(math.MaxInt32 + 5)}, nodes: nodes{"n1": {Raw: math.MaxInt32 + 5}},
		},
	}
	names := EffectiveNames(NameFacts{Listed: []gpu.ResourceName{h200, own}, DeviceClasses: []DeviceClass{{Name: "vfio", Extended: h200}}})
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			tc.snapshot.Names = names
			if diff := cmp.Diff(tc.budget, tc.snapshot.BudgetUse()); diff != "" {
				t.Errorf("budgets (-want +got):\n%s", diff)
			}
			got := nodes{}
			for node, taken := range tc.snapshot.CapacityUse() {
				got[node] = taken[h200]
			}
			if diff := cmp.Diff(tc.nodes, got); diff != "" {
				t.Errorf("nodes (-want +got):\n%s", diff)
			}
		})
	}
}

// TestRawPods pins which of a VMI's launchers is covered.
func TestRawPods(t *testing.T) {
	s := Snapshot{
		Names:   EffectiveNames(NameFacts{Listed: []gpu.ResourceName{h200}}),
		Devices: []Device{attached("d", "v", 4)},
		VMIs:    []VMI{vmi("v", "a", "b", "c"), vmi("x", "b")},
		Pods:    []Pod{pod("a", "n2", 4), pod("c", "n1", 4), pod("b", "n1", 1), {UID: "z", Namespace: "other", Name: "raw", Containers: []Requests{asks(1)}}},
	}
	want := []Raw{
		{Pod: "a", Namespace: "acme", Node: "n2", VMI: "v", Resource: h200, Units: 4},
		{Pod: "c", Namespace: "acme", Node: "n1", VMI: "v", Resource: h200, Units: 1},
		{Pod: "z", Namespace: "other", Name: "raw", Resource: h200, Units: 1},
	}
	if diff := cmp.Diff(want, s.BudgetRaw()); diff != "" {
		t.Errorf("budgets (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, s.CapacityRaw()); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
	coverage := BudgetCoverage(s.Devices, s.Names)
	for range 2 { // a coverage is not used up
		if diff := cmp.Diff(want, RawUse(s.Pods, LaunchersOf(s.VMIs), coverage)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

func TestFree(t *testing.T) {
	tests := map[string]struct {
		taken        Taken
		served, want int64
	}{
		"all":         {served: 8, want: 8},
		"what's left": {Taken{Held: 3, Raw: 2}, 8, 3},
		"never below": {Taken{Held: 3, Raw: 6}, 8, 0},
		"a flood":     {Taken{Held: 3, Raw: math.MaxInt64}, 8, 0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := tc.taken.Free(tc.served); got != tc.want {
				t.Errorf("got %d, want %d", got, tc.want)
			}
		})
	}
}
