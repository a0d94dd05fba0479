package diagnose

import (
	"slices"
	"time"
)

// Device is what was ordered, and what became of it.
type Device struct {
	Namespace, Name string
	State           string // Pending, Held, Bound, Attached, Lost; "" when nobody has looked at it
	Class           string
	Count           int64
	Ordered         time.Time
	Made            bool      // from a template
	VM              string    // that has the template; "" when none is known
	Deleted         time.Time // zero while nobody has deleted it
	Finalizers      []string  // that keep it, others' than gpuctl's
	Kept            bool      // by gpuctl's own

	Node, Resource string // where its units are; "" while there are none
	Since, Lost    time.Time

	VMI     string    // that it is taken for; "" for none
	VMIUID  string    // "" while that VMI is being created
	Taken   time.Time // since when
	Refused string    // what the binder said to the last start, "GPU0705: …"

	Said   string    // what its condition says of why it is not held, "GPU0705: …"
	SaidAt time.Time // since when
}

// Template is what a device is to be made from.
type Template struct {
	Class string
	Count int64
}

// String returns "4 x h200".
func (t Template) String() string { return itoa(t.Count) + " x " + t.Class }

// object names the device in findings.
func (v *Device) object() string { return Ref{"GPUDevice", v.Namespace, v.Name}.String() }

// waits reports an order that has no node. One that is being made by a webhook is none
// yet.
func (v *Device) waits() bool { return v.Node == "" && (!v.Made || v.State != "") }

// OrdersView counts devices by their state.
type OrdersView struct {
	Pending  int      `json:"pending"`
	Held     int      `json:"held"` // by no VM that runs; one that starts may have it
	Attached int      `json:"attached"`
	Lost     []string `json:"lost"` // "tenant-a/train", whose units their node has no more
}

// ordersView returns nil when nothing is ordered.
func ordersView(devices []Device) *OrdersView {
	if len(devices) == 0 {
		return nil
	}
	v := OrdersView{Lost: []string{}}
	for _, d := range devices {
		switch d.State {
		case "Held", "Bound":
			v.Held++
		case "Attached":
			v.Attached++
		case "Lost":
			v.Lost = append(v.Lost, d.Namespace+"/"+d.Name)
		default:
			v.Pending++
		}
	}
	slices.Sort(v.Lost)
	return &v
}
