package books

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/internal/tenant"
	"github.com/gpuctl/gpuctl/internal/usage"
	"github.com/gpuctl/gpuctl/test/often"
)

// write is what a device is given on a node.
func write(uid, node string, units int64) Write {
	return Write{UID: uid, Node: node, Resource: h200, Units: units}
}

func gone(w Write) Write { w.Lost = true; return w }

// code is a refusal's, "" where there is none.
func code(t *testing.T, err error) string {
	t.Helper()
	var r *diagnose.Refusal
	if err != nil && !errors.As(err, &r) {
		t.Fatalf("%v is no refusal", err)
	}
	if r == nil {
		return ""
	}
	return string(r.Code)
}

func TestRound(t *testing.T) {
	type result struct {
		Writes []Write
		Code   string
	}
	place := func(uid string) func(*Round) ([]Write, error) {
		return func(r *Round) ([]Write, error) { return r.Place(uid) }
	}
	bind := func(uids ...string) func(*Round) ([]Write, error) {
		return func(r *Round) ([]Write, error) { return r.Bind(uids, nil) }
	}
	settle := func(r *Round) ([]Write, error) { return r.Settle(), nil }
	tests := map[string]struct {
		budget  int64
		devices []Device
		change  func(*Books)
		ask     []func(*Round) ([]Write, error)
		want    []result
	}{
		"an order is placed where it fits best": {
			budget: -1, devices: []Device{device("a", 4), on("n2", device("b", 2))},
			ask:  []func(*Round) ([]Write, error){place("a")},
			want: []result{{Writes: []Write{write("a", "n2", 4)}}},
		},
		"two orders do not get the same units": {
			budget: -1, devices: []Device{device("a", 8), device("b", 8), device("c", 1)},
			ask: []func(*Round) ([]Write, error){place("a"), place("b"), place("c")},
			want: []result{
				{Writes: []Write{write("a", "n1", 8)}}, {Writes: []Write{write("b", "n2", 8)}}, {Code: "GPU0705"},
			},
		},
		"nor the same budget": {
			budget: 5, devices: []Device{device("a", 4), device("b", 2), device("c", 1)},
			ask:  []func(*Round) ([]Write, error){place("a"), place("b"), place("c")},
			want: []result{{Writes: []Write{write("a", "n1", 4)}}, {Code: "GPU0611"}, {Writes: []Write{write("c", "n1", 1)}}},
		},
		"others make room first": {
			budget: -1, devices: []Device{device("a", 8), on("n1", device("b", 1)), attached("v", on("n2", device("c", 1)))},
			ask:  []func(*Round) ([]Write, error){place("a"), place("a")},
			want: []result{{Writes: []Write{write("b", "n2", 1)}}, {Code: "GPU0705"}},
		},
		"a set comes together": {
			budget: 8, devices: []Device{device("a", 4), on("n1", device("b", 2)), on("n2", device("c", 1))},
			ask:  []func(*Round) ([]Write, error){bind("a", "b", "c")},
			want: []result{{Writes: []Write{write("a", "n1", 4), write("b", "n1", 2), write("c", "n1", 1)}}},
		},
		"what a set leaves is not free yet": {
			budget: -1, devices: []Device{on("n1", device("a", 6)), on("n2", device("b", 2)), device("c", 8)},
			ask:  []func(*Round) ([]Write, error){bind("a", "b"), place("c")},
			want: []result{{Writes: []Write{write("a", "n1", 6), write("b", "n1", 2)}}, {Code: "GPU0705"}},
		},
		"what is bound moves for nobody": {
			budget: -1, devices: []Device{on("n1", device("a", 1)), device("b", 8), on("n2", device("c", 1))},
			ask:  []func(*Round) ([]Write, error){bind("a"), bind("c"), place("b")},
			want: []result{{Writes: []Write{write("a", "n1", 1)}}, {Writes: []Write{write("c", "n2", 1)}}, {Code: "GPU0705"}},
		},
		"a set needs budget for what has no node only": {
			budget: 3, devices: []Device{on("n1", device("a", 3)), device("b", 1)},
			ask:  []func(*Round) ([]Write, error){bind("a", "b"), bind("a")},
			want: []result{{Code: "GPU0611"}, {Writes: []Write{write("a", "n1", 3)}}},
		},
		"a round decides once on a device": {
			budget: -1, devices: []Device{on("n1", device("a", 3)), device("b", 1)},
			ask:  []func(*Round) ([]Write, error){bind("a"), bind("a", "b")},
			want: []result{{Writes: []Write{write("a", "n1", 3)}}, {}},
		},
		"nor on one that had to move": {
			budget: -1, devices: []Device{attached("v", on("n1", device("a", 4))), on("n1", device("b", 4))}, change: func(b *Books) { b.PutNode(node("n1", 4)) },
			ask:  []func(*Round) ([]Write, error){settle, bind("b")},
			want: []result{{Writes: []Write{write("b", "n2", 4)}}, {}},
		},
		"a class that is offered elsewhere by now": {
			budget: -1, devices: []Device{on("n1", device("a", 4))},
			change: func(b *Books) {
				b.PutClass(Class{Name: "h200", Resource: h200, MaxCount: 8, NodeSelector: map[string]string{"zone": "east"}})
			},
			ask: []func(*Round) ([]Write, error){bind("a")}, want: []result{{Writes: []Write{write("a", "n1", 4)}}},
		},
		"another class that has the name by now": {
			budget: -1, devices: []Device{on("n1", device("a", 4)), on("n1", device("b", 2)), on("n2", device("c", 4))},
			change: func(b *Books) {
				b.PutNode(node("n1", 4))
				b.PutClass(Class{Name: "h200", Resource: l40s, MaxCount: 8, NodeSelector: map[string]string{"zone": "east"}})
			},
			ask: []func(*Round) ([]Write, error){settle, bind("c")}, want: []result{{Writes: []Write{write("b", "n2", 2)}}, {Writes: []Write{write("c", "n2", 4)}}},
		},
		"what is lost under a name that its class has no more": {
			budget: -1, devices: []Device{lost(on("n1", device("a", 4))), lost(attached("v", on("n1", device("b", 4))))},
			change: func(b *Books) {
				b.PutNode(node("n1", 0))
				b.DropNode("n2")
				b.PutClass(Class{Name: "h200", Resource: l40s, MaxCount: 8})
			},
			ask: []func(*Round) ([]Write, error){settle}, want: []result{{Writes: []Write{{UID: "a"}}}},
		},
		"a device that is not there": {
			ask: []func(*Round) ([]Write, error){bind("x")}, want: []result{{Code: "GPU0601"}},
		},
		"an order of a class that is gone": {
			budget: -1, devices: []Device{device("a", 1), on("n1", device("b", 1))}, change: func(b *Books) { b.DropClass("h200") },
			ask:  []func(*Round) ([]Write, error){place("a"), bind("b")},
			want: []result{{Code: "GPU0620"}, {Writes: []Write{write("b", "n1", 1)}}},
		},
		"an order larger than what the class allows now": {
			budget: -1, devices: []Device{device("a", 4)}, change: func(b *Books) { b.PutClass(Class{Name: "h200", Resource: h200, MaxCount: 1}) },
			ask:  []func(*Round) ([]Write, error){place("a")},
			want: []result{{Writes: []Write{write("a", "n1", 4)}}},
		},
		"units are lost, and what may moves": {
			budget: -1, devices: []Device{attached("v", on("n1", device("a", 4))), on("n1", device("b", 4))}, change: func(b *Books) { b.PutNode(node("n1", 2)) },
			ask:  []func(*Round) ([]Write, error){settle},
			want: []result{{Writes: []Write{write("b", "n2", 4), gone(write("a", "n1", 4))}}},
		},
		"what is lost is not given out in the same round": {
			budget: -1, devices: []Device{attached("v", on("n1", device("a", 4))), device("c", 2)},
			change: func(b *Books) { b.PutNode(node("n1", 3)); b.DropNode("n2") },
			ask:    []func(*Round) ([]Write, error){settle, place("c")},
			want:   []result{{Writes: []Write{gone(write("a", "n1", 4))}}, {Code: "GPU0705"}},
		},
		"units are back": {
			budget: -1, devices: []Device{lost(attached("v", on("n1", device("a", 4))))},
			ask:  []func(*Round) ([]Write, error){settle},
			want: []result{{Writes: []Write{write("a", "n1", 4)}}},
		},
		"who makes room for them comes first": {
			budget: -1, devices: []Device{lost(attached("v", on("n1", device("a", 8)))), on("n1", device("b", 1))},
			ask:  []func(*Round) ([]Write, error){settle},
			want: []result{{Writes: []Write{write("b", "n2", 1)}}},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			b := filled(tc.budget, tc.devices...)
			if tc.change != nil {
				tc.change(b)
			}
			r := b.Begin()
			var got []result
			for _, ask := range tc.ask {
				writes, err := ask(r)
				got = append(got, result{writes, code(t, err)})
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			used := b.placed.Of("acme", tenant.Key{Kind: tenant.Total})
			r.Close()
			if now := b.placed.Of("acme", tenant.Key{Kind: tenant.Total}); now > used || now != placedUnits(tc.devices) {
				t.Errorf("%d were placed, %d in the round, %d now", placedUnits(tc.devices), used, now)
			}
		})
	}
}

func placedUnits(devices []Device) (units int64) {
	for _, d := range devices {
		if d.Node != "" {
			units += d.Units
		}
	}
	return units
}

// TestClassIsOfferedOnItsNodes: neither orders nor moves go elsewhere.
func TestClassIsOfferedOnItsNodes(t *testing.T) {
	b := filled(-1, device("a", 1), on("n2", device("b", 1)), on("n2", device("c", 1)))
	n := node("n2", 8)
	n.Facts.Labels = map[string]string{"zone": "east"}
	b.PutNode(n)
	b.PutClass(Class{Name: "h200", Resource: h200, MaxCount: 8, NodeSelector: map[string]string{"zone": "east"}})
	r := b.Begin()
	defer r.Close()
	writes, err := r.Place("a")
	if diff := cmp.Diff([]Write{write("a", "n2", 1)}, writes); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	b.PutNode(node("n2", 8)) // the label is gone
	b.PutDevice(on("n2", device("a", 1)))
	if err := b.Admit(Order{Object: "o", Namespace: "acme-dev", Class: "h200", Count: 1}); code(t, err) != "GPU0702" {
		t.Errorf("got %v", err)
	}
	b.DropNode("n2")
	after := b.Begin()
	defer after.Close()
	if got := after.Settle(); len(got) != 3 || !got[0].Lost {
		t.Errorf("where the class is not offered nothing moves to: %+v", got)
	}
}

func TestAdmit(t *testing.T) {
	tests := map[string]struct {
		order  Order
		change func(*Books)
		want   string // of the code, and what the tenant reads
	}{
		"what fits":               {order: Order{Namespace: "acme-dev", Class: "h200", Count: 6}},
		"more than a node has":    {Order{Namespace: "mallory", Class: "h200", Count: 7}, nil, "GPU0705"},
		"an unknown class":        {Order{Namespace: "acme-dev", Class: "h300", Count: 1}, nil, "GPU0620"},
		"a class that is deleted": {Order{Namespace: "acme-dev", Class: "going", Count: 1}, nil, "GPU0621"},
		"more than one order has": {Order{Namespace: "acme-dev", Class: "h200", Count: 9}, nil, "GPU0623"},
		"what is not licensed":    {Order{Namespace: "acme-dev", Class: "vgpu", Count: 1}, nil, "GPU0622"},
		"without the entitlement": {Order{Namespace: "mallory", Class: "entitled", Count: 1}, nil, "GPU0612"},
		"with an ancestor's":      {order: Order{Namespace: "acme-dev", Class: "entitled", Count: 1}},
		"over the budget of an ancestor, with what waits": {
			Order{Namespace: "acme-ops", Class: "h200", Count: 4},
			func(b *Books) { b.PutDevice(device("waits", 3)) },
			"GPU0611: the budget of acme does not allow 4 more of nvidia.com/GH100_H200_SXM_141GB; 3 left for acme-ops",
		},
		"no tenant":              {Order{Namespace: "kube-system", Class: "h200", Count: 1}, nil, "GPU0602"},
		"an unknown namespace":   {Order{Namespace: "nowhere", Class: "h200", Count: 1}, nil, "GPU0603"},
		"what no node serves":    {Order{Namespace: "acme-dev", Class: "l40s", Count: 1}, nil, "GPU0702"},
		"more than any node has": {Order{Namespace: "mallory", Class: "h200", Count: 8}, func(b *Books) { b.PutNode(node("n1", 4)); b.PutNode(node("n2", 4)) }, "GPU0703"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			b := filled(10, attached("v", on("n1", device("a", 2))), attached("w", on("n2", device("b", 2))))
			b.PutClass(Class{Name: "going", Resource: h200, MaxCount: 8, Deleting: true})
			b.PutClass(Class{Name: "vgpu", Resource: "nvidia.com/NVIDIA_A10-12Q", MaxCount: 8})
			b.PutClass(Class{Name: "entitled", Resource: h200, MaxCount: 8, Entitlement: "vgpu"})
			b.PutClass(Class{Name: "l40s", Resource: l40s, MaxCount: 8})
			if tc.change != nil {
				tc.change(b)
			}
			tc.order.Object = "GPUDevice x/y"
			err := b.Admit(tc.order)
			var r *diagnose.Refusal
			errors.As(err, &r)
			if tc.want == "" && err != nil || tc.want != "" && (r == nil || !strings.HasPrefix(r.ForTenant(), tc.want) || r.Object != tc.order.Object) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

// TestEveryPartOfARoundHolds draws clusters and what is asked of them, and lets any
// part of the writes succeed: no node holds more than it serves, no budget is
// exceeded, and what is bound is on one node.
func TestEveryPartOfARoundHolds(t *testing.T) {
	often.Check(t, func(t *rapid.T) {
		budget := rapid.Int64Range(2, 12).Draw(t, "budget")
		b := filled(budget)
		served := map[string]int64{"n1": 8, "n2": 8, "n3": 4}
		b.PutNode(node("n3", 4))
		for i := range rapid.IntRange(1, 7).Draw(t, "devices") {
			d := device(string(rune('a'+i)), rapid.Int64Range(1, 4).Draw(t, "units"))
			name := rapid.SampledFrom([]string{"", "n1", "n2", "n3"}).Draw(t, "node")
			b.settle()
			if name != "" && (b.snapshot.Free(name, h200) < d.Units || b.placed.Of("acme", tenant.Key{Kind: tenant.Total})+d.Units > budget) {
				name = ""
			}
			if name != "" {
				d = on(name, d)
				if rapid.IntRange(0, 2).Draw(t, "attached") == 0 {
					d = attached("v", d)
				}
				d.Lost = rapid.IntRange(0, 3).Draw(t, "lost") == 0
			}
			b.PutDevice(d)
		}
		for range rapid.IntRange(1, 4).Draw(t, "rounds") {
			writes := draws(t, b)
			for _, w := range writes {
				if d, ok := b.Device(w.UID); ok && rapid.IntRange(0, 3).Draw(t, "void") > 0 {
					d.Node, d.Resource, d.Lost = w.Node, w.Resource, w.Lost
					b.PutDevice(d)
				}
				holds(t, b, served, budget)
			}
		}
	})
}

// draws asks for some things in one round.
func draws(t *rapid.T, b *Books) []Write {
	r := b.Begin()
	defer r.Close()
	writes := r.Settle()
	for range rapid.IntRange(1, 4).Draw(t, "asks") {
		uids := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}), 1, 2, rapid.ID[string]).Draw(t, "set")
		fresh := true
		for _, uid := range uids {
			d, _ := b.Device(uid)
			fresh = fresh && !r.done[uid] && !d.Attached() && (len(uids) > 1 || d.Node == "")
		}
		if !fresh {
			continue
		}
		got, err := r.Bind(uids, nil)
		if err != nil {
			continue
		}
		if len(got) == 0 {
			if len(writes) == 0 {
				t.Fatalf("%v could have a node, and nothing is done for it: %v", uids, shown(b))
			}
			continue
		}
		if moved := got[0].UID != uids[0]; !moved {
			for _, w := range got {
				if w.Node != got[0].Node {
					t.Fatalf("a set is on two nodes: %+v", got)
				}
			}
		}
		writes = append(writes, got...)
	}
	return rapid.Permutation(writes).Draw(t, "order")
}

func holds(t *rapid.T, b *Books, served map[string]int64, budget int64) {
	for name, units := range served {
		if _, held := b.Snapshot().Units(name, h200); held > units {
			t.Fatalf("%s serves %d and holds %d: %v", name, units, held, shown(b))
		}
	}
	if used := b.placed.Of("acme", tenant.Key{Kind: tenant.Total}); used > budget {
		t.Fatalf("acme may have %d and has %d: %v", budget, used, shown(b))
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
