package books

import (
	"cmp"
	"errors"
	"slices"

	"github.com/gpuctl/gpuctl/internal/alloc"
	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/internal/tenant"
)

// Round decides what is written together, in any order and possibly only in part:
// what one write of it frees no other spends. A device that is moved counts on both
// nodes until the books are told of the write. Of two rounds on the same books the
// first is closed before the second begins.
type Round struct {
	// Effort bounds the looking for reservations that may be moved, as alloc.Request's.
	Effort int

	books    *Books
	snapshot *alloc.Snapshot
	use      *tenant.Use // that the spent is added to
	spent    []spent
	done     map[string]bool // UIDs of devices that the round has decided on
}

type spent struct {
	namespace string
	amount    gpu.Amount
}

// Write is what becomes of a device.
type Write struct {
	UID      string
	Node     string // of the placement; "" for none
	Resource gpu.ResourceName
	Units    int64
	Lost     bool
}

// Begin begins a round.
func (b *Books) Begin() *Round {
	b.settle()
	return &Round{books: b, snapshot: b.snapshot, use: b.placed, done: map[string]bool{}}
}

// Close ends the round. What it decided counts no longer, but for what the books are
// told of.
func (r *Round) Close() {
	for _, s := range r.spent {
		s.amount.Units = -s.amount.Units
		r.use.Add(s.namespace, s.amount)
	}
	r.spent = nil
}

// Settle brings nodes and devices together again; see alloc.Settle. It comes before
// anything else of the round.
func (r *Round) Settle() []Write {
	_, settled := alloc.Settle(r.snapshot, r.books.mayMove)
	out := r.move(settled.Moves)
	for _, uid := range settled.Healed {
		d, _ := r.snapshot.Device(uid)
		served, held := r.snapshot.Units(d.Node, d.Resource)
		if held+d.Units > served || r.snapshot.Free(d.Node, d.Resource) < d.Units-d.Running {
			continue // not before others have made room
		}
		d.Lost = false
		r.snapshot = r.snapshot.With(alloc.PutDevice(d))
		out = append(out, r.write(d))
	}
	for d := range r.snapshot.Lost() {
		if d.State == alloc.Held && !r.done[d.UID] && r.renamed(d.UID) {
			out = append(out, r.write(alloc.Device{UID: d.UID}))
		}
	}
	for _, uid := range settled.Lost {
		d, _ := r.snapshot.Device(uid)
		d.Lost = true
		out = append(out, r.write(d))
	}
	return out
}

// renamed reports a device whose class has another resource name by now: it is placed
// anew, under that one.
func (r *Round) renamed(uid string) bool {
	d, _ := r.books.Device(uid)
	c, ok := r.books.classes[d.Class]
	return ok && !c.Deleting && !r.books.sameName(c, &d)
}

// Place finds a node for an order that has none. The writes are either its own, or
// those of others that make room, or none while the round's own writes are in the way:
// then it has to ask again in a later round. The error is a *diagnose.Refusal.
func (r *Round) Place(uid string) ([]Write, error) {
	return r.set([]string{uid}, nil, alloc.Held)
}

// Bind finds one node for a set, where the launcher fits. As Place's, the writes may
// be those of others; else they are one for each device of the set, in the order of
// the UIDs that are given.
func (r *Round) Bind(uids []string, fits func(node string) alloc.Verdict) ([]Write, error) {
	return r.set(uids, fits, alloc.Bound)
}

func (r *Round) set(uids []string, fits func(string) alloc.Verdict, state alloc.State) ([]Write, error) {
	request := alloc.Request{Fits: fits, May: r.mayMove, Effort: r.Effort}
	var asks []spent
	var object string
	if slices.ContainsFunc(uids, func(uid string) bool { return r.done[uid] }) {
		return nil, nil
	}
	for _, uid := range uids {
		d, ok := r.books.Device(uid)
		if !ok {
			return nil, diagnose.Refused(errors.New("there is no such device any more"), "GPUDevice of UID "+uid)
		}
		object = cmp.Or(object, "GPUDevice "+d.Namespace+"/"+d.Name)
		resource, err := r.resource(&d, &request, object)
		if err != nil {
			return nil, err
		}
		request.Set = append(request.Set, alloc.Member{UID: uid, Resource: resource, Units: d.Units})
		if d.Node == "" {
			asks = append(asks, spent{d.Namespace, gpu.Amount{Resource: resource, Class: d.Class, Units: d.Units}})
		}
	}
	request.Budget = func() error { return r.afford(asks) }
	decision, err := alloc.Decide(r.snapshot, request)
	if err != nil {
		return nil, diagnose.Refused(err, object)
	}
	if len(decision.Moves) > 0 {
		return r.move(decision.Moves), nil
	}
	for _, s := range asks {
		r.use.Add(s.namespace, s.amount)
	}
	r.spent = append(r.spent, asks...)
	return r.take(request.Set, decision.Node, state), nil
}

// resource returns the resource name of a member, and narrows the request to nodes
// where its class is offered. A device that has a node keeps what it has, whatever
// became of its class.
func (r *Round) resource(d *Device, request *alloc.Request, object string) (gpu.ResourceName, error) {
	if d.Node == "" {
		c, err := r.books.orderable(Order{Object: object, Namespace: d.Namespace, Class: d.Class})
		if err != nil {
			return "", err
		}
		request.Among = both(request.Among, r.books.offered(c))
		return r.books.names.Base(c.Resource), nil
	}
	if offered := r.books.offeredTo(d); offered != nil {
		request.Among = both(request.Among, func(node string) bool { return node == d.Node || offered(node) })
	}
	return r.books.names.Base(d.Resource), nil
}

func both(a, b func(string) bool) func(string) bool {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	return func(node string) bool { return a(node) && b(node) }
}

// afford checks the budgets of what has no node yet. A set is of one namespace.
func (r *Round) afford(asks []spent) error {
	if len(asks) == 0 {
		return nil
	}
	amounts := make([]gpu.Amount, len(asks))
	for i, s := range asks {
		amounts[i] = s.amount
	}
	return r.use.Check(asks[0].namespace, amounts...)
}

// mayMove keeps what the round has decided on where it is.
func (r *Round) mayMove(d alloc.Device, node string) bool {
	return !r.done[d.UID] && r.books.mayMove(d, node)
}

// take places a set.
func (r *Round) take(set []alloc.Member, node string, state alloc.State) []Write {
	var out []Write
	for _, m := range set {
		now, placed := r.snapshot.Device(m.UID)
		there := alloc.Device{UID: m.UID, Resource: m.Resource, Units: m.Units, Node: node, State: state, Ordered: now.Ordered}
		if placed && now.Node != node {
			r.snapshot = r.snapshot.With(alloc.PutDevice(ghost(there)))
		} else {
			there.Running = now.Running
			r.snapshot = r.snapshot.With(alloc.PutDevice(there))
		}
		out = append(out, r.write(there))
	}
	return out
}

// move moves reservations to where there is room before others have left. Both nodes
// count.
func (r *Round) move(moves []alloc.Move) []Write {
	var out []Write
	for _, m := range moves {
		d, _ := r.snapshot.Device(m.UID)
		if r.snapshot.Free(m.To, d.Resource) < d.Units {
			continue
		}
		d.Node, d.Lost = m.To, false
		r.snapshot = r.snapshot.With(alloc.PutDevice(ghost(d)))
		out = append(out, r.write(d))
	}
	return out
}

// ghost is a device that counts beside itself, and stays where it is.
func ghost(d alloc.Device) alloc.Device {
	d.UID += " moves"
	d.State = alloc.Attached
	return d
}

func (r *Round) write(d alloc.Device) Write {
	r.done[d.UID] = true
	return Write{UID: d.UID, Node: d.Node, Resource: d.Resource, Units: d.Units, Lost: d.Lost}
}
