package alloc

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSettle(t *testing.T) {
	cases := map[string]struct {
		nodes   []Node
		devices []Device
		may     func(Device, string) bool
		want    Settled
	}{
		"all is well": {nodes: []Node{serves("a", 4)}, devices: []Device{holds("x", "a", 4, Held)}},
		"a reservation moves, the youngest first": {
			nodes:   []Node{serves("a", 2), serves("b", 8)},
			devices: []Device{holds("p", "a", 1, Held), holds("q", "a", 1, Held), holds("r", "a", 1, Attached)},
			want:    Settled{Moves: []Move{{"q", "a", "b"}}},
		},
		"who cannot move is lost, the youngest first": {
			nodes:   []Node{serves("a", 2)},
			devices: []Device{holds("p", "a", 1, Held), holds("q", "a", 1, Held), holds("r", "a", 1, Held)},
			want:    Settled{Lost: []string{"r"}},
		},
		"where it may not go it is lost": {
			nodes: []Node{serves("a", 0), serves("b", 8)}, devices: []Device{holds("p", "a", 1, Held)},
			may:  func(Device, string) bool { return false },
			want: Settled{Lost: []string{"p"}},
		},
		"running VMs are last": {
			nodes:   []Node{serves("a", 1)},
			devices: []Device{holds("p", "a", 1, Held), holds("q", "a", 1, Bound), holds("r", "a", 1, Attached)},
			want:    Settled{Lost: []string{"p", "q"}},
		},
		"of running VMs the youngest": {
			nodes:   []Node{serves("a", 1)},
			devices: []Device{holds("p", "a", 1, Attached), holds("q", "a", 1, Attached)},
			want:    Settled{Lost: []string{"q"}},
		},
		"no more is lost than must be": {
			nodes:   []Node{serves("a", 3)},
			devices: []Device{holds("p", "a", 4, Held), holds("q", "a", 1, Held)},
			want:    Settled{Lost: []string{"p"}},
		},
		"a node that is gone": {
			nodes: []Node{serves("b", 1)}, devices: []Device{holds("p", "a", 1, Held), holds("q", "a", 1, Attached)},
			want: Settled{Moves: []Move{{"p", "a", "b"}}, Lost: []string{"q"}},
		},
		"a closed node keeps what it has and gets nothing": {
			nodes: []Node{closed(serves("a", 1)), closed(serves("b", 4))}, devices: []Device{holds("p", "a", 1, Held), holds("q", "a", 1, Held)},
			want: Settled{Lost: []string{"q"}},
		},
		"units that return heal running VMs first, then the oldest": {
			nodes:   []Node{serves("a", 2)},
			devices: []Device{lost(holds("p", "a", 1, Held)), lost(holds("q", "a", 1, Held)), lost(holds("r", "a", 1, Attached))},
			want:    Settled{Healed: []string{"p", "r"}},
		},
		"a lost reservation is placed anew": {
			nodes:   []Node{serves("a", 0), serves("b", 1)},
			devices: []Device{lost(holds("p", "a", 1, Attached)), lost(holds("q", "a", 1, Held))},
			want:    Settled{Moves: []Move{{"q", "a", "b"}}},
		},
		"a reservation moves to heal a running VM": {
			nodes:   []Node{serves("a", 3), serves("b", 1)},
			devices: []Device{lost(holds("p", "a", 3, Attached)), holds("q", "a", 1, Held)},
			want:    Settled{Moves: []Move{{"q", "a", "b"}}, Healed: []string{"p"}},
		},
		"it moves away even where it would fit": {
			nodes:   []Node{serves("a", 3), serves("b", 8)},
			devices: []Device{lost(holds("p", "a", 3, Attached)), holds("q", "a", 1, Held)},
			want:    Settled{Moves: []Move{{"q", "a", "b"}}, Healed: []string{"p"}},
		},
		"what one leaves over heals another": {
			nodes: []Node{serves("a", 3), serves("b", 3), serves("c", 4), serves("d", 4)},
			devices: []Device{
				lost(holds("p", "a", 3, Attached)), holds("x-to-b", "a", 1, Held), lost(holds("q", "b", 1, Attached)), holds("y-to-c", "b", 3, Held),
				lost(holds("r", "c", 1, Attached)), holds("z-to-d", "c", 4, Held),
			},
			may:  func(d Device, node string) bool { return strings.HasSuffix(d.UID, node) },
			want: Settled{Moves: []Move{{"x-to-b", "a", "b"}, {"y-to-c", "b", "c"}, {"z-to-d", "c", "d"}}, Healed: []string{"p", "q", "r"}},
		},
		"nobody moves where that heals nobody": {
			nodes:   []Node{serves("a", 3), serves("b", 1)},
			devices: []Device{lost(holds("p", "a", 3, Attached)), holds("q", "a", 1, Held), holds("r", "a", 1, Held)},
		},
		"what pods take makes nobody lose units": {
			nodes: []Node{raw(serves("a", 4), 4)}, devices: []Device{holds("p", "a", 2, Held), holds("q", "a", 2, Attached)},
		},
		"it heals nobody either": {
			nodes: []Node{raw(serves("a", 4), 1)}, devices: []Device{lost(holds("p", "a", 4, Attached))},
		},
		"a VM's own launcher is not in its way": {
			nodes:   []Node{raw(serves("a", 8), 4)},
			devices: []Device{runs(lost(holds("p", "a", 4, Attached)), 4)},
			want:    Settled{Healed: []string{"p"}},
		},
		"another's launcher is": {
			nodes:   []Node{serves("a", 4)},
			devices: []Device{lost(holds("p", "a", 4, Attached)), runs(lost(holds("q", "a", 1, Attached)), 1)},
			want:    Settled{Healed: []string{"q"}},
		},
		"what runs of who loses units is not free": {
			nodes:   []Node{serves("a", 7)},
			devices: []Device{holds("p", "a", 4, Attached), runs(holds("q", "a", 4, Attached), 4), lost(holds("r", "a", 1, Held))},
			want:    Settled{Lost: []string{"q"}},
		},
		"who is lost already is not lost again": {
			nodes:   []Node{serves("a", 3)},
			devices: []Device{holds("p", "a", 2, Attached), holds("q", "a", 2, Attached), runs(lost(holds("z", "a", 2, Attached)), 2)},
			want:    Settled{Lost: []string{"q"}},
		},
		"nobody loses units where nothing is certain": {
			nodes: []Node{doubted(closed(serves("a", 0))), serves("b", 8)}, devices: []Device{holds("p", "a", 2, Held), holds("q", "a", 2, Attached)},
		},
		"nor has them again": {
			nodes: []Node{doubted(serves("a", 8))}, devices: []Device{lost(holds("p", "a", 2, Held)), lost(holds("q", "a", 2, Attached))},
		},
		"a lost reservation leaves such a node": {
			nodes: []Node{doubted(serves("a", 8)), serves("b", 2)}, devices: []Device{lost(holds("p", "a", 2, Held))},
			want: Settled{Moves: []Move{{"p", "a", "b"}}},
		},
		"units that return are not given to who moves": {
			nodes:   []Node{serves("a", 1), serves("b", 1)},
			devices: []Device{holds("p", "a", 2, Held), holds("r", "a", 1, Held), lost(holds("q", "b", 1, Held))},
			want:    Settled{Lost: []string{"p"}, Healed: []string{"q"}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s, got := Settle(New(tc.nodes, tc.devices), tc.may)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			for _, p := range collect(s.short) {
				if !s.at(p.node).doubted {
					t.Errorf("%s holds too much", p.node)
				}
			}
		})
	}
}
