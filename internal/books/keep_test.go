package books

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuctl/gpuctl/internal/tenant"
)

// orders are templates of a VM of acme-dev.
func orders(counts ...int32) (out []Order) {
	for _, count := range counts {
		out = append(out, Order{Object: "VM", Namespace: "acme-dev", Class: "h200", Count: count})
	}
	return out
}

func TestTry(t *testing.T) {
	type result struct {
		Node  string
		Units int64
		Code  string
	}
	for name, tc := range map[string]struct {
		budget  int64
		devices []Device
		set     Set
		change  func(*Books)
		want    result
	}{
		"what is to be made":              {-1, nil, Set{New: orders(4, 2)}, nil, result{"n1", 6, ""}},
		"what is held stays":              {-1, []Device{on("n2", device("a", 4))}, Set{Devices: []string{"a"}, New: orders(4)}, nil, result{"n2", 4, ""}},
		"what is held comes along":        {-1, []Device{on("n2", device("a", 4)), attached("v", on("n2", device("b", 4)))}, Set{Devices: []string{"a"}, New: orders(4)}, nil, result{"n1", 8, ""}},
		"a dead VMI's devices":            {-1, []Device{attached("v", on("n2", device("a", 8)))}, Set{Devices: []string{"a"}}, nil, result{"n2", 0, ""}},
		"one that is not placed":          {-1, []Device{device("a", 4)}, Set{Devices: []string{"a"}}, nil, result{"n1", 4, ""}},
		"one that is not known yet":       {-1, nil, Set{Devices: []string{"a"}}, nil, result{}},
		"others make room":                {-1, []Device{on("n1", device("a", 1)), attached("v", on("n2", device("b", 1)))}, Set{New: orders(8)}, nil, result{"n1", 8, ""}},
		"no room":                         {-1, []Device{attached("v", on("n1", device("a", 1))), attached("v", on("n2", device("b", 1)))}, Set{New: orders(8)}, nil, result{Code: "GPU0705"}},
		"too much for any node":           {-1, nil, Set{New: orders(8, 1)}, nil, result{Code: "GPU0703"}},
		"over the budget together":        {5, nil, Set{New: orders(4, 2)}, nil, result{Code: "GPU0611"}},
		"over the budget with what waits": {5, []Device{device("a", 2)}, Set{New: orders(4)}, nil, result{Code: "GPU0611"}},
		"what is held needs no budget":    {4, []Device{on("n1", device("a", 4))}, Set{Devices: []string{"a"}}, func(b *Books) { b.SetTree(tree(1)) }, result{"n1", 0, ""}},
		"an unknown class":                {-1, nil, Set{New: []Order{{Object: "VM", Namespace: "acme-dev", Class: "x", Count: 1}}}, nil, result{Code: "GPU0620"}},
		"a class that is offered nowhere": {-1, nil, Set{New: orders(1)}, func(b *Books) {
			b.PutClass(Class{Name: "h200", Resource: h200, MaxCount: 8, NodeSelector: map[string]string{"a": "b"}})
		}, result{Code: "GPU0702"}},
		"more than one device may have":    {-1, nil, Set{New: orders(9)}, nil, result{Code: "GPU0623"}},
		"an order whose class is no more":  {-1, []Device{device("a", 1)}, Set{Devices: []string{"a"}}, func(b *Books) { b.DropClass("h200") }, result{Code: "GPU0620"}},
		"a device whose class is no more":  {-1, []Device{on("n1", device("a", 1))}, Set{Devices: []string{"a"}}, func(b *Books) { b.DropClass("h200") }, result{"n1", 0, ""}},
		"nothing is changed by asking":     {-1, nil, Set{New: orders(8)}, func(b *Books) { _ = b.AdmitSet(Set{Object: "VM", Namespace: "acme-dev", New: orders(8)}) }, result{"n1", 8, ""}},
		"the rest of a node that is taken": {-1, []Device{attached("v", on("n1", device("a", 7))), attached("v", on("n2", device("b", 6)))}, Set{New: orders(2)}, nil, result{"n2", 2, ""}},
	} {
		t.Run(name, func(t *testing.T) {
			b := filled(tc.budget, tc.devices...)
			if tc.change != nil {
				tc.change(b)
			}
			tc.set.Object, tc.set.Namespace = "VM", "acme-dev"
			r := b.Begin()
			room, err := r.Try(tc.set)
			r.Close()
			got := result{room.Node, room.Units[h200], code(t, err)}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
			if admitted := code(t, b.AdmitSet(tc.set)); admitted != tc.want.Code {
				t.Errorf("it is admitted with %q", admitted)
			}
		})
	}
}

// TestKeep: what is kept is nobody else's, neither units nor budget, until it is let go
// of or the round ends.
func TestKeep(t *testing.T) {
	b := filled(12)
	set := Set{Object: "VM", Namespace: "acme-dev", New: orders(8)}
	r := b.Begin()
	room, err := r.Try(set)
	if err != nil {
		t.Fatal(err)
	}
	r.Keep("vm", room)
	if free := r.snapshot.Free(room.Node, h200); free != 0 {
		t.Errorf("%d units are free", free)
	}
	if _, err := r.Try(set); code(t, err) != "GPU0611" {
		t.Errorf("the budget is not kept: %v", err)
	}
	if other, err := r.Try(Set{Object: "VM", Namespace: "mallory", New: []Order{{Object: "VM", Namespace: "mallory", Class: "h200", Count: 8}}}); err != nil || other.Node == room.Node {
		t.Errorf("somebody else gets %+v: %v", other, err)
	}
	r.Let("vm", room)
	if again, err := r.Try(set); err != nil || again.Node != room.Node {
		t.Errorf("it gets %+v itself: %v", again, err)
	}
	r.Keep("vm", room)
	r.Close()
	if used := b.placed.Of("acme", tenant.Key{Kind: tenant.Total}); used != 0 {
		t.Errorf("%d units are used after the round", used)
	}
	if free := b.Snapshot().Free(room.Node, h200); free != 8 {
		t.Errorf("%d units are free after the round", free)
	}
}
