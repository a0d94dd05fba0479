package books

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/gpuctl/gpuctl/internal/alloc"
	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/internal/tenant"
)

// Forecast is what the binder will have done when it has nothing left to do: devices and
// nodes are brought together again, and orders that wait have their units, the oldest
// first, as far as there is room. It answers what becomes of those who ask then. Of two
// forecasts of the same books the first is closed before the second begins, and nothing
// is put into the books meanwhile.
type Forecast struct {
	ahead   []string // UIDs of orders that waited
	round   *Round
	charges []charge
	taken   int // new devices
}

// charge is an amount that counts for budgets until the forecast is closed.
type charge struct {
	use *tenant.Use
	spent
}

// Forecast begins a forecast.
func (b *Books) Forecast() *Forecast {
	f := &Forecast{round: b.Begin()}
	f.round.snapshot, _ = alloc.Settle(f.round.snapshot, b.mayMove)
	var waiting []*Device
	for _, a := range b.accounts {
		for _, d := range a.devices {
			if d.Node == "" {
				waiting = append(waiting, d)
			}
		}
	}
	slices.SortFunc(waiting, func(a, b *Device) int { return cmp.Or(a.Ordered.Compare(b.Ordered), cmp.Compare(a.UID, b.UID)) })
	for _, d := range waiting {
		s := Set{Object: "GPUDevice " + d.Namespace + "/" + d.Name, Namespace: d.Namespace, Devices: []string{d.UID}}
		if f.Place(s, alloc.Held).Refusal == nil {
			f.ahead = append(f.ahead, d.UID)
		}
	}
	return f
}

// Without takes nodes away from then on: reservations there move, or are lost.
func (f *Forecast) Without(nodes ...string) {
	for _, n := range nodes {
		f.round.snapshot = f.round.snapshot.With(alloc.Drain(n)...)
	}
	f.round.snapshot, _ = alloc.Settle(f.round.snapshot, f.round.books.mayMove)
}

// Close ends the forecast.
func (f *Forecast) Close() {
	for _, c := range f.charges {
		c.amount.Units = -c.amount.Units
		c.use.Add(c.namespace, c.amount)
	}
	f.charges = nil
	f.round.Close()
}

// Fit is what becomes of a set.
type Fit struct {
	Node    string            // "" where it does not fit
	Moves   []Shift           // of others, that are made first
	Budgets []tenant.Step     // that bear on what is to be ordered for it, from the tenant up
	Nodes   []NodeFit         // that serve what is asked, by name
	Refusal *diagnose.Refusal // nil where it fits
}

// Shift is a device that changes its node. To is "" for one that has its units nowhere.
type Shift struct {
	Namespace, Name string
	Units           int64
	Class           string
	From, To        string
}

// NodeFit is what a node has for a set. Why is "" where the set fits there as things are.
type NodeFit struct {
	Node  string
	Units []UnitsFree // of each resource name that is asked
	Why   string
}

// UnitsFree are a node's units of a resource name, those of the set itself among the free.
type UnitsFree struct {
	Resource     gpu.ResourceName
	Free, Served int64
}

// Try says what would become of a set.
func (f *Forecast) Try(s Set) Fit {
	fit, _, _ := f.try(s)
	return fit
}

// Place is Try, and the set has its units from then on, for an order or for a VM that
// starts.
func (f *Forecast) Place(s Set, state alloc.State) Fit {
	fit, request, decision := f.try(s)
	if fit.Refusal != nil || len(request.Set) == 0 {
		return fit
	}
	fresh := 0
	for i := range request.Set {
		m := &request.Set[i]
		d, known := f.round.books.Device(m.UID)
		_, placed := f.round.snapshot.Device(m.UID)
		switch {
		case m.UID == "":
			f.taken++
			m.UID = "forecast " + strconv.Itoa(f.taken)
			amount := gpu.Amount{Resource: m.Resource, Class: s.New[fresh].Class, Units: m.Units}
			fresh++
			f.charge(f.round.books.ordered, s.Namespace, amount)
			f.charge(f.round.books.placed, s.Namespace, amount)
		case known && !placed:
			f.charge(f.round.books.placed, d.Namespace, gpu.Amount{Resource: m.Resource, Class: d.Class, Units: m.Units})
		}
	}
	f.round.snapshot = f.round.snapshot.With(decision.Place(f.round.snapshot, request.Set, state)...)
	return fit
}

func (f *Forecast) charge(use *tenant.Use, namespace string, amount gpu.Amount) {
	use.Add(namespace, amount)
	f.charges = append(f.charges, charge{use, spent{namespace, amount}})
}

func (f *Forecast) try(s Set) (fit Fit, request alloc.Request, decision alloc.Decision) {
	b := f.round.books
	request, fresh, err := f.round.request(s)
	if err == nil {
		err = f.lost(s)
	}
	if err != nil {
		fit.Refusal = diagnose.Refused(err, s.Object)
		return fit, request, decision
	}
	if len(request.Set) == 0 {
		return fit, request, decision
	}
	request.Budget = func() error {
		if err := b.allow(s.Namespace, fresh); err != nil {
			return err
		}
		return f.round.afford(f.waiting(request.Set))
	}
	if len(fresh) > 0 {
		fit.Budgets, _ = b.ordered.Steps(s.Namespace, fresh...)
	}
	fit.Nodes = f.nodes(request)
	decision, err = alloc.Decide(f.round.snapshot, request)
	if err != nil {
		fit.Refusal = diagnose.Refused(err, s.Object)
		return fit, request, decision
	}
	fit.Node, fit.Moves = decision.Node, f.shifts(decision.Moves)
	return fit, request, decision
}

// lost refuses a set of which a device has lost its units.
func (f *Forecast) lost(s Set) error {
	for _, uid := range s.Devices {
		if now, ok := f.round.snapshot.Device(uid); ok && now.Lost {
			d, _ := f.round.books.Device(uid)
			return diagnose.UnitsLost(s.Object, d.Namespace, d.Name, now.Node, string(now.Resource))
		}
	}
	return nil
}

// waiting are the amounts of members that are ordered and have no node.
func (f *Forecast) waiting(set []alloc.Member) (out []spent) {
	for _, m := range set {
		d, known := f.round.books.Device(m.UID)
		if _, placed := f.round.snapshot.Device(m.UID); known && !placed {
			out = append(out, spent{d.Namespace, gpu.Amount{Resource: m.Resource, Class: d.Class, Units: m.Units}})
		}
	}
	return out
}

func (f *Forecast) shifts(moves []alloc.Move) (out []Shift) {
	for _, m := range moves {
		out = append(out, f.shift(m.UID, m.From, m.To))
	}
	return out
}

func (f *Forecast) shift(uid, from, to string) Shift {
	d, _ := f.round.books.Device(uid)
	return Shift{Namespace: d.Namespace, Name: d.Name, Units: d.Units, Class: d.Class, From: from, To: to}
}
