package diagnose

import "slices"

// Device is what was ordered, and what became of it.
type Device struct {
	Namespace, Name string
	State           string // Pending, Held, Bound, Attached, Lost; "" when nobody has looked at it
}

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
