package alloc

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// except refuses the nodes of a list, for a reason each.
func except(why map[string]Verdict) func(string) Verdict {
	return func(node string) Verdict { return why[node] }
}

// many are nodes with H200s only.
func many(n int) (out []Node) {
	for i := range n {
		out = append(out, serves(fmt.Sprint("n", i), 8))
	}
	return out
}

var errBudget = errors.New("budget")

func TestDecide(t *testing.T) {
	cases := map[string]struct {
		nodes   []Node
		devices []Device
		request Request
		want    Decision
		wantErr string // Error of the refusal
		gaveUp  bool   // Exhausted of it
		tenant  string // ForTenant of it
	}{
		"the fullest node that has room": {
			nodes:   []Node{serves("a", 8), serves("b", 8)},
			devices: []Device{holds("x", "b", 3, Attached)},
			request: Request{Set: set(4)}, want: Decision{Node: "b"},
		},
		"the whole set on one node": {
			nodes:   []Node{serves("a", 4), serves("b", 4), serves("c", 8)},
			request: Request{Set: set(3, 2)}, want: Decision{Node: "c"},
		},
		"a node whose units are on one NUMA node, then by name": {
			nodes:   []Node{numa(serves("a", 8), 2, 2, 2, 2), numa(serves("b", 8), 4, 4), numa(serves("c", 8), 4, 4)},
			request: Request{Set: set(4)}, want: Decision{Node: "b"},
		},
		"the tighter NUMA node": {
			nodes:   []Node{numa(serves("a", 8), 6, 2), numa(serves("b", 8), 4, 4)},
			request: Request{Set: set(4)}, want: Decision{Node: "b"},
		},
		"over the fewest NUMA nodes": {
			nodes:   []Node{numa(serves("a", 8), 2, 2, 2, 2), numa(serves("b", 8), 4, 4)},
			request: Request{Set: set(6)}, want: Decision{Node: "b"},
		},
		"NUMA is only a tie-break": {
			nodes:   []Node{serves("a", 8), numa(serves("b", 6), 3, 3)},
			request: Request{Set: set(4)}, want: Decision{Node: "b"},
		},
		"by name": {
			nodes: []Node{serves("b", 8), serves("a", 8)}, request: Request{Set: set(1)}, want: Decision{Node: "a"},
		},
		"a set stays where it is": {
			nodes:   []Node{serves("a", 2), serves("b", 8)},
			devices: []Device{holds("x", "b", 2, Held)},
			request: Request{Set: []Member{{"x", h200, 2}}}, want: Decision{Node: "b"},
		},
		"a set comes together where the most of it is": {
			nodes:   []Node{serves("a", 4), serves("b", 4), serves("c", 3)},
			devices: []Device{holds("x", "a", 1, Held), holds("y", "b", 2, Held)},
			request: Request{Set: []Member{{"x", h200, 1}, {"y", h200, 2}}}, want: Decision{Node: "b"},
		},
		"what a set holds is free for it": {
			nodes:   []Node{serves("a", 4)},
			devices: []Device{holds("x", "a", 3, Attached)},
			request: Request{Set: []Member{{"x", h200, 3}, {"", h200, 1}}}, want: Decision{Node: "a"},
		},
		"a lost device holds nothing": {
			nodes:   []Node{serves("a", 4)},
			devices: []Device{lost(holds("x", "a", 4, Held))},
			request: Request{Set: set(4)}, want: Decision{Node: "a"},
		},
		"several resource names on one node": {
			nodes:   []Node{serves("a", 4), serves("b", 8, 1), serves("c", 6, 2)},
			request: Request{Set: append(set(4), Member{"", l40s, 1})}, want: Decision{Node: "c"},
		},
		"several resource names, one of them scarce": {
			nodes:   append(many(40), numa(serves("a", 8, 1), 2, 6), numa(serves("b", 8, 1), 4, 4), numa(serves("c", 8, 1), 5, 3)),
			request: Request{Set: append(set(4), Member{"", l40s, 1})}, want: Decision{Node: "b"},
		},
		"a reservation makes room": {
			nodes:   []Node{serves("a", 4), serves("b", 4)},
			devices: []Device{holds("x", "a", 1, Held), holds("y", "b", 1, Attached)},
			request: Request{Set: set(4)}, want: Decision{Node: "a", Moves: []Move{{"x", "a", "b"}}},
		},
		"as few units move as will do": {
			nodes:   []Node{serves("a", 4), serves("b", 4), serves("c", 2)},
			devices: []Device{holds("x", "a", 2, Held), holds("y", "b", 1, Held), holds("z", "b", 1, Attached)},
			request: Request{Set: set(3)}, want: Decision{Node: "b", Moves: []Move{{"y", "b", "a"}}},
		},
		"reservations make room for one another": {
			nodes:   []Node{serves("a", 4), serves("b", 4), serves("c", 1)},
			devices: []Device{holds("x", "a", 3, Held), holds("y", "b", 1, Held), holds("z", "b", 1, Attached)},
			request: Request{Set: set(4)}, want: Decision{Node: "a", Moves: []Move{{"y", "b", "c"}, {"x", "a", "b"}}},
		},
		"reservations do not wait for one another": {
			nodes:   []Node{serves("a", 4), serves("b", 3)},
			devices: []Device{holds("x", "a", 3, Held), holds("y", "b", 2, Held)},
			request: Request{Set: set(2)}, wantErr: "no node for 2", tenant: "no node has 2",
		},
		"nor for the set to leave": {
			nodes:   []Node{serves("a", 8), serves("b", 8), serves("c", 4)},
			devices: []Device{holds("p", "a", 1, Attached), holds("q", "a", 2, Attached), holds("x", "a", 4, Held), holds("y", "c", 3, Held), holds("z", "b", 2, Held)},
			request: Request{Set: []Member{{"x", h200, 4}, {"y", h200, 3}}}, wantErr: "b would do with 1", tenant: "no node has 7",
		},
		"nothing moves where that is not wanted": {
			nodes:   []Node{serves("a", 4), serves("b", 4)},
			devices: []Device{holds("x", "a", 1, Held), holds("y", "b", 1, Attached)},
			request: Request{Set: set(4), Effort: -1},
			wantErr: "no node for 4 of nvidia.com/GH100_H200_SXM_141GB; nvidia.com/GH100_H200_SXM_141GB: 2 nodes serve it, 4 on one at most, 6 free together, 3 on one at most; a would do with 1 of nvidia.com/GH100_H200_SXM_141GB more",
			tenant:  "no node has 4 of nvidia.com/GH100_H200_SXM_141GB free together now: 1 of nvidia.com/GH100_H200_SXM_141GB too few",
		},
		"looking for what to move is given up": {
			nodes:   []Node{serves("a", 4), serves("b", 4), serves("c", 1)},
			devices: []Device{holds("x", "a", 3, Held), holds("y", "b", 1, Held), holds("z", "b", 1, Attached)},
			request: Request{Set: set(4), Effort: 1}, gaveUp: true,
			wantErr: "not all ways were tried", tenant: "no node has 4",
		},
		"a reservation moves only where it may": {
			nodes:   []Node{serves("a", 4), serves("b", 4)},
			devices: []Device{holds("x", "a", 1, Held), holds("y", "b", 1, Attached)},
			request: Request{Set: set(4), May: func(_ Device, node string) bool { return node != "b" }},
			wantErr: "no node for 4", tenant: "no node has 4",
		},
		"bound and attached devices stay": {
			nodes:   []Node{serves("a", 4), serves("b", 4)},
			devices: []Device{holds("x", "a", 1, Bound), holds("y", "b", 1, Attached)},
			request: Request{Set: set(4)}, wantErr: "a would do with 1", tenant: "no node has 4",
		},
		"a closed node gets nothing": {
			nodes:   []Node{closed(serves("a", 8)), serves("b", 2)},
			devices: []Device{holds("x", "a", 1, Held)},
			request: Request{Set: set(4)}, wantErr: "b would do with 2", tenant: "no node has 4",
		},
		"a closed node does not keep its set": {
			nodes:   []Node{closed(serves("a", 8)), serves("b", 2)},
			devices: []Device{holds("x", "a", 1, Held)},
			request: Request{Set: []Member{{"x", h200, 1}}}, want: Decision{Node: "b"},
		},
		"constraints, most nodes first": {
			nodes:   []Node{serves("a", 8), serves("b", 8), serves("c", 8), serves("d", 2)},
			request: Request{Set: set(4), Fits: except(map[string]Verdict{"a": "untolerated taint", "b": "node affinity", "c": "untolerated taint"})},
			wantErr: "no node for 4 of nvidia.com/GH100_H200_SXM_141GB can run it; nvidia.com/GH100_H200_SXM_141GB: 4 nodes serve it, 8 on one at most, 26 free together, 8 on one at most; 2 nodes with room: untolerated taint; 1 node with room: node affinity; d would do with 2 of nvidia.com/GH100_H200_SXM_141GB more",
			tenant:  "4 of nvidia.com/GH100_H200_SXM_141GB are free, but the VM cannot run there: untolerated taint; node affinity",
		},
		"constraints pick the node": {
			nodes:   []Node{serves("a", 4), serves("b", 8)},
			request: Request{Set: set(4), Fits: except(map[string]Verdict{"a": "node affinity"})}, want: Decision{Node: "b"},
		},
		"no node serves it": {
			nodes: []Node{serves("a", 4)}, request: Request{Set: []Member{{"", l40s, 1}}},
			wantErr: "no node serves nvidia.com/AD102GL_L40S", tenant: "no node has nvidia.com/AD102GL_L40S",
		},
		"no node is that large": {
			nodes: []Node{serves("a", 4), closed(serves("b", 6))}, request: Request{Set: set(8)},
			wantErr: "2 nodes serve it, 6 on one at most, 4 free together, 4 on one at most, 1 closed; a would do with 4", tenant: "no node is large enough",
		},
		"no node serves both": {
			nodes:   []Node{serves("a", 4), {Name: "b", Serves: []Served{{Resource: l40s, Units: 4}}}},
			request: Request{Set: append(set(2), Member{"", l40s, 1})},
			wantErr: "a would do with 1 of nvidia.com/AD102GL_L40S more", tenant: "no node is large enough for 2 of nvidia.com/GH100_H200_SXM_141GB and 1 of nvidia.com/AD102GL_L40S together",
		},
		"what pods take is not free": {
			nodes:   []Node{raw(serves("a", 8), 5), serves("b", 6)},
			request: Request{Set: set(4)}, want: Decision{Node: "b"},
		},
		"what pods take is said": {
			nodes:   []Node{raw(serves("a", 8), 5)},
			request: Request{Set: set(4)},
			wantErr: "1 node serves it, 8 on one at most, 3 free together, 3 on one at most, 5 taken by pods without a device; a would do with 1 of",
			tenant:  "no node has 4 of nvidia.com/GH100_H200_SXM_141GB free together now: 1 of nvidia.com/GH100_H200_SXM_141GB too few",
		},
		"a reservation that pods took from is placed elsewhere": {
			nodes:   []Node{raw(serves("a", 4), 2), serves("b", 4)},
			devices: []Device{holds("x", "a", 4, Held)},
			request: Request{Set: []Member{{"x", h200, 4}}}, want: Decision{Node: "b"},
		},
		"what runs of a lost device is not free": {
			nodes:   []Node{serves("a", 8), serves("b", 8)},
			devices: []Device{runs(lost(holds("x", "a", 4, Attached)), 4), holds("y", "b", 1, Attached)},
			request: Request{Set: set(5)}, want: Decision{Node: "b"},
		},
		"nor for its own set": {
			nodes:   []Node{serves("a", 4)},
			devices: []Device{runs(lost(holds("x", "a", 4, Attached)), 1)},
			request: Request{Set: []Member{{"x", h200, 4}}}, wantErr: "a would do with 1", tenant: "no node has 4",
		},
		"a node in doubt takes new ones": {
			nodes: []Node{doubted(serves("a", 4))}, request: Request{Set: set(4)}, want: Decision{Node: "a"},
		},
		"nor when others move": {
			nodes:   []Node{serves("a", 4), serves("b", 1), serves("c", 1)},
			devices: []Device{runs(lost(holds("x", "a", 3, Attached)), 1), holds("y", "a", 1, Held), holds("z", "c", 1, Held)},
			request: Request{Set: []Member{{"x", h200, 3}, {"z", h200, 1}}}, wantErr: "a would do with 2", tenant: "no node has 4",
		},
		"NUMA nodes where pods are, too": {
			nodes:   []Node{numa(raw(serves("a", 8), 2), 1, 7), numa(raw(serves("b", 8), 2), 6, 2)},
			request: Request{Set: set(6)}, want: Decision{Node: "b"},
		},
		"and where something runs of lost devices": {
			nodes:   []Node{numa(serves("b", 8), 2, 6), numa(serves("a", 6), 3, 3)},
			devices: []Device{runs(lost(holds("x", "b", 4, Attached)), 2)},
			request: Request{Set: set(6)}, want: Decision{Node: "b"},
		},
		"the budget is asked first": {
			request: Request{Set: set(1), Budget: func() error { return errBudget }}, wantErr: "budget",
		},
		"nothing is asked": {wantErr: "nothing cannot be asked for", tenant: "nothing cannot be asked for"},
		"no units":         {request: Request{Set: set(0)}, wantErr: "0 of nvidia.com/GH100_H200_SXM_141GB cannot be asked for", tenant: "0 of nvidia.com/GH100_H200_SXM_141GB cannot be asked for"},
		"absurdly many units": {
			nodes: []Node{serves("a", math.MaxInt64), serves("b", math.MaxInt64)}, request: Request{Set: set(math.MaxInt64, 1)},
			wantErr: "cannot be asked for", tenant: "cannot be asked for",
		},
		"absurd NUMA nodes": {
			nodes: []Node{numa(serves("a", 1), -5, -5)}, request: Request{Set: set(2)},
			wantErr: "a would do with 1", tenant: "no node is large enough",
		},
		"one device, twice": {request: Request{Set: []Member{{"x", h200, 1}, {"x", h200, 1}}}, wantErr: "cannot be asked for", tenant: "cannot be asked for"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := Decide(New(tc.nodes, tc.devices), tc.request)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if tc.wantErr == "" {
				if err != nil {
					t.Errorf("refused: %v", err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
				t.Fatalf("got %v, want %s", err, tc.wantErr)
			}
			var r *Refusal
			if errors.As(err, &r) && r.Exhausted != tc.gaveUp {
				t.Errorf("exhausted: %v", r.Exhausted)
			}
			if r != nil && !strings.Contains(r.ForTenant(), tc.tenant) || r == nil && !errors.Is(err, errBudget) {
				t.Errorf("the tenant reads %q, want %q", r.ForTenant(), tc.tenant)
			}
		})
	}
}

func TestPlace(t *testing.T) {
	s := New([]Node{serves("a", 4), serves("b", 4)}, []Device{
		runs(lost(holds("p", "a", 2, Attached)), 2), runs(lost(holds("q", "b", 1, Attached)), 1), holds("r", "b", 1, Held),
	})
	d := Decision{Node: "b", Moves: []Move{{"r", "b", "a"}}}
	s = s.With(d.Place(s, []Member{{"p", h200, 2}, {"q", h200, 1}, {"new", h200, 1}}, Bound)...)
	want := []Device{
		{UID: "new", Resource: h200, Units: 1, Node: "b", State: Bound},
		holds("p", "b", 2, Bound), runs(holds("q", "b", 1, Bound), 1), holds("r", "a", 1, Held),
	}
	if diff := cmp.Diff(want, slices.Collect(s.Devices())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestRunningIsBounded(t *testing.T) {
	s := New(nil, []Device{runs(holds("a", "n", 2, Attached), 5), runs(holds("b", "n", 2, Bound), -1), runs(holds("c", "n", 2, Held), 1)})
	want := []Device{runs(holds("a", "n", 2, Attached), 2), holds("b", "n", 2, Bound), holds("c", "n", 2, Held)}
	if diff := cmp.Diff(want, slices.Collect(s.Devices())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestKinds(t *testing.T) {
	nodes := []Node{serves("a", 4, 1), serves("b", 2)}
	cases := map[Kind]Request{
		Invalid:     {},
		Unserved:    {Set: []Member{{"", "nvidia.com/OTHER", 1}}},
		TooLarge:    {Set: set(5)},
		Constrained: {Set: set(4), Fits: except(map[string]Verdict{"a": "taint"})},
		Full:        {Set: set(3)},
	}
	for want, r := range cases {
		t.Run(string(want), func(t *testing.T) {
			var devices []Device
			if want == Full {
				devices = []Device{holds("x", "a", 2, Attached)}
			}
			_, err := Decide(New(nodes, devices), r)
			var got *Refusal
			if !errors.As(err, &got) || got.Kind != want {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestSimulate(t *testing.T) {
	s := New([]Node{serves("a", 4), serves("b", 8), serves("c", 8)}, []Device{
		holds("a-vm", "b", 4, Attached), holds("b-order", "b", 2, Held),
	})
	got := Simulate(s, Drain("b"), Request{Set: set(4)}, 5)
	want := Simulation{
		Settled:  Settled{Moves: []Move{{"b-order", "b", "a"}}, Lost: []string{"a-vm"}},
		Decision: Decision{Node: "c"}, Nodes: []string{"c"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("drained (-want +got):\n%s", diff)
	}
	if got := Simulate(s, nil, Request{Set: set(2)}, 2); !slices.Equal(got.Nodes, []string{"b", "a"}) || got.Err != nil {
		t.Errorf("as it is: %+v", got)
	}
	bought := Simulate(s, []Change{PutNode(serves("d", 16))}, Request{Set: set(9)}, 0)
	if bought.Decision.Node != "d" || bought.Nodes != nil {
		t.Errorf("bought: %+v", bought)
	}
}

// TestFitsIsAskedLittle: only where units would do, best first, and no further
// than to the first node that fits.
func TestFitsIsAskedLittle(t *testing.T) {
	s := New([]Node{serves("a", 8), serves("b", 4), serves("c", 5), serves("d", 2), closed(serves("e", 8))}, nil)
	cases := map[string]struct {
		units int64
		good  string
		want  []string
	}{
		"the best fits":    {4, "abcd", []string{"b"}},
		"the next fits":    {4, "a", []string{"b", "c", "a"}},
		"larger than all":  {9, "abcd", []string{"a"}},
		"for what is free": {9, "d", []string{"a", "c", "b", "d"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var asked []string
			_, _ = Decide(s, Request{Set: set(tc.units), Fits: func(node string) Verdict {
				asked = append(asked, node)
				if strings.Contains(tc.good, node) {
					return ""
				}
				return "taint"
			}})
			if diff := cmp.Diff(tc.want, asked); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
