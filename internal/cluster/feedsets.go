package cluster

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
)

// sets is where devices are found that VMIs have, or that were made for them.
type sets struct {
	taken, made, unanswered set
	madeFor                 map[types.UID]set // by the VM's UID
	vm                      map[string]types.UID
	names                   map[types.NamespacedName]string
	named                   map[string]types.NamespacedName
}

func newSets() sets {
	return sets{taken: set{}, made: set{}, unanswered: set{}, madeFor: map[types.UID]set{}, vm: map[string]types.UID{}, names: map[types.NamespacedName]string{}, named: map[string]types.NamespacedName{}}
}

func (s *sets) find(uid string, d *v1alpha1.GPUDevice) {
	name := types.NamespacedName{Namespace: d.Namespace, Name: d.Name}
	s.names[name], s.named[uid] = uid, name
	if d.Status.Attachment != nil {
		s.taken[uid] = struct{}{}
	}
	if q := d.Status.BindRequest; q != nil && q.Answer == nil {
		s.unanswered[uid] = struct{}{}
	}
	if d.Labels[v1alpha1.LabelTemplateDevice] == v1alpha1.ValueTrue {
		s.made[uid] = struct{}{}
	}
	if o := d.Status.Origin; o != nil && o.Kind == v1alpha1.OriginTemplate {
		s.made[uid] = struct{}{} // whatever became of the label
		if o.VM != nil {
			if s.madeFor[o.VM.UID] == nil {
				s.madeFor[o.VM.UID] = set{}
			}
			s.madeFor[o.VM.UID][uid] = struct{}{}
			s.vm[uid] = o.VM.UID
		}
	}
}

func (s *sets) lose(uid string) {
	delete(s.taken, uid)
	delete(s.made, uid)
	delete(s.unanswered, uid)
	if name, ok := s.named[uid]; ok {
		delete(s.named, uid)
		if s.names[name] == uid { // not another one's by now
			delete(s.names, name)
		}
	}
	if vm, ok := s.vm[uid]; ok {
		delete(s.vm, uid)
		delete(s.madeFor[vm], uid)
		if len(s.madeFor[vm]) == 0 {
			delete(s.madeFor, vm)
		}
	}
}

// Taken returns the devices with an attachment, in any order.
func (v View) Taken() []*v1alpha1.GPUDevice { return v.f.devices.in(v.f.devices.sets.taken) }

// Made returns the devices that were made from templates, in any order.
func (v View) Made() []*v1alpha1.GPUDevice { return v.f.devices.in(v.f.devices.sets.made) }

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
