package books

import (
	"cmp"
	"maps"
	"slices"

	"github.com/gpuctl/gpuctl/internal/alloc"
	"github.com/gpuctl/gpuctl/internal/gpu"
)

// Moved returns what becomes of devices that have units: those that get another node, and
// those that lose theirs, by namespace and name. What is placed in the forecast counts.
func (f *Forecast) Moved() (out []Shift) {
	for now := range f.round.snapshot.Devices() {
		d, known := f.round.books.Device(now.UID)
		switch {
		case !known || d.Node == "":
		case now.Lost && !d.Lost:
			out = append(out, f.shift(now.UID, d.Node, ""))
		case now.Node != d.Node:
			out = append(out, f.shift(now.UID, d.Node, now.Node))
		}
	}
	slices.SortFunc(out, func(a, b Shift) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// Ahead returns the orders that waited and are given units before anybody who asks, in
// the order in which they came.
func (f *Forecast) Ahead() (out []Shift) {
	for _, uid := range f.ahead {
		now, _ := f.round.snapshot.Device(uid)
		out = append(out, f.shift(uid, "", now.Node))
	}
	return out
}

// nodes says of each node that serves something of what is asked whether the set fits
// there as things are.
func (f *Forecast) nodes(request alloc.Request) (out []NodeFit) {
	asks := map[gpu.ResourceName]int64{}
	own := map[string]map[gpu.ResourceName]int64{}
	for _, m := range request.Set {
		asks[m.Resource] = gpu.AddUnits(asks[m.Resource], m.Units)
		if d, placed := f.round.snapshot.Device(m.UID); placed && !d.Lost {
			if own[d.Node] == nil {
				own[d.Node] = map[gpu.ResourceName]int64{}
			}
			own[d.Node][d.Resource] += d.Units
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.round.books.nodes)) {
		n, some := NodeFit{Node: name}, false
		for _, resource := range slices.Sorted(maps.Keys(asks)) {
			served, _ := f.round.snapshot.Units(name, resource)
			some = some || served > 0
			n.Units = append(n.Units, UnitsFree{resource, f.round.snapshot.Free(name, resource) + own[name][resource], served})
		}
		if some {
			n.Why = f.why(&n, asks, &request)
			out = append(out, n)
		}
	}
	return out
}

// why says why a set does not fit on a node.
func (f *Forecast) why(n *NodeFit, asks map[gpu.ResourceName]int64, request *alloc.Request) string {
	facts := f.round.books.nodes[n.Node].Facts
	switch {
	case facts.NotReady:
		return "not ready"
	case facts.Cordoned:
		return "cordoned"
	case request.Among != nil && !request.Among(n.Node):
		return "not one of the class's nodes"
	}
	for _, u := range n.Units {
		if u.Free < asks[u.Resource] {
			return "too few free"
		}
	}
	if request.Fits != nil {
		return string(request.Fits(n.Node))
	}
	return ""
}
