package alloc

import (
	"cmp"
	"time"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// State is what a device's units are held for. The later, the worse it is to
// lose them.
type State uint8

// The states of a device that has a node.
const (
	Held     State = iota // reserved; it may be moved
	Bound                 // placed for a starting VM
	Attached              // in use by a VMI
)

// Device is one that has a node. A pending one is not in a snapshot.
type Device struct {
	UID      string
	Resource gpu.ResourceName
	Units    int64
	Node     string
	State    State
	// Lost says that the node stopped to serve its units: it holds none.
	Lost bool
	// Running is how many units its VMI's launchers have on the node, Units at most;
	// none of a reservation. While the device is lost they are all that it takes.
	Running int64
	// Ordered is when the device was created. Of two, the older keeps its units.
	Ordered time.Time
}

// takes returns the units that nobody else can have.
func (d *Device) takes() int64 {
	if d.Lost {
		return d.Running
	}
	return d.Units
}

// normal returns a copy of which the numbers can be reckoned with.
func (d *Device) normal() *Device {
	out := *d
	out.Units = bounded(d.Units)
	out.Running = min(bounded(d.Running), out.Units)
	if d.State == Held {
		out.Running = 0
	}
	return &out
}

// olderFirst orders by age, then by UID.
func olderFirst(a, b *Device) int {
	return cmp.Or(a.Ordered.Compare(b.Ordered), cmp.Compare(a.UID, b.UID))
}

// losesFirst orders by who is to lose its units: the youngest, running VMs last.
func losesFirst(a, b *Device) int {
	return cmp.Or(cmp.Compare(a.State, b.State), olderFirst(b, a))
}

// largestFirst orders by units, then by UID.
func largestFirst(a, b *Device) int {
	return cmp.Or(cmp.Compare(b.Units, a.Units), cmp.Compare(a.UID, b.UID))
}

type byUID struct{}

func (byUID) compare(a, b *Device) int { return cmp.Compare(a.UID, b.UID) }
func (byUID) seed(d *Device) string    { return d.UID }
