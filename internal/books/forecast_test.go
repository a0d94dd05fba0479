package books

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gpuctl/gpuctl/internal/alloc"
	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/internal/usage"
)

// asks is a new order of a tenant.
func asks(namespace, class string, units int32) Set {
	o := Order{Object: "GPUDevice " + namespace + "/new", Namespace: namespace, Class: class, Count: units}
	return Set{Object: o.Object, Namespace: namespace, New: []Order{o}}
}

// starts is a VM of acme-dev that names devices, and has templates of one unit.
func starts(fits func(string) alloc.Verdict, templates int, uids ...string) Set {
	s := Set{Object: "VM acme-dev/vm", Namespace: "acme-dev", Devices: uids, Fits: fits}
	for range templates {
		s.New = append(s.New, Order{Object: s.Object, Namespace: s.Namespace, Class: "h200", Count: 1})
	}
	return s
}

func only(node string) func(string) alloc.Verdict {
	return func(n string) alloc.Verdict {
		if n == node {
			return ""
		}
		return "too little memory"
	}
}

func move(uid string, units int64, from, to string) Shift {
	return Shift{Namespace: "acme-dev", Name: "order-" + uid, Class: "h200", Units: units, From: from, To: to}
}

func TestForecast(t *testing.T) {
	gone := func(b *Books, nodes ...string) *Books {
		for _, n := range nodes {
			b.DropNode(n)
		}
		return b
	}
	tests := map[string]struct {
		books *Books
		set   Set
		want  Fit
		code  diagnose.Code
		moved []Shift
		ahead []Shift
	}{
		"an order fits on the fullest node":   {books: filled(-1, on("n2", device("a", 2))), set: asks("acme-dev", "h200", 4), want: Fit{Node: "n2"}},
		"the budget of an ancestor":           {books: filled(4, on("n2", device("a", 2))), set: asks("acme-ops", "h200", 4), code: "GPU0611"},
		"no such class":                       {books: filled(-1), set: asks("acme-dev", "none", 1), code: "GPU0620"},
		"nobody's tenant":                     {books: filled(-1), set: asks("kube-system", "h200", 1), code: "GPU0602"},
		"more than a node has":                {books: filled(-1), set: func() Set { s := asks("acme-dev", "h200", 8); s.New = append(s.New, s.New[0]); return s }(), code: "GPU0703"},
		"nothing is free":                     {books: filled(-1, attached("v", on("n1", device("a", 5))), attached("v", on("n2", device("b", 5)))), set: asks("acme-dev", "h200", 4), code: "GPU0705"},
		"a reservation makes room":            {books: filled(-1, on("n1", device("a", 5)), attached("v", on("n2", device("b", 3)))), set: asks("acme-dev", "h200", 8), want: Fit{Node: "n1", Moves: []Shift{move("a", 5, "n1", "n2")}}},
		"an order that waits goes first":      {books: filled(-1, device("a", 8), on("n1", device("b", 1))), set: asks("acme-dev", "h200", 8), code: "GPU0705", ahead: []Shift{move("a", 8, "", "n2")}},
		"one that waits beyond its budget":    {books: filled(4, device("a", 8)), set: asks("mallory", "h200", 8), want: Fit{Node: "n1"}},
		"a VM starts where its devices are":   {books: filled(-1, on("n2", device("a", 2))), set: starts(nil, 1, "a"), want: Fit{Node: "n2"}},
		"its launcher keeps it from there":    {books: filled(-1, on("n2", device("a", 2))), set: starts(only("n1"), 0, "a"), want: Fit{Node: "n1"}},
		"its launcher fits nowhere":           {books: filled(-1, on("n2", device("a", 2))), set: starts(only("n3"), 0, "a"), code: "GPU0704"},
		"its devices come to one node":        {books: filled(-1, on("n1", device("a", 2)), on("n2", device("b", 3))), set: starts(nil, 0, "a", "b"), want: Fit{Node: "n2"}},
		"a VM of devices that nobody knows":   {books: filled(-1), set: starts(nil, 0, "x"), want: Fit{}},
		"a drained node's reservation moves":  {books: gone(filled(-1, on("n1", device("a", 2))), "n1"), set: asks("acme-dev", "h200", 6), want: Fit{Node: "n2"}, moved: []Shift{move("a", 2, "n1", "n2")}},
		"a drained node's running VM loses":   {books: gone(filled(-1, attached("v", on("n1", device("a", 2)))), "n1"), set: asks("acme-dev", "h200", 8), want: Fit{Node: "n2"}, moved: []Shift{move("a", 2, "n1", "")}},
		"a VM with a device that is lost":     {books: gone(filled(-1, on("n1", device("a", 2)), on("n2", device("b", 8))), "n1"), set: starts(nil, 0, "a"), code: "GPU0713", moved: []Shift{move("a", 2, "n1", "")}},
		"a device that waits comes with a VM": {books: filled(-1, device("a", 2), on("n2", device("b", 3))), set: starts(nil, 0, "a", "b"), want: Fit{Node: "n2"}, ahead: []Shift{move("a", 2, "", "n2")}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			f := tc.books.Forecast()
			defer f.Close()
			got := f.Try(tc.set)
			if diff := cmp.Diff(tc.want, got, cmpopts.IgnoreFields(Fit{}, "Refusal", "Nodes", "Budgets")); diff != "" {
				t.Errorf("fit (-want +got): %v\n%s", got.Refusal, diff)
			}
			if code := codeOf(got.Refusal); code != tc.code {
				t.Errorf("refused with %q, want %q", code, tc.code)
			}
			if diff := cmp.Diff(tc.moved, f.Moved()); diff != "" {
				t.Errorf("moved (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.ahead, f.Ahead()); diff != "" {
				t.Errorf("ahead (-want +got):\n%s", diff)
			}
		})
	}
}

// Each that is placed is in the way of the next, on nodes and in budgets; with the forecast
// closed the books are as before.
func TestForecastPlaces(t *testing.T) {
	b := filled(12)
	var nodes []string
	f := b.Forecast()
	var last Fit
	for last.Refusal == nil {
		if last = f.Place(asks("acme-dev", "h200", 5), alloc.Held); last.Refusal == nil {
			nodes = append(nodes, last.Node)
		}
	}
	if diff := cmp.Diff([]string{"n1", "n2"}, nodes); diff != "" || last.Refusal.Code != "GPU0611" {
		t.Errorf("placed (-want +got): %v\n%s", last.Refusal, diff)
	}
	if got := last.Budgets[0].Use; got != 10 {
		t.Errorf("%d are in use then, want 10", got)
	}
	f.Close()
	f = b.Forecast()
	defer f.Close()
	if got := f.Try(asks("acme-dev", "h200", 5)); got.Refusal != nil || got.Budgets[0].Use != 0 {
		t.Errorf("something is left: %+v", got)
	}
}

func TestForecastNodes(t *testing.T) {
	b := filled(-1, on("n1", device("a", 6)), on("n2", device("b", 3)))
	closed, away, labelled := node("n3", 8), node("n4", 8), node("n7", 8)
	closed.Facts.Cordoned, away.Facts.NotReady, labelled.Facts.Labels = true, true, map[string]string{"disk": "fast"}
	for _, n := range []usage.Node{closed, away, node("n5", 0), node("n6", 8), labelled} {
		b.PutNode(n)
	}
	f := b.Forecast()
	defer f.Close()
	free := func(n int64) []UnitsFree { return []UnitsFree{{h200, n, 8}} }
	want := []NodeFit{
		{"n1", free(2), "too few free"},
		{"n2", free(8), ""},
		{"n3", free(8), "cordoned"},
		{"n4", free(8), "not ready"},
		{"n6", free(8), "too little memory"},
		{"n7", free(8), "too little memory"},
	}
	if diff := cmp.Diff(want, f.Try(starts(only("n2"), 4, "b")).Nodes); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
	b.PutClass(Class{Name: "fast", Resource: h200, MaxCount: 8, NodeSelector: map[string]string{"disk": "fast"}})
	fast := b.Forecast()
	defer fast.Close()
	for _, n := range fast.Try(asks("acme-dev", "fast", 1)).Nodes {
		if open := n.Node == "n7"; open != (n.Why == "") {
			t.Errorf("%s: %q", n.Node, n.Why)
		}
	}
}

// A VM that has started again stays where it is; a reservation that nobody uses moves with
// what is left.
func TestForecastWithout(t *testing.T) {
	b := filled(-1, on("n1", device("a", 4)), on("n1", device("b", 3)), on("n2", device("c", 3)))
	n := node("n1", 8)
	n.Facts.Cordoned = true
	b.PutNode(n)
	f := b.Forecast()
	defer f.Close()
	if got := f.Place(starts(nil, 0, "a"), alloc.Bound); got.Node != "n2" {
		t.Fatalf("it starts again on %q: %v", got.Node, got.Refusal)
	}
	f.Without("n1")
	if diff := cmp.Diff([]Shift{move("a", 4, "n1", "n2"), move("b", 3, "n1", "")}, f.Moved()); diff != "" {
		t.Errorf("moved (-want +got):\n%s", diff)
	}
}

// The devices of a VM that has started are not moved for others; those of an order are.
func TestForecastKeepsStarted(t *testing.T) {
	for state, want := range map[alloc.State]diagnose.Code{alloc.Held: "", alloc.Bound: "GPU0705"} {
		f := filled(-1, on("n1", device("a", 3)), attached("v", on("n2", device("b", 5)))).Forecast()
		f.Place(starts(nil, 0, "a"), state)
		if code := codeOf(f.Try(asks("acme-dev", "h200", 6)).Refusal); code != want {
			t.Errorf("with a device of state %v: refused with %q, want %q", state, code, want)
		}
		f.Close()
	}
}
