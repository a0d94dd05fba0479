// Package alloc_test times placing with the predicate that places in earnest.
package alloc_test

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/gpuctl/gpuctl/internal/alloc"
)

// BenchmarkDecide places sets on 500 and 5,000 nodes without devices, with a
// device for each unit of all but 1 % of the nodes, with 99 % of the units taken
// all over, and where nothing fits: no unit is free, or no node is good enough.
func BenchmarkDecide(b *testing.B) {
	for _, nodes := range []int{500, 5000} {
		for _, tc := range []struct {
			name  string
			nodes int
			taken func(int, int) bool
			cpu   string
		}{
			{"devices=0", nodes, none, "12"},
			{fmt.Sprint("devices=", nodes*gpus), nodes + nodes/100, packed(nodes), "12"},
			{"full=99%", nodes, scattered(990), "12"},
			{"full=100%", nodes, all, "12"},
			{"no node will do", nodes, none, "200"},
		} {
			f := newFleet(tc.nodes, alloc.Attached, tc.taken)
			for _, units := range []int{1, 4, 8} {
				b.Run(fmt.Sprintf("nodes=%d/%s/set=%d", nodes, tc.name, units), func(b *testing.B) {
					timed(b, f.snapshot, alloc.Request{Set: set(units), Fits: f.index.Fits(launcher(tc.cpu))})
				})
			}
		}
	}
}

// BenchmarkRepack has reservations only: 8 units are free nowhere, until others
// move; or, where they may not, it is found that nothing helps.
func BenchmarkRepack(b *testing.B) {
	for _, permille := range []int{500, 990, 998} {
		f := newFleet(5000, alloc.Held, scattered(permille))
		r := alloc.Request{Set: set(8), Fits: f.index.Fits(launcher("12"))}
		b.Run(fmt.Sprintf("held=%d of 1000", permille), func(b *testing.B) { timed(b, f.snapshot, r) })
		r.May = func(alloc.Device, string) bool { return false }
		b.Run(fmt.Sprintf("held=%d of 1000/none may move", permille), func(b *testing.B) { timed(b, f.snapshot, r) })
	}
	f := newFleet(5000, alloc.Held, none)
	r := alloc.Request{Set: set(8), Fits: f.index.Fits(launcher("12"))}
	b.Run("no other has room", func(b *testing.B) { timed(b, jammed(5000), r) })
}

// jammed has reservations of 2, 2 and 3 units on each node and one free unit, so
// that many ways must be tried, and none helps.
func jammed(nodes int) *alloc.Snapshot {
	var list []alloc.Node
	var devices []alloc.Device
	for i := range nodes {
		list = append(list, alloc.Node{Name: nodeName(i), Serves: []alloc.Served{{Resource: h200, Units: gpus}}})
		for j, units := range []int64{2, 2, 3} {
			devices = append(devices, alloc.Device{UID: fmt.Sprint(i, "-", j), Resource: h200, Units: units, Node: nodeName(i)})
		}
	}
	return alloc.New(list, devices)
}

// timed reports how long a decision takes, how often it asks the predicate, and
// what these questions take when they are asked by themselves.
func timed(b *testing.B, s *alloc.Snapshot, r alloc.Request) {
	b.Helper()
	fits := r.Fits
	var asked []string
	r.Fits = func(node string) alloc.Verdict {
		asked = append(asked, node)
		return fits(node)
	}
	decided(b, s, r)
	questions := func() {
		for _, node := range asked {
			fits(node)
		}
	}
	r.Fits = fits
	took := make(series, 0, 1<<20)
	for b.Loop() {
		start := time.Now()
		_, _ = alloc.Decide(s, r)
		took = append(took, time.Since(start))
	}
	b.ReportMetric(took.quiet(0.99), "quiet-p99-ns")
	b.ReportMetric(took.at(0.5), "p50-ns")
	b.ReportMetric(took.at(0.99), "p99-ns")
	b.ReportMetric(took.at(1), "max-ns")
	b.ReportMetric(float64(len(asked)), "calls/op")
	b.ReportMetric(float64(mean(questions).Nanoseconds()), "predicate-ns/op")
	allocations := func(f func()) float64 { return testing.AllocsPerRun(5, f) }
	all := allocations(func() { _, _ = alloc.Decide(s, r) })
	b.ReportMetric(all, "allocs")
	b.ReportMetric(all-allocations(questions), "own-allocs")
}

// decided decides once; anything but a node or none is an error.
func decided(b *testing.B, s *alloc.Snapshot, r alloc.Request) {
	b.Helper()
	_, err := alloc.Decide(s, r)
	if none := (*alloc.Refusal)(nil); err != nil && (!errors.As(err, &none) || none.Kind == alloc.Invalid) {
		b.Fatal(err)
	}
}

// series is what single decisions took, in their order.
type series []time.Duration

// at returns the time in ns that the share of decisions did not exceed.
func (s series) at(share float64) float64 {
	sorted := slices.Sorted(slices.Values(s))
	return float64(sorted[int(share*float64(len(s)-1))].Nanoseconds())
}

// quiet returns the same for that tenth of the series where it is the least: other
// processes disturb parts of a series.
func (s series) quiet(share float64) float64 {
	least, tenth := s.at(share), max(1, len(s)/10)
	for part := range slices.Chunk(s, tenth) {
		if len(part) == tenth {
			least = min(least, part.at(share))
		}
	}
	return least
}

// mean runs f for some 20 ms.
func mean(f func()) time.Duration {
	start := time.Now()
	runs := time.Duration(0)
	for ; runs == 0 || time.Since(start) < 20*time.Millisecond; runs++ {
		f()
	}
	return time.Since(start) / runs
}

// BenchmarkGrowth decides on a small and a large snapshot in turn, and reports by
// how much the median grows. Where devices fill nodes, those that are left are
// deeper in the index; where they fill half of larger nodes, nothing differs but
// their number.
func BenchmarkGrowth(b *testing.B) {
	fits := func(nodes int, taken func(int, int) bool) fleet { return newFleet(nodes, alloc.Attached, taken) }
	for _, tc := range []struct {
		name         string
		small, large fleet
	}{
		{"nodes=500 to 5000/empty", fits(500, none), fits(5000, none)},
		{"nodes=500 to 5000/full=99%", fits(500, scattered(990)), fits(5000, scattered(990))},
		{"nodes=500 to 5000/full=100%", fits(500, all), fits(5000, all)},
		{"devices=0 to 40000/50 nodes left", fits(5050, none), fits(5050, packed(5000))},
		{"devices=0 to 40000/half of each node left", fits(5000, none), doubled(5000)},
	} {
		for _, units := range []int{1, 4, 8} {
			b.Run(fmt.Sprintf("%s/set=%d", tc.name, units), func(b *testing.B) { grown(b, tc.small, tc.large, units) })
		}
	}
}

// doubled is nodes with twice as many GPUs, half of them taken.
func doubled(nodes int) fleet {
	f := newFleet(nodes, alloc.Attached, all)
	for i := range nodes {
		f.snapshot = f.snapshot.With(alloc.PutNode{Name: nodeName(i), Serves: []alloc.Served{{Resource: h200, Units: 2 * gpus, NUMA: []int64{gpus, gpus}}}})
	}
	return f
}

func grown(b *testing.B, small, large fleet, units int) {
	b.Helper()
	sizes := []fleet{small, large}
	took := [2]series{}
	requests := [2]alloc.Request{}
	for i, f := range sizes {
		took[i] = make(series, 0, 1<<20)
		requests[i] = alloc.Request{Set: set(units), Fits: f.index.Fits(launcher("12"))}
		decided(b, f.snapshot, requests[i])
	}
	for b.Loop() {
		for i, f := range sizes {
			start := time.Now()
			_, _ = alloc.Decide(f.snapshot, requests[i])
			took[i] = append(took[i], time.Since(start))
		}
	}
	from, to := took[0].quiet(0.5), took[1].quiet(0.5)
	b.ReportMetric(from, "small-p50-ns")
	b.ReportMetric(to, "large-p50-ns")
	b.ReportMetric(to/from, "times")
}

// BenchmarkMemory weighs a snapshot of 5,000 nodes with a device for each unit,
// names aside: they are those of the API's objects.
func BenchmarkMemory(b *testing.B) {
	var nodes []alloc.Node
	for i := range 5000 {
		nodes = append(nodes, alloc.Node{Name: nodeName(i), Serves: []alloc.Served{{Resource: h200, Units: gpus, NUMA: []int64{4, 4}}}})
	}
	devices := slices.Collect(newFleet(5000, alloc.Held, all).snapshot.Devices())
	var before, after runtime.MemStats
	for b.Loop() {
		runtime.GC()
		runtime.ReadMemStats(&before)
		s := alloc.New(nodes, devices)
		runtime.GC()
		runtime.ReadMemStats(&after)
		runtime.KeepAlive(s)
	}
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(len(devices)), "B/unit")
	runtime.KeepAlive(devices)
	runtime.KeepAlive(nodes)
}
