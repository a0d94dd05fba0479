package attach

import (
	"context"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
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

// devices reads the devices of a set, and finds for each template one that the VM has
// already.
func (s *Starter) devices(ctx context.Context, st *start) error {
	var spare []*v1alpha1.GPUDevice
	if st.vm != nil {
		s.Feed.View(func(_ *books.Books, v cluster.View) { spare = v.MadeFor(st.vm.UID) })
	}
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
		m := &member{template: t, units: t.Count, name: deviceName(st.name)}
		at := slices.IndexFunc(spare, func(d *v1alpha1.GPUDevice) bool {
			return d != nil && d.Spec.ClassName == t.Class && d.Spec.Count == t.Count
		})
		if at >= 0 {
			m.name, m.device, spare[at] = spare[at].Name, spare[at], nil
		} else if drawn := st.drawn(); len(drawn) > 0 {
			m.name = drawn[0]
		}
		st.members = append(st.members, m)
	}
	return nil
}

// drawn are the names that an earlier call of a dry run has drawn for devices, which have
// no member yet: a dry run has no id to be recognised by.
func (st *start) drawn() []string {
	if !st.dry {
		return nil
	}
	return slices.DeleteFunc(st.called(), func(name string) bool {
		rest, ours := strings.CutPrefix(name, deviceBase(st.name)+"-")
		return !ours || len(rest) != 5 || slices.ContainsFunc(st.members, func(m *member) bool { return m.name == name })
	})
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
	if absent(err) {
		return nil, nil //nolint:nilnil // see above
	}
	return d, err
}

// absent reports an object that does not exist, of a kind that is served.
func absent(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
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
	if absent(err) {
		return nil, nil //nolint:nilnil // see above
	}
	if err != nil {
		return nil, err
	}
	phase, _, _ := unstructured.NestedString(u.Object, "status", "phase")
	return &stored{u, final(phase)}, nil
}

// is reports a VMI of the UID that has not ended.
func (s *stored) is(uid types.UID) bool { return s != nil && s.GetUID() == uid && !s.final }

// together does all at once, and returns the first error in the order of what was asked.
func together(all ...func() error) error {
	errs := make([]error, len(all))
	each(len(all), func(i int) { errs[i] = all[i]() })
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
