package books

import (
	"github.com/gpuctl/gpuctl/internal/alloc"
	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/internal/gpu"
)

// Room is what a set would newly take: of a node, and of the budgets of its namespace.
type Room struct {
	Node      string
	Units     map[gpu.ResourceName]int64
	namespace string
	amounts   []gpu.Amount
}

// Try says where a set would be placed; nothing is. Devices that are not known are left
// out. The error is a *diagnose.Refusal.
func (r *Round) Try(s Set) (Room, error) {
	request, fresh, err := r.request(s)
	if err != nil || len(request.Set) == 0 {
		return Room{}, err
	}
	request.Budget = func() error {
		if err := r.books.allow(s.Namespace, fresh); err != nil || len(fresh) == 0 {
			return err
		}
		return r.use.Check(s.Namespace, fresh...) // with what is kept
	}
	decision, err := alloc.Decide(r.snapshot, request)
	if err != nil {
		return Room{}, diagnose.Refused(err, s.Object)
	}
	room := Room{Node: decision.Node, Units: map[gpu.ResourceName]int64{}, namespace: s.Namespace, amounts: fresh}
	for _, m := range request.Set {
		if d, placed := r.snapshot.Device(m.UID); m.UID == "" || !placed || d.Node != decision.Node {
			room.Units[m.Resource] += m.Units
		}
	}
	return room, nil
}

// request is what a set asks for, and fresh what of it is to be ordered for it. Nothing is
// said of budgets.
func (r *Round) request(s Set) (request alloc.Request, fresh []gpu.Amount, err error) {
	b := r.books
	request = alloc.Request{Fits: s.Fits, May: r.mayMove, Effort: r.Effort}
	for _, uid := range s.Devices {
		d, ok := b.Device(uid)
		if !ok {
			continue
		}
		resource, err := r.resource(&d, &request, s.Object)
		if err != nil {
			return request, nil, err
		}
		request.Set = append(request.Set, alloc.Member{UID: uid, Resource: resource, Units: d.Units})
	}
	for _, o := range s.New {
		c, err := b.orderable(o)
		if err != nil {
			return request, nil, err
		}
		amount := gpu.Amount{Resource: b.names.Base(c.Resource), Class: c.Name, Units: int64(o.Count)}
		fresh = append(fresh, amount)
		request.Among = both(request.Among, b.offered(c))
		request.Set = append(request.Set, alloc.Member{Resource: amount.Resource, Units: amount.Units})
	}
	return request, fresh, nil
}

// allow checks the budgets of what is to be ordered.
func (b *Books) allow(namespace string, fresh []gpu.Amount) error {
	if len(fresh) == 0 {
		return nil
	}
	return b.ordered.Check(namespace, fresh...)
}

// Keep keeps room from whoever else the round decides on, until it is let go of.
func (r *Round) Keep(key string, room Room) {
	for resource, units := range room.Units {
		r.snapshot = r.snapshot.With(alloc.PutDevice(alloc.Device{
			UID: keptUID(key, resource), Resource: resource, Units: units, Node: room.Node, State: alloc.Attached,
		}))
	}
	r.spend(room, 1)
}

// Let lets go of what is kept.
func (r *Round) Let(key string, room Room) {
	for resource := range room.Units {
		r.snapshot = r.snapshot.With(alloc.DropDevice(keptUID(key, resource)))
	}
	r.spend(room, -1)
}

// spend counts what is kept for budgets, until the round is closed.
func (r *Round) spend(room Room, sign int64) {
	for _, amount := range room.amounts {
		amount.Units *= sign
		r.use.Add(room.namespace, amount)
		r.spent = append(r.spent, spent{room.namespace, amount})
	}
}

func keptUID(key string, resource gpu.ResourceName) string {
	return "kept " + key + " " + string(resource)
}
