package books

import (
	"github.com/gpuctl/gpuctl/internal/alloc"
	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/internal/gpu"
)

// Order is what a tenant asks for.
type Order struct {
	Object    string // "GPUDevice tenant-acme/train-a", as a refusal names it
	Namespace string
	Class     string
	Count     int32
}

// Admit says whether an order may be made now: it is one that the class and the
// tenant's budgets allow, and some node could take it. nil, or a
// *diagnose.Refusal. What is ordered and not placed yet counts for budgets, and for
// no node.
func (b *Books) Admit(o Order) error {
	b.settle()
	c, err := b.orderable(o)
	if err != nil {
		return err
	}
	amount := gpu.Amount{Resource: b.names.Base(c.Resource), Class: c.Name, Units: int64(o.Count)}
	_, err = alloc.Decide(b.snapshot, alloc.Request{
		Set:    []alloc.Member{{Resource: amount.Resource, Units: amount.Units}},
		Budget: func() error { return b.ordered.Check(o.Namespace, amount) },
		Among:  b.offered(c),
		May:    b.mayMove,
	})
	if err != nil {
		return diagnose.Refused(err, o.Object)
	}
	return nil
}

// Set is what a VM that starts asks for, together on one node.
type Set struct {
	Object    string // as a refusal names it
	Namespace string
	Devices   []string // UIDs
	New       []Order  // devices that are to be made
	// Fits says whether the launcher could run on a node; nil: everywhere.
	Fits func(node string) alloc.Verdict
}

// AdmitSet says whether some node could take a set now, as the binder would see it;
// nil, or a *diagnose.Refusal.
func (b *Books) AdmitSet(s Set) error {
	r := b.Begin()
	defer r.Close()
	_, err := r.Try(s)
	return err
}

// orderable returns the order's class, or why it cannot be ordered.
func (b *Books) orderable(o Order) (Class, error) {
	c, ok := b.classes[o.Class]
	switch {
	case !ok:
		return c, diagnose.NoClass(o.Object, o.Class)
	case c.Deleting:
		return c, diagnose.ClassDeleted(o.Object, o.Class)
	case o.Count > c.MaxCount:
		return c, diagnose.CountTooLarge(o.Object, o.Class, o.Count, c.MaxCount)
	case c.Entitlement == "" && c.Resource.IsVGPU():
		return c, diagnose.ClassUnlicensed(o.Object, o.Class, string(c.Resource))
	}
	chain, err := b.tree.Chain(o.Namespace)
	if err != nil {
		return c, diagnose.Refused(err, o.Object)
	}
	if _, entitled := chain.Entitled(c.Entitlement); !entitled {
		return c, diagnose.NotEntitled(o.Object, o.Namespace, o.Class, c.Entitlement)
	}
	return c, nil
}

// offered returns which nodes the class's units are offered on; nil for all.
func (b *Books) offered(c Class) func(node string) bool {
	if len(c.NodeSelector) == 0 {
		return nil
	}
	return func(node string) bool {
		labels := b.nodes[node].Facts.Labels
		for key, value := range c.NodeSelector {
			if got, ok := labels[key]; !ok || got != value {
				return false
			}
		}
		return true
	}
}

// offeredTo is the same for a device that has a node. A class of another resource name
// has only the name of the device's.
func (b *Books) offeredTo(d *Device) func(node string) bool {
	c := b.classes[d.Class]
	if !b.sameName(c, d) {
		return nil
	}
	return b.offered(c)
}

// sameName reports that a class has the resource name that a device is placed under.
func (b *Books) sameName(c Class, d *Device) bool {
	return b.names.Base(c.Resource) == b.names.Base(d.Resource)
}

// mayMove says whether a reservation may be moved to a node.
func (b *Books) mayMove(d alloc.Device, node string) bool {
	known, _ := b.Device(d.UID)
	offered := b.offeredTo(&known)
	return offered == nil || offered(node)
}
