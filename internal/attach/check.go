package attach

import (
	"context"
	"fmt"

	"github.com/gpuctl/gpuctl/internal/books"
	"github.com/gpuctl/gpuctl/internal/cluster"
	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/internal/gpu"
)

// mostUnanswered is how many devices the binder answers in the time that a start waits,
// at 5 ms each.
const mostUnanswered = 600

// check looks at all that may refuse a start, before anything is written.
func (s *Starter) check(ctx context.Context, st *start) error {
	err := together(
		func() error { return s.draw(ctx, st.vmi) },
		func() error { return s.leader.check(ctx, st.String()) },
	)
	if err != nil {
		return err
	}
	if err := s.devices(ctx, st, s.madeFor(st)); err != nil {
		return err
	}
	s.Feed.View(func(b *books.Books, v cluster.View) {
		if err = st.usable(b); err != nil {
			return
		}
		if n := v.Unanswered(); n+len(st.members) > mostUnanswered {
			err = diagnose.QueueTooLong(st.String(), n, mostUnanswered)
			return
		}
		err = b.AdmitSet(st.ask(b))
	})
	return err
}

// draw gives a VMI its name, and refuses one that another VMI has.
func (s *Starter) draw(ctx context.Context, v *vmi) error {
	prefix := ""
	if v.name == "" {
		prefix = v.object.GenerateName
	}
	for range 8 {
		name := v.name
		if prefix != "" {
			name = generated(prefix)
		}
		found, err := instance(ctx, s.Live, v.namespace, name)
		switch {
		case err != nil:
			return err
		case found == nil:
			v.name = name
			return nil
		case prefix == "":
			return diagnose.VMIExists(v.String(), v.namespace, name)
		}
	}
	return fmt.Errorf("no name that begins with %s is free", prefix)
}

// usable says what is wrong with a set, wherever there is room.
func (st *start) usable(b *books.Books) error {
	if err := st.offered(b); err != nil {
		return err
	}
	return st.shape(b.Names(), entries(st.members))
}

// offered finds the resource names of the members, and says which of them no VM can use.
func (st *start) offered(b *books.Books) error {
	table := b.Table()
	for _, m := range st.members {
		class, resource := m.asksFor()
		if resource == "" {
			c, ok := b.Class(class)
			if !ok {
				return diagnose.NoClass(st.String(), class)
			}
			resource = c.Resource
		}
		if table.Set && !table.Permits(resource) {
			return diagnose.ClassNotPermitted(st.String(), class, string(resource))
		}
		m.resource = string(resource)
	}
	return nil
}

// asksFor returns the class of a member, and the resource name that it has already.
func (m *member) asksFor() (class string, has gpu.ResourceName) {
	if m.device == nil {
		return m.template.Class, ""
	}
	if p := m.device.Status.Placement; p != nil {
		has = gpu.ResourceName(p.ResourceName)
	}
	return m.device.Spec.ClassName, has
}

// ask is what the books are asked. Of devices that they do not know yet the binder says
// what becomes.
func (st *start) ask(b *books.Books) books.Set {
	out := books.Set{Object: st.String(), Namespace: st.namespace}
	for _, m := range st.members {
		if m.device == nil {
			out.New = append(out.New, books.Order{Object: st.String(), Namespace: st.namespace, Class: m.template.Class, Count: m.template.Count})
		} else if _, known := b.Device(string(m.device.UID)); known {
			out.Devices = append(out.Devices, string(m.device.UID))
		}
	}
	return out
}
