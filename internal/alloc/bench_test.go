package alloc

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"
)

// fleet is a cluster of nodes with 8 GPUs on two NUMA nodes, filled with devices
// of one unit each, in the state, up to a share of a thousand.
func fleet(nodes, permille int, state State) *Snapshot {
	list := make([]Node, nodes)
	var devices []Device
	for i := range list {
		list[i] = numa(serves(fmt.Sprintf("worker-%04d", i), 8), 4, 4)
		for j := range 8 {
			if (i*8+j)*7919%1000 < permille {
				devices = append(devices, Device{
					UID: fmt.Sprintf("0b9d7a1c-%04x-4%03x-9f00-%012x", i, j, i*8+j), Resource: h200, Units: 1,
					Node: list[i].Name, State: state, Ordered: time.Unix(int64(i), 0),
				})
			}
		}
	}
	return New(list, devices)
}

// judged is a predicate that refuses one node of eight, and counts.
type judged struct{ calls int }

func (p *judged) fits(node string) Verdict {
	p.calls++
	if node[len(node)-1]%8 == 0 {
		return "untolerated taint"
	}
	return ""
}

func decided(b *testing.B, s *Snapshot, r Request) {
	b.Helper()
	var p judged
	r.Fits = p.fits
	b.ReportAllocs()
	took := make([]time.Duration, 0, 1<<20)
	for b.Loop() {
		start := time.Now()
		_, err := Decide(s, r)
		took = append(took, time.Since(start))
		if full := (*Refusal)(nil); err != nil && !errors.As(err, &full) {
			b.Fatal(err)
		}
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds()), "p99-ns")
	b.ReportMetric(float64(p.calls)/float64(len(took)), "calls/op")
}

// BenchmarkDecide has sets of several sizes in clusters of several sizes, filled
// with attached devices: at 990 of 1000 larger sets fit nowhere.
func BenchmarkDecide(b *testing.B) {
	for _, nodes := range []int{500, 5000} {
		for _, permille := range []int{0, 500, 990, 1000} {
			s := fleet(nodes, permille, Attached)
			for _, units := range []int64{1, 4, 8} {
				b.Run(fmt.Sprintf("nodes=%d/full=%d/set=%d", nodes, permille, units), func(b *testing.B) {
					decided(b, s, Request{Set: set(units)})
				})
			}
		}
	}
}

// BenchmarkRepack has reservations only: what it takes to move them, and to find
// that moving does not help.
func BenchmarkRepack(b *testing.B) {
	for _, permille := range []int{500, 990, 998} {
		s := fleet(5000, permille, Held)
		b.Run(fmt.Sprintf("full=%d/set=8", permille), func(b *testing.B) { decided(b, s, Request{Set: set(8)}) })
		b.Run(fmt.Sprintf("full=%d/set=8/nowhere", permille), func(b *testing.B) {
			decided(b, s, Request{Set: set(8), May: func(Device, string) bool { return false }})
		})
	}
	b.Run("large reservations", func(b *testing.B) { decided(b, jammed(5000), Request{Set: set(8)}) })
}

// jammed is a cluster where each node has a reservation of 5 units and 3 free
// ones: nothing can move.
func jammed(nodes int) *Snapshot {
	var list []Node
	var devices []Device
	for i := range nodes {
		list = append(list, serves(fmt.Sprintf("worker-%04d", i), 8))
		for j, units := range []int64{3, 2} {
			devices = append(devices, Device{UID: fmt.Sprint("d", i, "-", j), Resource: h200, Units: units, Node: list[i].Name})
		}
		if i%2 == 0 {
			devices[len(devices)-1].State = Attached
		}
	}
	for i := range list {
		devices = append(devices, Device{UID: fmt.Sprint("e", i), Resource: h200, Units: 2, Node: list[i].Name})
	}
	return New(list, devices)
}

// BenchmarkWith places and removes a device.
func BenchmarkWith(b *testing.B) {
	for _, permille := range []int{0, 990} {
		s := fleet(5000, permille, Attached)
		d := Device{UID: "new", Resource: h200, Units: 1, Node: "worker-2500"}
		b.Run(fmt.Sprintf("full=%d", permille), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s.With(PutDevice(d))
			}
		})
	}
}

// BenchmarkSettle finds that nothing is to be done, and takes a node away.
func BenchmarkSettle(b *testing.B) {
	s := fleet(5000, 990, Held)
	for name, s := range map[string]*Snapshot{"nothing": s, "a node is gone": s.With(DropNode("worker-0007"))} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Settle(s, nil)
			}
		})
	}
}

// BenchmarkMixed asks for two resource names.
func BenchmarkMixed(b *testing.B) {
	var list []Node
	for i := range 5000 {
		list = append(list, serves(fmt.Sprintf("worker-%04d", i), 8, 4))
	}
	s := New(list, nil)
	decided(b, s, Request{Set: append(set(4), Member{"", l40s, 1})})
}

// TestAllocations counts what a decision allocates, moving aside.
func TestAllocations(t *testing.T) {
	for _, permille := range []int{0, 500, 990, 1000} {
		s := fleet(500, permille, Attached)
		for _, units := range []int64{1, 4, 8} {
			r := Request{Set: set(units)}
			if n := testing.AllocsPerRun(20, func() { _, _ = Decide(s, r) }); n > 20 {
				t.Errorf("a set of %d at %d of 1000: %v allocations", units, permille, n)
			}
		}
	}
}

// TestMemory weighs a snapshot with a device for each unit, names aside: they
// are those of the API's objects.
func TestMemory(t *testing.T) {
	var before, after runtime.MemStats
	full := fleet(5000, 1000, Held)
	devices := slices.Collect(full.Devices())
	var nodes []Node
	full.nodes.all(func(n *node) bool {
		nodes = append(nodes, numa(serves(n.name, 8), 4, 4))
		return true
	})
	runtime.GC()
	runtime.ReadMemStats(&before)
	s := New(nodes, devices)
	runtime.GC()
	runtime.ReadMemStats(&after)
	bytes := float64(after.HeapAlloc-before.HeapAlloc) / float64(len(devices))
	t.Logf("%.0f bytes a unit", bytes)
	if bytes > 200 {
		t.Errorf("a snapshot takes %.0f bytes a unit, 200 are allowed", bytes)
	}
	runtime.KeepAlive(s)
	runtime.KeepAlive(devices)
	runtime.KeepAlive(nodes)
}
