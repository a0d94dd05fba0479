package books

import (
	"fmt"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/internal/tenant"
	"github.com/gpuctl/gpuctl/internal/usage"
)

// TestHugePodLeavesBudgetsAsTheyWere: a pod may ask for the largest number there is, and
// never run. When it is gone, budgets are what they were before it.
func TestHugePodLeavesBudgetsAsTheyWere(t *testing.T) {
	b := filled(8, on("n1", device("a", 6)))
	b.Snapshot()
	b.PutPod(pod("huge", "", math.MaxInt64))
	b.Snapshot()
	b.DropPod("acme-dev", "huge")
	b.Snapshot()
	key := tenant.Key{Kind: tenant.Resource, Name: string(h200)}
	if got := []int64{b.ordered.Of("acme", key), b.placed.Of("acme", key)}; !cmp.Equal(got, []int64{6, 6}) {
		t.Errorf("ordered and placed: %v, want 6 and 6", got)
	}
	if err := b.Admit(Order{Object: "o", Namespace: "acme-ops", Class: "h200", Count: 4}); code(t, err) != "GPU0611" {
		t.Errorf("4 more than 6 of a budget of 8: got %v", err)
	}
}

// TestHugePodLeavesNodesAsTheyWere: the same of what pods take of nodes.
func TestHugePodLeavesNodesAsTheyWere(t *testing.T) {
	b := filled(-1)
	b.PutPod(pod("raw", "n1", 4))
	b.Snapshot()
	huge := pod("huge", "n1", math.MaxInt64)
	huge.Namespace = "mallory"
	b.PutPod(huge)
	b.Snapshot()
	b.DropPod("mallory", "huge")
	if got := b.Snapshot().Free("n1", h200); got != 4 {
		t.Errorf("a pod has 4 of 8: %d are free", got)
	}
}

// TestHealWaitsForRoom: a running VM whose units are back needs none that are free, and
// still the node may not hold more than it serves if what makes room is not written.
func TestHealWaitsForRoom(t *testing.T) {
	b := filled(-1, lost(attached("v", on("n1", device("a", 4)))), on("n1", device("b", 2)))
	b.PutNode(node("n1", 4))
	b.PutVMI(usage.VMI{UID: "v", Namespace: "acme-dev", ActivePods: map[string]string{"p": "n1"}})
	b.PutPod(pod("p", "n1", 4))
	r := b.Begin()
	writes := r.Settle()
	r.Close()
	for _, w := range writes {
		if w.UID != "a" { // b's write fails
			continue
		}
		d, _ := b.Device(w.UID)
		d.Node, d.Resource, d.Lost = w.Node, w.Resource, w.Lost
		b.PutDevice(d)
	}
	if served, held := b.Snapshot().Units("n1", h200); held > served {
		t.Errorf("n1 serves %d and holds %d, when only one of %+v is written", served, held, writes)
	}
}

// TestHealWaitsForWhoIsLost: the same where another one's loss makes room.
func TestHealWaitsForWhoIsLost(t *testing.T) {
	b := filled(-1, lost(attached("v", on("n1", device("a", 3)))), attached("w", on("n1", device("b", 8))))
	b.DropNode("n2")
	b.PutNode(node("n1", 7))
	b.PutVMI(usage.VMI{UID: "v", Namespace: "acme-dev", ActivePods: map[string]string{"p": "n1"}})
	b.PutPod(pod("p", "n1", 3))
	r := b.Begin()
	writes := r.Settle()
	r.Close()
	for _, w := range writes {
		if d, _ := b.Device(w.UID); w.UID == "a" {
			d.Lost = w.Lost
			b.PutDevice(d)
		}
	}
	if d, _ := b.Device("a"); !d.Lost {
		t.Errorf("8 of 7 are held, and 3 more since only one of %+v is written", writes)
	}
}

// TestRoundDecidesOnceOnADevice: a batch has each device once.
func TestRoundDecidesOnceOnADevice(t *testing.T) {
	b := filled(-1, attached("v", on("n1", device("a", 4))), on("n1", device("b", 4)))
	b.PutNode(node("n1", 4))
	r := b.Begin()
	defer r.Close()
	writes := r.Settle()
	more, err := r.Bind([]string{"b"}, nil)
	seen := map[string]bool{}
	for _, w := range append(writes, more...) {
		if seen[w.UID] {
			t.Errorf("%s is written twice: %+v, then %+v (%v)", w.UID, writes, more, err)
		}
		seen[w.UID] = true
	}
}

// TestHeldDeviceKeepsItsNode: a device that has a node keeps what it has, whatever became
// of its class.
func TestHeldDeviceKeepsItsNode(t *testing.T) {
	tests := map[string]struct {
		class Class
	}{
		"the class is offered elsewhere now": {Class{Name: "h200", Resource: h200, MaxCount: 8, NodeSelector: map[string]string{"zone": "east"}}},
		"another class has its name now":     {Class{Name: "h200", Resource: l40s, MaxCount: 8, NodeSelector: map[string]string{"gpu": "l40s"}}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			b := filled(-1, on("n1", device("a", 4)))
			b.DropClass("h200")
			b.PutClass(tc.class)
			r := b.Begin()
			defer r.Close()
			writes, err := r.Bind([]string{"a"}, nil)
			if diff := cmp.Diff([]Write{write("a", "n1", 4)}, writes); diff != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

// TestNewClassDoesNotSayWhereOldDevicesMove: a class of the same name and another resource
// is not the class of a reservation that was made before.
func TestNewClassDoesNotSayWhereOldDevicesMove(t *testing.T) {
	b := filled(-1, on("n1", device("a", 4)))
	b.DropClass("h200")
	b.PutClass(Class{Name: "h200", Resource: l40s, MaxCount: 8, NodeSelector: map[string]string{"gpu": "l40s"}})
	b.PutNode(node("n1", 0))
	r := b.Begin()
	defer r.Close()
	if diff := cmp.Diff([]Write{write("a", "n2", 4)}, r.Settle()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestLostUnderAnOldNameIsPlacedAnew: a plugin's upgrade has renamed the GPUs, and the
// hoster has made the class anew for the new name. What is lost without a VMI is placed
// anew, or pending.
func TestLostUnderAnOldNameIsPlacedAnew(t *testing.T) {
	d := lost(on("n1", device("a", 4)))
	b := filled(-1, d)
	for _, name := range []string{"n1", "n2"} {
		n := node(name, 0)
		n.Facts.Allocatable = map[gpu.ResourceName]int64{l40s: 8}
		b.PutNode(n)
	}
	b.DropClass("h200")
	b.PutClass(Class{Name: "h200", Resource: l40s, MaxCount: 8})
	r := b.Begin()
	defer r.Close()
	settled := r.Settle()
	bound, err := r.Bind([]string{"a"}, nil)
	if len(settled)+len(bound) == 0 {
		t.Errorf("nothing is done for it, ever: %v", err)
	}
}

// TestBudgetHoldsForBothSpellings: a budget that is written under a DeviceClass's own name
// is the one of its extended resource name.
func TestBudgetHoldsForBothSpellings(t *testing.T) {
	b := filled(-1)
	b.SetTree(tenant.Build([]tenant.Namespace{{Name: "acme"}}, tenant.Labels([]tenant.Quota{{
		Namespace: "acme", Name: "gpus", Hard: map[string]string{"requests.deviceclass.resource.kubernetes.io/gpu": "2"},
	}}, false), func(tenant.Namespace) bool { return true }))
	b.SetNames(nil, []usage.DeviceClass{{Name: "gpu", Extended: h200, GPU: true}})
	if err := b.Admit(Order{Object: "o", Namespace: "acme", Class: "h200", Count: 4}); code(t, err) != "GPU0611" {
		t.Errorf("4 of a budget of 2: got %v", err)
	}
}

// TestCloseOfARoundThatSawAnotherTree: what it decided counts no longer, and no less.
func TestCloseOfARoundThatSawAnotherTree(t *testing.T) {
	b := filled(8, device("a", 4))
	r := b.Begin()
	if _, err := r.Place("a"); err != nil {
		t.Fatal(err)
	}
	b.SetTree(tree(8))
	b.Snapshot()
	r.Close()
	b.PutDevice(on("n1", device("a", 4)))
	b.Snapshot()
	if got := b.placed.Of("acme", tenant.Key{Kind: tenant.Total}); got != 4 {
		t.Errorf("4 are placed, %d count", got)
	}
}

// TestClassWhoseNodesAreFullIsFull: that other nodes have units is nothing that keeps a VM
// from running: units of the class come back.
func TestClassWhoseNodesAreFullIsFull(t *testing.T) {
	b := filled(-1, attached("v", on("n1", device("a", 8))))
	n := node("n1", 8)
	n.Facts.Labels = map[string]string{"zone": "east"}
	b.PutNode(n)
	b.PutClass(Class{Name: "h200", Resource: h200, MaxCount: 8, NodeSelector: map[string]string{"zone": "east"}})
	err := b.Admit(Order{Object: "o", Namespace: "mallory", Class: "h200", Count: 4})
	if code(t, err) != "GPU0705" {
		t.Errorf("got %v", err)
	}
}

// TestOfferIsOfTheClass: units of another resource name, of a class that had the name
// before, are none of it.
func TestOfferIsOfTheClass(t *testing.T) {
	b := filled(-1, on("n1", device("a", 4)), lost(on("n2", device("b", 2))))
	b.DropClass("h200")
	b.PutClass(Class{Name: "h200", Resource: l40s, MaxCount: 8})
	if diff := cmp.Diff(Offer{Permitted: true}, b.Offers()["h200"]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestNamesSourcesAreAsIfMadeAnew: names tell why they count, however books came to them.
func TestNamesSourcesAreAsIfMadeAnew(t *testing.T) {
	kept := filled(-1)
	kept.Names()
	kept.PutDevice(on("n1", device("a", 1)))
	anew := filled(-1, on("n1", device("a", 1)))
	if diff := cmp.Diff(anew.Names().Sources(h200), kept.Names().Sources(h200)); diff != "" {
		t.Errorf("(-anew +kept):\n%s", diff)
	}
}

// TestTakeoverKeepsTheNode: the VM's last launcher still ends, and its units are those
// that the set holds.
func TestTakeoverKeepsTheNode(t *testing.T) {
	b := filled(-1, attached("v", on("n1", device("a", 4))))
	b.PutNode(node("n1", 4))
	b.PutVMI(usage.VMI{UID: "v", Namespace: "acme-dev", ActivePods: map[string]string{"p": "n1"}})
	b.PutPod(pod("p", "n1", 4))
	b.Snapshot()
	b.PutDevice(on("n1", device("a", 4))) // VMI v is final, and the VM's next one asks
	r := b.Begin()
	defer r.Close()
	writes, err := r.Bind([]string{"a"}, nil)
	if diff := cmp.Diff([]Write{write("a", "n1", 4)}, writes); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// TestNodeThatSaysNothingNewCostsNothing: kubelet writes each node every few minutes, and
// that changes no names.
func TestNodeThatSaysNothingNewCostsNothing(t *testing.T) {
	cost := func(nodes int) float64 {
		b := filled(-1)
		for i := range nodes {
			b.PutNode(node(fmt.Sprintf("node-%d", i), 8))
		}
		b.Snapshot()
		n := node("n1", 8)
		return testing.AllocsPerRun(10, func() { b.PutNode(n); b.Snapshot() })
	}
	if few, many := cost(10), cost(1000); many > 4*few {
		t.Errorf("%.0f allocations with 10 nodes, %.0f with 1000", few, many)
	}
}

// TestNamesGoWithTheLastDevice: a name that counts for a device only is none any more when
// the device is gone, and so is that of a DeviceClass which has it.
func TestNamesGoWithTheLastDevice(t *testing.T) {
	b := New()
	b.SetTree(tree(-1))
	b.SetNames(nil, []usage.DeviceClass{{Name: "x", Extended: h200}})
	b.PutDevice(on("n1", device("a", 1)))
	b.Names()
	b.DropDevice("a")
	if got := b.Names().All(); len(got) > 0 {
		t.Errorf("%v count for nothing", got)
	}
}

// TestClassWhoseNodesAreSmallIsTooLarge: what the class's nodes do not serve never comes
// back, however large others are.
func TestClassWhoseNodesAreSmallIsTooLarge(t *testing.T) {
	b := filled(-1, attached("v", on("n2", device("a", 8))))
	n := node("n1", 4)
	n.Facts.Labels = map[string]string{"zone": "east"}
	b.PutNode(n)
	b.PutClass(Class{Name: "h200", Resource: h200, MaxCount: 8, NodeSelector: map[string]string{"zone": "east"}})
	if err := b.Admit(Order{Object: "o", Namespace: "mallory", Class: "h200", Count: 8}); code(t, err) != "GPU0703" {
		t.Errorf("got %v", err)
	}
}

// TestNothingOrderedIsNoCredit is as TestHugePodLeavesBudgetsAsTheyWere, later:
// when all is given back, the budget is what it says, and no more.
func TestNothingOrderedIsNoCredit(t *testing.T) {
	b := filled(8, on("n1", device("a", 6)))
	b.Snapshot()
	b.PutPod(pod("huge", "", math.MaxInt64))
	b.Snapshot()
	b.DropPod("acme-dev", "huge")
	b.Snapshot()
	b.DropDevice("a")
	b.PutDevice(on("n1", device("b", 8)))
	if err := b.Admit(Order{Object: "o", Namespace: "acme-ops", Class: "h200", Count: 6}); code(t, err) != "GPU0611" {
		t.Errorf("6 more than 8 of a budget of 8: got %v", err)
	}
}
