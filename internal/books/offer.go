package books

import (
	"github.com/gpuctl/gpuctl/internal/gpu"
)

// Offer is what there is of a class, in units.
type Offer struct {
	Total    int64 // that the class's nodes serve
	Free     int64 // of them, that nobody has, on nodes that take new ones
	Held     int64 // by devices of the class that no VMI uses
	Attached int64 // by devices of the class that a VMI uses
	Lost     int64 // that devices of the class have lost; no part of Total
	// Permitted says whether the table permits the resource. Without a table
	// everything is.
	Permitted bool
}

// Offers returns what there is of each class, by name. It looks at all devices and
// nodes.
func (b *Books) Offers() map[string]Offer {
	b.settle()
	out := make(map[string]Offer, len(b.classes))
	for name, c := range b.classes {
		out[name] = b.served(c)
	}
	for _, a := range b.accounts {
		for _, d := range a.devices {
			o, ok := out[d.Class]
			switch {
			case !ok || d.Node == "" || !b.sameName(b.classes[d.Class], d):
				continue
			case d.Lost:
				o.Lost += d.Units
			case d.Attached():
				o.Attached += d.Units
			default:
				o.Held += d.Units
			}
			out[d.Class] = o
		}
	}
	return out
}

// served is a class's offer without its devices.
func (b *Books) served(c Class) Offer {
	o := Offer{Permitted: !b.table.Set || b.table.Permits(c.Resource)}
	resource := b.names.Base(c.Resource)
	offered := b.offered(c)
	for name, n := range b.nodes {
		if offered != nil && !offered(name) {
			continue
		}
		units, _ := b.snapshot.Units(name, resource)
		o.Total = gpu.AddUnits(o.Total, units)
		if !n.Facts.NotReady && !n.Facts.Cordoned {
			o.Free = gpu.AddUnits(o.Free, b.snapshot.Free(name, resource))
		}
	}
	return o
}
