package alloc

import (
	"cmp"
	"slices"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// pool is the units of one resource name on one node. It never changes once it
// is in a snapshot.
type pool struct {
	node     string
	resource gpu.ResourceName
	serves   bool // the node has told how many it serves, if only 0
	served   int64
	raw      int64 // taken by pods that are no device's
	held     int64 // by devices that are not lost
	running  int64 // of VMIs whose devices are lost
	loose    int64 // of the held, by devices that may be moved
	// side is how many free units are at one NUMA node, at most.
	side    int64
	numa    []int64
	devices []*Device // that take units, by UID
}

// free is negative where more is taken than the node serves.
func (p *pool) free() int64 { return p.served - p.raw - p.held - p.running }

// over is by how much devices hold more than the node serves.
func (p *pool) over() int64 { return max(0, p.held-p.served) }

// room is what would be free if all that may be moved were elsewhere.
func (p *pool) room() int64 { return p.free() + p.loose }

func (p *pool) find(uid string) (int, bool) {
	return slices.BinarySearchFunc(p.devices, uid, func(d *Device, uid string) int { return cmp.Compare(d.UID, uid) })
}

// count sums up the devices.
func (p *pool) count() {
	p.held, p.running, p.loose = 0, 0, 0
	for _, d := range p.devices {
		switch {
		case d.Lost:
			p.running += d.Running
		case d.State == Held:
			p.loose += d.Units
			fallthrough
		default:
			p.held += d.Units
		}
	}
	p.side = max(0, p.free())
	if len(p.numa) > 1 && p.side > 0 {
		p.side = min(p.side, max(0, p.widest())) // whatever numbers were told
	}
}

// widest returns the most free units at one NUMA node when the devices are
// packed well: the largest first, each at the fullest node that has room, or
// at several where none has; and then all that pods take without a device.
func (p *pool) widest() int64 {
	free := slices.Clone(p.numa)
	for _, d := range slices.SortedFunc(slices.Values(p.devices), largestFirst) {
		pack(free, d.takes())
	}
	pack(free, p.raw)
	return slices.Max(free)
}

func pack(free []int64, units int64) {
	for units > 0 {
		at := fullest(free, units)
		if at < 0 {
			return // more is taken than NUMA nodes are known for
		}
		took := min(units, free[at])
		free[at] -= took
		units -= took
	}
}

// fullest returns where the units fit best, or else where most of them fit; -1
// where nothing is free.
func fullest(free []int64, units int64) int {
	at := -1
	for i, n := range free {
		switch {
		case n <= 0:
		case at < 0, n >= units && (free[at] < units || n < free[at]), n < units && n > free[at]:
			at = i
		}
	}
	return at
}

// byFree orders the pools of one resource name by how well small sets fit.
type byFree struct{}

func (byFree) compare(a, b *pool) int {
	return cmp.Or(cmp.Compare(a.free(), b.free()), cmp.Compare(a.side, b.side), cmp.Compare(a.node, b.node))
}
func (byFree) seed(p *pool) string { return p.node }

// byRoom orders the pools of one resource name by what would have to move.
type byRoom struct{}

func (byRoom) compare(a, b *pool) int {
	return cmp.Or(cmp.Compare(a.free(), b.free()), cmp.Compare(a.room(), b.room()), cmp.Compare(a.node, b.node))
}
func (byRoom) seed(p *pool) string { return p.node }

// byPlace orders pools of any resource name.
type byPlace struct{}

func (byPlace) compare(a, b *pool) int {
	return cmp.Or(cmp.Compare(a.node, b.node), cmp.Compare(a.resource, b.resource))
}
func (byPlace) seed(p *pool) string { return p.node + " " + string(p.resource) }
