package attach

import (
	"context"
	"slices"
	"strings"

	kubevirt "kubevirt.io/api/core/v1"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/internal/books"
)

// again goes on with a start whose first call has taken the set: the API server asks
// once more when others have changed the object. Nil: this is no such call. Nothing is
// written, for whoever copied an id must not end the start that it belongs to.
func (s *Starter) again(ctx context.Context, v *vmi) (*Started, error) {
	if v.requestID == "" || v.name == "" {
		return nil, nil //nolint:nilnil // see above
	}
	members, err := s.taken(ctx, v)
	if err != nil || members == nil || slices.ContainsFunc(members, func(m *member) bool { return !v.started(m.device) }) {
		return nil, err
	}
	st := &start{vmi: v, id: v.requestID, members: members}
	found, err := instance(ctx, s.Live, v.namespace, v.name)
	switch {
	case err != nil:
		return nil, err
	case found != nil:
		return nil, s.exists(v)
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

// taken reads the devices of the set that a VMI says it has: those that it names, and
// those that its gpus entries are called by. Nil where there is not one for each
// reference.
func (o *Options) taken(ctx context.Context, v *vmi) ([]*member, error) {
	names := slices.Clone(v.references.Devices)
	for _, g := range v.object.Spec.Domain.Devices.GPUs {
		if name := deviceOf(g); name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if len(names) != len(v.references.Devices)+len(v.references.Templates) {
		return nil, nil
	}
	members := make([]*member, len(names))
	reads := make([]func() error, len(names))
	for i, name := range names {
		reads[i] = func() error {
			d, err := o.device(ctx, v.namespace, name)
			if d != nil {
				members[i] = &member{name: name, device: d, units: d.Spec.Count}
			}
			return err
		}
	}
	if err := together(reads...); err != nil || slices.Contains(members, nil) {
		return nil, err
	}
	made := members[len(v.references.Devices):]
	for _, t := range v.references.Templates {
		at := slices.IndexFunc(made, func(m *member) bool {
			d := m.device
			return m.template == nil && d.Spec.ClassName == t.Class && d.Spec.Count == t.Count && d.Status.Origin != nil && d.Status.Origin.Kind == v1alpha1.OriginTemplate
		})
		if at < 0 {
			return nil, nil
		}
		made[at].template = &t
	}
	return members, nil
}

// deviceOf returns the device that a gpus entry is a unit of, as GPUName has called it.
func deviceOf(g kubevirt.GPU) string {
	at := strings.LastIndex(g.Name, "-")
	if at < 0 {
		return ""
	}
	return g.Name[:at]
}
