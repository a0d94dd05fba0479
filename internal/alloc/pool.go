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
	held     int64 // by devices that are not lost
	loose    int64 // of these, by devices that may be moved
	// side is how many free units are at one NUMA node, at most.
	side    int64
	numa    []int64
	devices []*Device // that hold units, by UID
}

// free is negative where devices hold more than the node serves.
func (p *pool) free() int64 { return p.served - p.held }

// room is what would be free if all that may be moved were elsewhere.
func (p *pool) room() int64 { return p.free() + p.loose }

func (p *pool) find(uid string) (int, bool) {
	return slices.BinarySearchFunc(p.devices, uid, func(d *Device, uid string) int { return cmp.Compare(d.UID, uid) })
}

// count sums up the devices.
func (p *pool) count() {
	p.held, p.loose = 0, 0
	for _, d := range p.devices {
		p.held += d.Units
		if d.State == Held {
			p.loose += d.Units
		}
	}
	p.side = max(0, p.free())
	if len(p.numa) > 1 && p.side > 0 {
		p.side = min(p.side, max(0, p.widest())) // whatever numbers were told
	}
}

// widest returns the most free units at one NUMA node when the devices are
// packed well: the largest first, each at the fullest node that has room, or
// at several where none has.
func (p *pool) widest() int64 {
	free := slices.Clone(p.numa)
	for _, d := range slices.SortedFunc(slices.Values(p.devices), largestFirst) {
		for left := d.Units; left > 0; {
			at := fullest(free, left)
			if at < 0 {
				break // more is held than NUMA nodes are known for
			}
			took := min(left, free[at])
			free[at] -= took
			left -= took
		}
	}
	return slices.Max(free)
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
