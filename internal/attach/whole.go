package attach

import (
	"context"
	"fmt"
	"time"

	kubevirt "kubevirt.io/api/core/v1"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/internal/books"
	"github.com/gpuctl/gpuctl/internal/diagnose"
)

// whole says why a set that a start has taken is not on one node, as the binder answered.
func (st *start) whole() error {
	node := ""
	for _, m := range st.members {
		got, refused := answered(m.device, st.id)
		switch {
		case refused != nil:
			return diagnose.Told(st.String(), refused.Code, refused.Message)
		case got == "" || node != "" && got != node:
			return diagnose.NotAnswered(st.String(), answerWait)
		}
		node, m.resource = got, m.device.Status.Placement.ResourceName
	}
	return nil
}

// keepsFor is for how long a start has what it has taken for certain, if it does not give
// it back itself: nobody collects sooner. It is much less than abandoned, for clocks of two
// replicas may be apart.
const keepsFor = 10 * time.Second

// Validate says what is wrong with a VMI as it is to be stored, after all others have
// changed it: it has to have exactly the set that its start has taken, and that set has
// to be still taken for it. In a dry run nothing is taken, and only the shape counts.
func (s *Starter) Validate(ctx context.Context, object *kubevirt.VirtualMachineInstance, dry bool) error {
	v, err := read(object)
	if err != nil {
		return err
	}
	if !s.Feed.Synced() {
		return errNotYet
	}
	if dry {
		s.Feed.Books(func(b *books.Books) { err = v.shape(b.Names(), object.Spec.Domain.Devices.GPUs) })
		return err
	}
	members, err := s.taken(ctx, v, s.seen(v.requestID, func(d *v1alpha1.GPUDevice) bool {
		age := s.Now().Sub(d.Status.Attachment.Since.Time)
		return 0 <= age && age < keepsFor
	}))
	if err != nil {
		return err
	}
	if members == nil || v.requestID == "" {
		return diagnose.NotItsSet(v.String(), "it has not the devices that it references")
	}
	for _, m := range members {
		if !v.started(m.device) {
			return diagnose.NotItsSet(v.String(), "GPUDevice "+m.name+" is not taken for it")
		}
	}
	st := &start{vmi: v, id: v.requestID, members: members}
	if err := st.whole(); err != nil {
		return err
	}
	want := entries(members)
	s.Feed.Books(func(b *books.Books) { err = v.shape(b.Names(), want) })
	has := map[string]bool{}
	for _, g := range object.Spec.Domain.Devices.GPUs {
		has[g.Name] = true
	}
	if n := len(object.Spec.Domain.Devices.GPUs); err == nil && (len(has) != len(want) || n != len(want)) {
		err = diagnose.NotItsSet(v.String(), fmt.Sprintf("it has %d gpus, %d of them different, and its devices %d units", n, len(has), len(want)))
	}
	return err
}
