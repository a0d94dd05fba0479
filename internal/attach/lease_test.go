package attach

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/test/wire"
)

func (w *world) lease() *coordinationv1.Lease {
	w.Helper()
	l := &coordinationv1.Lease{}
	w.must(admin.Get(w.Context(), client.ObjectKey{Namespace: w.ns, Name: v1alpha1.ControllerLease}, l))
	return l
}

// leased changes the Lease.
func (w *world) leased(change func(*coordinationv1.LeaseSpec)) {
	w.Helper()
	l := w.lease()
	change(&l.Spec)
	w.must(admin.Update(w.Context(), l))
}

func renewed(at time.Time) func(*coordinationv1.LeaseSpec) {
	return func(s *coordinationv1.LeaseSpec) {
		seconds, micro := int32(15), metav1.NewMicroTime(at)
		s.LeaseDurationSeconds, s.RenewTime = &seconds, &micro
	}
}

// Where nobody leads a start is refused before anything is written.
func TestStartNeedsLeader(t *testing.T) {
	for name, tc := range map[string]struct {
		before func(w *world, p *process)
		text   string // "": it goes on
	}{
		"no Lease":                {func(w *world, _ *process) { w.must(admin.Delete(w.Context(), w.lease())) }, "there is no Lease"},
		"given up":                {func(w *world, _ *process) { w.leased(func(s *coordinationv1.LeaseSpec) { s.HolderIdentity = new("") }) }, "held by nobody"},
		"run out before":          {func(w *world, _ *process) { w.leased(renewed(time.Now().Add(-26 * time.Second))) }, "was not renewed by leader"},
		"a clock that is behind":  {func(w *world, _ *process) { w.leased(renewed(time.Now().Add(-20 * time.Second))) }, ""},
		"a clock that is ahead":   {func(w *world, _ *process) { w.leased(renewed(time.Now().Add(time.Hour))) }, ""},
		"run out, by own seconds": {func(w *world, p *process) { seenFor(w, p, 14*time.Second, 2*time.Second) }, "was not renewed by leader"},
		"about to run out":        {func(w *world, p *process) { seenFor(w, p, 12*time.Second) }, ""},
		"renewed in time": {func(w *world, p *process) {
			seenFor(w, p, 14*time.Second)
			w.leased(renewed(w.now()))
			seenFor(w, p, 10*time.Second)
		}, ""},
		"run out, and renewed": {func(w *world, p *process) {
			seenFor(w, p, 14*time.Second, 5*time.Second)
			w.leased(renewed(w.now()))
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := of3(t)
			p := w.replica()
			tc.before(w, p)
			same := w.unchanged()
			p.Took()
			_, err := p.Start(t.Context(), w.vmi("vm", setOf3), false)
			if tc.text == "" {
				w.must(err)
				return
			}
			w.refused(err, "GPU0710", tc.text)
			same()
			if log := p.writes(); len(log) > 0 {
				t.Errorf("it writes: %v", log)
			}
		})
	}
}

// seenFor has a process look at a Lease that nobody renews, now and after each step.
func seenFor(w *world, p *process, steps ...time.Duration) {
	w.Helper()
	if l := w.lease(); *l.Spec.LeaseDurationSeconds != 15 {
		w.leased(renewed(w.now()))
	}
	_, _ = p.Start(w.Context(), w.vmi("vm", setOf3), true)
	for _, step := range steps {
		w.passes(step)
		_, _ = p.Start(w.Context(), w.vmi("vm", setOf3), true)
	}
}

// A start whose leader goes while it waits is refused at once, and gives back what it took.
func TestStartLosesLeader(t *testing.T) {
	w := newWorld(t) // nobody answers
	w.order("a", 1)
	w.order("b", 1)
	p := w.replica()
	writes := 0
	p.Set(func(x *wire.Exchange) error {
		if x.Verb == "PUT" {
			writes++
			if writes == 3 {
				w.must(admin.Delete(t.Context(), w.lease()))
			}
		}
		return x.Send()
	})
	_, err := p.Start(t.Context(), w.vmi("vm", setOf3), false)
	w.refused(err, "GPU0710", "there is no Lease")
	p.Set(nil)
	w.leads() // it has to take the finalizer off what was made
	w.become(freeSet)
}
