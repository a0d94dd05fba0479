package attach

import (
	"context"
	"slices"
	"strings"

	kubevirt "kubevirt.io/api/core/v1"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/internal/books"
	"github.com/gpuctl/gpuctl/internal/cluster"
	"github.com/gpuctl/gpuctl/internal/diagnose"
)

// again goes on with a start whose first call has taken the set: the API server asks
// once more when others have changed the object. Nil: this is no such call. Nothing is
// written, for whoever copied an id must not end the start that it belongs to.
func (s *Starter) again(ctx context.Context, v *vmi) (*Started, error) {
	if v.requestID == "" || v.name == "" {
		return nil, nil //nolint:nilnil // see above
	}
	var perhaps []string // somebody may have taken the gpus away again
	s.Feed.View(func(_ *books.Books, f cluster.View) {
		for _, d := range f.Asking(v.requestID) {
			if d.Namespace == v.namespace {
				perhaps = append(perhaps, d.Name)
			}
		}
	})
	members, err := s.taken(ctx, v, s.device, perhaps...)
	if err != nil || members == nil || slices.ContainsFunc(members, func(m *member) bool { return !v.started(m.device) }) {
		return nil, err
	}
	st := &start{vmi: v, id: v.requestID, members: members}
	found, err := instance(ctx, s.Live, v.namespace, v.name)
	switch {
	case err != nil:
		return nil, err
	case found != nil:
		return nil, diagnose.VMIExists(v.String(), v.namespace, v.name)
	}
	if err := st.whole(); err != nil {
		return nil, err
	}
	s.Feed.Books(func(b *books.Books) { err = v.shape(b.Names(), entries(members)) })
	if err != nil {
		return nil, err
	}
	return st.started(), nil
}

// started reports a device that a start has which the VMI is of.
func (v *vmi) started(d *v1alpha1.GPUDevice) bool {
	a := d.Status.Attachment
	return carries(d, v.requestID) && a.VMIName == v.name && a.VMUID == v.vmUID()
}

// taken reads the devices of the set that a VMI says it has: those that it names, and for
// each template one that has its id, of those that its gpus entries are called by and of
// others that perhaps are. Nil where there is not one for each reference.
func (o *Options) taken(ctx context.Context, v *vmi, read reading, perhaps ...string) ([]*member, error) {
	named := len(v.references.Devices)
	names := slices.Clone(v.references.Devices)
	for _, name := range slices.Concat(v.called(), perhaps) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if len(names) > named+2*v1alpha1.MaxDevicesPerSet {
		return nil, nil
	}
	members := make([]*member, len(names))
	reads := make([]func() error, len(names))
	for i, name := range names {
		reads[i] = func() error {
			d, err := read(ctx, v.namespace, name)
			if d != nil {
				members[i] = &member{name: name, device: d, units: d.Spec.Count}
			}
			return err
		}
	}
	if err := together(reads...); err != nil || slices.Contains(members[:named], nil) {
		return nil, err
	}
	set, made := members[:named:named], members[named:]
	for i := range v.references.Templates {
		t := &v.references.Templates[i]
		at := slices.IndexFunc(made, func(m *member) bool { return m != nil && m.madeFrom(t, v.requestID) })
		if at < 0 {
			return nil, nil
		}
		made[at].template = t
		set = append(set, made[at])
		made[at] = nil
	}
	return set, nil
}

// reading is how a device is read; nil is one that does not exist.
type reading func(ctx context.Context, namespace, name string) (*v1alpha1.GPUDevice, error)

// seen reads what the Feed has seen of a start's devices that have their answer, where that
// will do, and all else from etcd.
func (s *Starter) seen(id string, willDo func(*v1alpha1.GPUDevice) bool) reading {
	known := map[string]*v1alpha1.GPUDevice{}
	s.Feed.View(func(_ *books.Books, f cluster.View) {
		for _, d := range f.Asking(id) {
			if node, _ := answered(d, id); node != "" && willDo(d) {
				known[d.Namespace+"/"+d.Name] = d
			}
		}
	})
	return func(ctx context.Context, namespace, name string) (*v1alpha1.GPUDevice, error) {
		if d := known[namespace+"/"+name]; d != nil {
			return d, nil
		}
		return s.device(ctx, namespace, name)
	}
}

// madeFrom reports a device that was made from a template, and that the start has.
func (m *member) madeFrom(t *v1alpha1.Template, id string) bool {
	d := m.device
	return t.Makes(d.Spec) && d.Status.Origin != nil && d.Status.Origin.Kind == v1alpha1.OriginTemplate &&
		d.Status.Attachment != nil && d.Status.Attachment.RequestID == id
}

// called are the devices that gpus entries are called by.
func (v *vmi) called() (names []string) {
	for _, g := range v.object.Spec.Domain.Devices.GPUs {
		if name := deviceOf(g); name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// deviceOf returns the device that a gpus entry is a unit of, as GPUName has called it.
func deviceOf(g kubevirt.GPU) string {
	at := strings.LastIndex(g.Name, "-")
	if at < 0 {
		return ""
	}
	return g.Name[:at]
}
