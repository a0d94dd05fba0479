package gpu

import (
	"cmp"
	"slices"
)

// Count is what a node shows of one resource name.
type Count struct{ Capacity, Allocatable int64 }

// UnitIDs returns the device ids that the plugin sends to kubelet, in the order
// of Units. Under a name that collides, each of the plugin's servers sends only
// its own part of them.
func (g *Registration) UnitIDs() []string {
	ids := make([]string, len(g.Units))
	for i := range g.Units {
		ids[i] = g.Units[i].ID
	}
	return ids
}

// Functions returns the functions that are counted, in the order of Units; none
// for mediated devices.
func (g *Registration) Functions() []*Function {
	var out []*Function
	for i := range g.Units {
		if f := g.Units[i].Function; f != nil {
			out = append(out, f)
		}
	}
	return out
}

// DeviceIDs returns the PCI device ids registered under the name, sorted; none
// for mediated devices.
func (g *Registration) DeviceIDs() []DeviceID {
	var ids []DeviceID
	for _, f := range g.Functions() {
		ids = append(ids, f.ID.Device)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// IsVGPU reports that the units are mediated devices.
func (g *Registration) IsVGPU() bool { return len(g.Units) > 0 && g.Units[0].Mdev != nil }

// Collides reports that several PCI device ids of this host share the name. The
// plugin starts a server for each id, all on one socket: they remove it from
// under one another, and the node ends with the units of one id only. Which
// one is a race.
func (g *Registration) Collides() bool { return len(g.DeviceIDs()) > 1 }

// Shown returns what the node can show under the name, sorted; usually that is
// one count. It is nil when kubelet refuses the name: the node then has no such
// key. Under a name that collides it is the count of any one id, and its
// capacity with allocatable 0 when that id's server lost the socket (kubelet
// drops such a capacity to 0 as well after five minutes).
func (g *Registration) Shown() []Count {
	if g.Refused != nil {
		return nil
	}
	if !g.Collides() {
		return []Count{count(g.Units)}
	}
	var out []Count
	for _, id := range g.DeviceIDs() {
		other := func(u Unit) bool { return u.Function.ID.Device != id }
		part := count(slices.DeleteFunc(slices.Clone(g.Units), other))
		out = append(out, part, Count{Capacity: part.Capacity})
	}
	slices.SortFunc(out, func(a, b Count) int {
		return cmp.Or(cmp.Compare(a.Capacity, b.Capacity), cmp.Compare(a.Allocatable, b.Allocatable))
	})
	return slices.Compact(out)
}

// count is what kubelet makes of a list of units.
func count(units []Unit) Count {
	c := Count{Capacity: int64(len(units))}
	for i := range units {
		if !units[i].Unhealthy {
			c.Allocatable++
		}
	}
	return c
}
