package cluster

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
)

// sets is where devices are found that VMIs have, or that were made for them. Those that
// somebody has to look at are few, whatever there is.
type sets struct {
	unclaimed, unanswered, spare set
	claimed                      map[types.UID]set // by the VMI's UID
	ended                        map[types.UID]bool
	madeFor                      map[types.UID]set // by the VM's UID
	names                        map[types.NamespacedName]string
	found                        map[string]found
}

// found is what a device was found by.
type found struct {
	name    types.NamespacedName
	vmi, vm types.UID
}

func newSets() sets {
	return sets{
		unclaimed: set{}, unanswered: set{}, spare: set{}, claimed: map[types.UID]set{}, ended: map[types.UID]bool{},
		madeFor: map[types.UID]set{}, names: map[types.NamespacedName]string{}, found: map[string]found{},
	}
}

func (s *sets) find(uid string, d *v1alpha1.GPUDevice) {
	f := found{name: types.NamespacedName{Namespace: d.Namespace, Name: d.Name}}
	s.names[f.name] = uid
	a, o := d.Status.Attachment, d.Status.Origin
	switch {
	case a != nil && a.VMIUID == "":
		s.unclaimed[uid] = struct{}{}
	case a != nil:
		f.vmi = a.VMIUID
		addTo(s.claimed, f.vmi, uid)
	case d.Labels[v1alpha1.LabelTemplateDevice] == v1alpha1.ValueTrue, o != nil && o.Kind == v1alpha1.OriginTemplate:
		s.spare[uid] = struct{}{} // whatever became of the label
	}
	if q := d.Status.BindRequest; q != nil && q.Answer == nil {
		s.unanswered[uid] = struct{}{}
	}
	if o != nil && o.Kind == v1alpha1.OriginTemplate && o.VM != nil {
		f.vm = o.VM.UID
		addTo(s.madeFor, f.vm, uid)
	}
	s.found[uid] = f
}

func (s *sets) lose(uid string) {
	f, ok := s.found[uid]
	if !ok {
		return
	}
	delete(s.found, uid)
	delete(s.unclaimed, uid)
	delete(s.unanswered, uid)
	delete(s.spare, uid)
	removeFrom(s.madeFor, f.vm, uid)
	if removeFrom(s.claimed, f.vmi, uid) {
		delete(s.ended, f.vmi)
	}
	if s.names[f.name] == uid { // not another one's by now
		delete(s.names, f.name)
	}
}

// vmi says whether a VMI runs, and reports that its devices are now to be looked at.
func (f *Feed) vmi(uid types.UID, runs bool) (news bool) {
	s := &f.devices.sets
	if runs {
		f.running[uid] = true
		delete(s.ended, uid)
		return false
	}
	delete(f.running, uid)
	if len(s.claimed[uid]) == 0 || s.ended[uid] {
		return false
	}
	s.ended[uid] = true
	return true
}

// claimant looks whether the VMI that has a device runs.
func (f *Feed) claimant(d *v1alpha1.GPUDevice) {
	if a := d.Status.Attachment; a != nil && a.VMIUID != "" && !f.running[a.VMIUID] {
		f.devices.sets.ended[a.VMIUID] = true
	}
}

// Unclaimed returns the devices that starts have taken, in any order.
func (v View) Unclaimed() []*v1alpha1.GPUDevice { return v.f.devices.in(v.f.devices.sets.unclaimed) }

// Ended returns the devices of VMIs that have ended, or that are not known, in any order.
func (v View) Ended() (out []*v1alpha1.GPUDevice) {
	s := &v.f.devices.sets
	for vmi := range s.ended {
		out = append(out, v.f.devices.in(s.claimed[vmi])...)
	}
	return out
}

// Spare returns the devices that were made from templates and that nobody has, in any
// order.
func (v View) Spare() []*v1alpha1.GPUDevice { return v.f.devices.in(v.f.devices.sets.spare) }

// MadeFor returns the devices that were made from the templates of a VM, in any order.
func (v View) MadeFor(vm types.UID) []*v1alpha1.GPUDevice {
	return v.f.devices.in(v.f.devices.sets.madeFor[vm])
}

// Unanswered returns how many devices wait for the binder's answer.
func (v View) Unanswered() int { return len(v.f.devices.sets.unanswered) }

// Runs reports a VMI that is known and has not ended.
func (v View) Runs(vmi types.UID) bool { return v.f.running[vmi] }

// IsKubeVirt reports the user that virt-controller is: its account in the namespace of
// a KubeVirt.
func (f *Feed) IsKubeVirt(user string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, d := range f.table {
		if text(d.Object, "kind") == "KubeVirt" && user == "system:serviceaccount:"+d.Meta("namespace")+":kubevirt-controller" {
			return true
		}
	}
	return false
}

// Next returns a channel that is closed when something changes after this call.
func (f *Feed) Next() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.next == nil {
		f.next = make(chan struct{})
	}
	return f.next
}

// announce says that something has changed. It is called under the lock.
func (f *Feed) announce() {
	if f.next != nil {
		close(f.next)
		f.next = nil
	}
}
