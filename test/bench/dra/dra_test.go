package dra_test

import (
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpuctl/gpuctl/internal/alloc"
	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/test/bench/dra"
)

const (
	h200 = gpu.ResourceName("nvidia.com/GH100_H200_SXM_141GB")
	gpus = 8 // of a node
)

// nodes makes nodes on which so many units are taken each.
func nodes(number int, taken func(i int) int) []dra.Node {
	list := make([]dra.Node, number)
	for i := range list {
		list[i] = dra.Node{Name: fmt.Sprintf("worker-%04d", i), Units: gpus, Taken: taken(i)}
	}
	return list
}

// snapshot is the same nodes as alloc sees them, with a device for each unit.
func snapshot(list []dra.Node) *alloc.Snapshot {
	var served []alloc.Node
	var devices []alloc.Device
	for _, n := range list {
		served = append(served, alloc.Node{Name: n.Name, Serves: []alloc.Served{{Resource: h200, Units: int64(n.Units)}}})
		for i := range n.Taken {
			devices = append(devices, alloc.Device{UID: fmt.Sprint(n.Name, "-", i), Resource: h200, Units: 1, Node: n.Name, State: alloc.Attached})
		}
	}
	return alloc.New(served, devices)
}

// instance is one question to both.
type instance struct {
	snapshot  *alloc.Snapshot
	request   alloc.Request
	allocator *dra.Allocator
	claim     *resourceapi.ResourceClaim
	ranked    []string // alloc's order, then the nodes where alloc says that there is no room
	byName    []string
	fitting   int // of ranked, those where there is room
}

func newInstance(tb testing.TB, list []dra.Node, units int64) *instance {
	tb.Helper()
	allocator, err := dra.New(tb.Context(), list)
	if err != nil {
		tb.Fatal(err)
	}
	in := &instance{
		snapshot: snapshot(list), request: alloc.Request{Set: []alloc.Member{{Resource: h200, Units: units}}},
		allocator: allocator, claim: dra.Claim(units),
	}
	for _, n := range list {
		in.byName = append(in.byName, n.Name)
	}
	in.ranked = slices.Collect(alloc.Ranked(in.snapshot, in.request))
	in.fitting = len(in.ranked)
	for _, name := range in.byName {
		if !slices.Contains(in.ranked[:in.fitting], name) {
			in.ranked = append(in.ranked, name)
		}
	}
	return in
}

func (in *instance) decide(tb testing.TB) string {
	tb.Helper()
	d, err := alloc.Decide(in.snapshot, in.request)
	if none := (*alloc.Refusal)(nil); err != nil && (!errors.As(err, &none) || none.Kind == alloc.Invalid) {
		tb.Fatal(err)
	}
	return d.Node
}

func (in *instance) place(tb testing.TB, names iter.Seq[string]) (node string, tried int) {
	tb.Helper()
	node, tried, err := in.allocator.Place(tb.Context(), names, in.claim)
	if err != nil {
		tb.Fatal(err)
	}
	return node, tried
}

// agree fails unless both give the same answer.
func (in *instance) agree(tb testing.TB) {
	tb.Helper()
	got, _ := in.place(tb, slices.Values(in.ranked))
	if want := in.decide(tb); got != want {
		tb.Fatalf("alloc places the set on %q, DRA on %q", want, got)
	}
}

// TestSameAnswer asks both about made-up clusters, and then about each node.
func TestSameAnswer(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same clusters each time
	answers := map[bool]int{}
	for range 60 {
		full := random.IntN(gpus + 1)
		list := nodes(1+random.IntN(12), func(int) int { return min(gpus, full+random.IntN(gpus+1)) })
		for _, units := range []int64{1, 4, 8} {
			in := newInstance(t, list, units)
			in.agree(t)
			for i, name := range in.ranked {
				got, _ := in.place(t, slices.Values([]string{name}))
				if fits := i < in.fitting; (got != "") != fits {
					t.Errorf("%d units on %s of %v: alloc says %t, DRA %t", units, name, list, fits, got != "")
				}
			}
			answers[in.decide(t) != ""]++
		}
	}
	if answers[true] < 20 || answers[false] < 20 {
		t.Errorf("hardly a test: %v", answers)
	}
}

// TestPlace knows what DRA answers without alloc.
func TestPlace(t *testing.T) {
	list := []dra.Node{{Name: "a", Units: 8, Taken: 8}, {Name: "b", Units: 8, Taken: 5}, {Name: "c", Units: 8}}
	type answer struct {
		node  string
		tried int
	}
	want := map[int64]answer{1: {"b", 2}, 3: {"b", 2}, 4: {"c", 3}, 8: {"c", 3}, 9: {"", 3}}
	got := map[int64]answer{}
	for units := range want {
		in := newInstance(t, list, units)
		node, tried := in.place(t, slices.Values(in.byName))
		got[units] = answer{node, tried}
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(answer{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// BenchmarkAgainstDRA places sets on 500 nodes with both in turn, and reports how
// many times faster alloc is, by the medians of the turns. "times" is where DRA's
// allocator is ready and gets the nodes in alloc's order, so that it allocates once,
// or on all nodes where nothing fits. "times-a-pod" is what it takes as the
// scheduler goes about it: an allocator for each pod, and the nodes in no such order.
func BenchmarkAgainstDRA(b *testing.B) {
	for _, tc := range []struct {
		name  string
		taken func(i int) int
	}{
		{"full=0%", func(int) int { return 0 }},
		{"full=50%", func(i int) int { return i * 7 % 9 }},
		{"full=99%", nearlyFull},
		{"half of each node", func(int) int { return gpus / 2 }},
	} {
		list := nodes(500, tc.taken)
		for _, units := range []int64{1, 4, 8} {
			in := newInstance(b, list, units)
			in.agree(b)
			b.Run(fmt.Sprintf("%s/set=%d", tc.name, units), func(b *testing.B) { compared(b, in) })
		}
	}
}

// nearlyFull leaves 40 units free on 500 nodes: 8 on one, 4 on another, and single
// ones.
func nearlyFull(i int) int {
	switch {
	case i == 499:
		return 0
	case i == 450:
		return 4
	case i%16 == 15 && i < 448:
		return 7
	}
	return 8
}

func compared(b *testing.B, in *instance) {
	b.Helper()
	ctx := b.Context()
	ranked, byName := slices.Values(in.ranked), slices.Values(in.byName)
	// No run may fail: all were tried before, and the sides time nothing else.
	sides := []*side{
		{run: func() { _, _ = alloc.Decide(in.snapshot, in.request) }},
		{run: func() { _, _, _ = in.allocator.Place(ctx, ranked, in.claim) }},
		{run: func() {
			_ = in.allocator.Renew(ctx)
			_, _, _ = in.allocator.Place(ctx, byName, in.claim)
		}},
	}
	_, tried := in.place(b, ranked)
	_, podTried := in.place(b, byName)
	for b.Loop() {
		for _, s := range sides {
			s.turn()
		}
	}
	ours, ready, aPod := sides[0].median(), sides[1].median(), sides[2].median()
	b.ReportMetric(0, "ns/op") // of all sides together
	b.ReportMetric(ours, "decide-ns")
	b.ReportMetric(ready, "dra-ns")
	b.ReportMetric(aPod, "dra-a-pod-ns")
	b.ReportMetric(float64(tried), "dra-nodes")
	b.ReportMetric(float64(podTried), "dra-a-pod-nodes")
	b.ReportMetric(ready/ours, "times")
	b.ReportMetric(aPod/ours, "times-a-pod")
}

// side is one of those that are compared.
type side struct {
	run  func()
	runs int // of a turn
	took []float64
}

// turn runs for some 200 µs, so that neither side only pays for what the other
// left of caches and garbage.
func (s *side) turn() {
	if s.runs == 0 {
		start := time.Now()
		for time.Since(start) < 200*time.Microsecond {
			s.run()
			s.runs++
		}
	}
	start := time.Now()
	for range s.runs {
		s.run()
	}
	s.took = append(s.took, float64(time.Since(start).Nanoseconds())/float64(s.runs))
}

func (s *side) median() float64 {
	slices.Sort(s.took)
	return s.took[len(s.took)/2]
}
