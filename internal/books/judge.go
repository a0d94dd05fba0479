package books

import (
	"slices"

	"github.com/gpuctl/gpuctl/internal/diagnose"
)

// Judge says how an order stands: what its class and the budgets are, and what the
// binder would do with it now. The zero Judgement is that of an unknown device. It is
// for showing: nothing is changed.
func (b *Books) Judge(uid string) (j diagnose.Judgement) {
	b.settle()
	d, ok := b.Device(uid)
	if !ok {
		return j
	}
	object := "GPUDevice " + d.Namespace + "/" + d.Name
	c, exists := b.classes[d.Class]
	j = diagnose.Judgement{Known: true, Class: diagnose.ClassView{Exists: exists, Resource: c.Resource, Entitlement: c.Entitlement, Deleting: c.Deleting}}
	b.class(&j, &d, c, object)
	b.budgets(&j, &d)
	if d.Node != "" {
		j.Served, j.Held = b.snapshot.Units(d.Node, b.names.Base(d.Resource))
		return j
	}
	if j.Refusal == nil {
		b.tryOut(&j, &d, object)
	}
	return j
}

// class says what is wrong with a device's class. A device that has its units keeps
// them, whatever becomes of that.
func (b *Books) class(j *diagnose.Judgement, d *Device, c Class, object string) {
	if chain, err := b.tree.Chain(d.Namespace); err == nil && c.Entitlement != "" {
		j.Class.EntitledBy, _ = chain.Entitled(c.Entitlement)
	}
	if d.Node == "" {
		if _, err := b.orderable(Order{Object: object, Namespace: d.Namespace, Class: d.Class}); err != nil {
			j.Refusal = diagnose.Refused(err, object)
			return
		}
	}
	resource := b.resource(d)
	switch {
	case resource == "":
	case b.table.Set && !b.table.Permits(resource):
		j.Unusable = diagnose.ClassNotPermitted(object, d.Class, string(resource))
	case !b.names.Has(b.names.Base(resource)):
		j.Unusable = diagnose.ClassNotCounted(object, d.Class, string(resource))
	}
}

// budgets works out what bears on the device, without what it has itself.
func (b *Books) budgets(j *diagnose.Judgement, d *Device) {
	amount := b.amount(d)
	if amount.Resource == "" || amount.Units == 0 {
		return
	}
	steps, err := b.placed.Steps(d.Namespace, amount)
	if err != nil {
		return
	}
	j.Tenant = true
	if d.Node != "" {
		for i := range steps {
			steps[i].Use = max(0, steps[i].Use-steps[i].Ask)
		}
	}
	j.Budgets = steps
}

// tryOut asks the binder's question about an order that has no node.
func (b *Books) tryOut(j *diagnose.Judgement, d *Device, object string) {
	r := b.Begin()
	defer r.Close()
	r.Settle()
	writes, err := r.Place(d.UID)
	if err != nil {
		j.Refusal = diagnose.Refused(err, object)
		return
	}
	j.Room = true
	if i := slices.IndexFunc(writes, func(w Write) bool { return w.UID == d.UID }); i >= 0 {
		j.Node = writes[i].Node
	}
}
