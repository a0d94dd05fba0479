package attach

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/internal/books"
	"github.com/gpuctl/gpuctl/internal/cluster"
	"github.com/gpuctl/gpuctl/internal/diagnose"
)

// member is one device of a set.
type member struct {
	name     string
	device   *v1alpha1.GPUDevice // nil: it is still to be made, from a template
	template *v1alpha1.Template  // nil for a device that is named
	resource string              // that it has, or will have as things are
	units    int32
	made     bool // by this start
}

// madeFor returns the devices that were made for the VM of a start, by what the Feed knows.
func (s *Starter) madeFor(st *start) (made []*v1alpha1.GPUDevice) {
	if st.vm != nil {
		s.Feed.View(func(_ *books.Books, v cluster.View) { made = v.MadeFor(st.vm.UID) })
	}
	return made
}

// devices reads the devices of a set, and finds for each template one that the VM has
// already, of those that were made for it.
func (s *Starter) devices(ctx context.Context, st *start, spare []*v1alpha1.GPUDevice) error {
	named := make([]*member, len(st.references.Devices))
	reads := make([]func() error, 0, len(named)+len(spare))
	for i, name := range st.references.Devices {
		named[i] = &member{name: name}
		reads = append(reads, func() error { return s.named(ctx, st, named[i]) })
	}
	for i, d := range spare {
		reads = append(reads, func() (err error) {
			spare[i], err = s.spare(ctx, st, d)
			return err
		})
	}
	if err := together(reads...); err != nil {
		return err
	}
	st.members = named
	for i := range st.references.Templates {
		t := &st.references.Templates[i]
		m := &member{template: t, units: t.Count, name: st.nameFor(i)}
		at := slices.IndexFunc(spare, func(d *v1alpha1.GPUDevice) bool {
			return d != nil && t.Makes(d.Spec)
		})
		if at >= 0 {
			m.name, m.device, spare[at] = spare[at].Name, spare[at], nil
		}
		st.members = append(st.members, m)
	}
	return nil
}

// named reads a device that the VMI names.
func (s *Starter) named(ctx context.Context, st *start, m *member) error {
	d, err := s.device(ctx, st.namespace, m.name)
	if err != nil {
		return err
	}
	if d == nil || d.Status.Origin == nil && d.Labels[v1alpha1.LabelTemplateDevice] == v1alpha1.ValueTrue {
		return diagnose.NoDevice(st.String(), st.namespace, m.name)
	}
	if o := d.Status.Origin; o != nil && o.Kind == v1alpha1.OriginTemplate {
		vm := "no VM"
		if o.VM != nil {
			vm = o.VM.Name
		}
		return diagnose.DeviceOfTemplate(st.String(), st.namespace, m.name, vm)
	}
	if err := s.free(ctx, st, d); err != nil {
		return err
	}
	m.device, m.units = d, d.Spec.Count
	return nil
}

// spare reads a device that was made for the VM; nil when the VMI does not get it.
func (s *Starter) spare(ctx context.Context, st *start, cached *v1alpha1.GPUDevice) (*v1alpha1.GPUDevice, error) {
	d, err := s.device(ctx, st.namespace, cached.Name)
	if err != nil || d == nil || d.UID != cached.UID || d.DeletionTimestamp != nil {
		return nil, err
	}
	return d, s.free(ctx, st, d)
}

// free says why a device cannot be taken.
func (s *Starter) free(ctx context.Context, st *start, d *v1alpha1.GPUDevice) error {
	a, p := d.Status.Attachment, d.Status.Placement
	switch {
	case !d.DeletionTimestamp.IsZero():
		return diagnose.DeviceDeleted(st.String(), d.Namespace, d.Name)
	case p != nil && p.LostSince != nil:
		return diagnose.UnitsLost(st.String(), d.Namespace, d.Name, p.Node, p.ResourceName)
	case a == nil:
		return nil
	case a.VMIUID == "":
		return diagnose.DeviceStarting(st.String(), d.Namespace, d.Name, a.VMIName)
	case a.VMUID == "" || a.VMUID != st.vmUID():
		return diagnose.DeviceInUse(st.String(), d.Namespace, d.Name, a.VMIName)
	}
	owner, err := instance(ctx, s.Live, d.Namespace, a.VMIName)
	if err != nil {
		return err
	}
	if owner.is(a.VMIUID) {
		return diagnose.DeviceInUse(st.String(), d.Namespace, d.Name, a.VMIName)
	}
	return nil
}

// device reads a device; nil for one that does not exist.
func (o *Options) device(ctx context.Context, namespace, name string) (*v1alpha1.GPUDevice, error) {
	d := &v1alpha1.GPUDevice{}
	err := o.Live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, d)
	if cluster.Absent(err) {
		return nil, nil //nolint:nilnil // see above
	}
	return d, err
}

// stored is a VMI that exists; nil for one that does not.
type stored struct {
	*unstructured.Unstructured
	final bool
}

// instance reads a VMI; nil for one that does not exist.
func instance(ctx context.Context, live client.Reader, namespace, name string) (*stored, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kubevirt.VirtualMachineInstanceGroupVersionKind)
	err := live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, u)
	if cluster.Absent(err) {
		return nil, nil //nolint:nilnil // see above
	}
	if err != nil {
		return nil, err
	}
	phase, _, _ := unstructured.NestedString(u.Object, "status", "phase")
	return &stored{u, cluster.Over(phase)}, nil
}

// is reports a VMI of the UID that has not ended.
func (s *stored) is(uid types.UID) bool { return s != nil && s.GetUID() == uid && !s.final }

// together does all at once, and returns the first error in the order of what was asked.
func together(all ...func() error) error {
	errs := make([]error, len(all))
	workqueue.ParallelizeUntil(context.Background(), atOnce, len(all), func(i int) { errs[i] = all[i]() })
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
