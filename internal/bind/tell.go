package bind

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/internal/books"
	"github.com/gpuctl/gpuctl/internal/cluster"
	"github.com/gpuctl/gpuctl/internal/diagnose"
)

// tellAgain is how often an order that waits is told anew why, where only numbers have
// changed.
const tellAgain = 30 * time.Second

// tellTime is how long that may take: others wait for their units meanwhile.
const tellTime = time.Second

// tell writes what needs no ledger: why requests are refused, and that devices may go.
// A conflict is no error: who was changed meanwhile is looked at again. Of orders that
// wait only a few are told at a time, for others want their units meanwhile; more says
// that some are not told yet, failed that a write was lost.
func (b *Binder) tell(ctx context.Context, p *plan, now time.Time) (more, failed bool, err error) {
	var writes []func(context.Context) error
	orders := 0
	for _, r := range p.refused {
		if !r.demand.set && orders == atOnce {
			more = more || !r.demand.told.still(string(r.why.Code), r.why.ForTenant(), now)
			continue
		}
		if write := b.refuse(r, p, now); write != nil {
			writes = append(writes, write)
			if !r.demand.set {
				orders++
			}
		}
	}
	for _, d := range p.leaving {
		writes = append(writes, func(ctx context.Context) error { return b.release(ctx, d) })
	}
	for _, vm := range p.nudges {
		writes = append(writes, func(ctx context.Context) error { return b.nudge(ctx, vm, now) })
	}
	var lost atomic.Bool
	workqueue.ParallelizeUntil(context.Background(), atOnce, len(writes), func(i int) {
		ctx, cancel := context.WithTimeout(ctx, tellTime)
		defer cancel()
		if err := writes[i](ctx); err != nil && answerOf(err) != conflict && answerOf(err) != gone && ctx.Err() == nil {
			b.Log.Error(err, "tell")
			lost.Store(true)
		}
	})
	return more, lost.Load(), ctx.Err()
}

// refuse returns the write that tells a request why it has nothing; nil where that is
// told already.
func (b *Binder) refuse(r refusal, p *plan, now time.Time) func(context.Context) error {
	code, text := string(r.why.Code), r.why.ForTenant()
	if !r.demand.set && r.demand.told.still(code, text, now) {
		return nil // of most that wait, each time
	}
	var d *v1alpha1.GPUDevice
	b.Feed.View(func(_ *books.Books, v cluster.View) { d = v.Device(r.demand.uids[0]) })
	if d == nil {
		return nil
	}
	var next *v1alpha1.GPUDevice
	if r.demand.set {
		if q := d.Status.BindRequest; q == nil || q.RequestID != r.demand.key {
			return nil
		}
		next = d.DeepCopy()
		next.Status.BindRequest.Answer = &v1alpha1.BindAnswer{AnsweredAt: p.decidedAt, Refusal: &v1alpha1.Refusal{Code: code, Message: text}}
	} else {
		has := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.ConditionHeld)
		r.demand.told = told{code, text, now}
		if d.Status.Placement != nil || has != nil && has.Message == text {
			return nil
		}
		next = d.DeepCopy()
		waits(next, reasonOf(r.why), text, now)
	}
	next.Status.State = next.Status.Derive()
	return func(ctx context.Context) error {
		err := b.Client.Status().Update(ctx, next)
		if err != nil {
			r.demand.told = told{} // it is told again
			return err
		}
		b.Feed.Assume(next)
		if a := next.Status.Attachment; r.demand.set && a != nil { // once; the tenant does not read all of it
			b.Log.Info("a start is refused", "vmi", next.Namespace+"/"+a.VMIName, "reason", r.why.Error())
		}
		return nil
	}
}

// waits puts into the status of an order why it waits.
func waits(d *v1alpha1.GPUDevice, reason, text string, now time.Time) {
	if d.Status.Origin == nil {
		d.Status.Origin = &v1alpha1.Origin{Kind: v1alpha1.OriginOrder}
	}
	for _, c := range []metav1.Condition{d.Status.Held(reason, text), d.Status.Attached()} {
		c.LastTransitionTime = metav1.NewTime(now).Rfc3339Copy()
		meta.SetStatusCondition(&d.Status.Conditions, c)
	}
}

// reasonOf is the reason of a pending order's condition.
func reasonOf(r *diagnose.Refusal) string {
	switch r.Code {
	case "GPU0611":
		return v1alpha1.ReasonOverBudget
	case "GPU0702", "GPU0703", "GPU0704", "GPU0705":
		return v1alpha1.ReasonNoUnits
	}
	return v1alpha1.ReasonNotAllowed
}

// release takes the finalizer of a device that nobody uses away. With the last one the
// device is gone, and its units are free.
func (b *Binder) release(ctx context.Context, d *v1alpha1.GPUDevice) error {
	next := d.DeepCopy()
	next.Finalizers = slices.DeleteFunc(next.Finalizers, func(f string) bool { return f == v1alpha1.FinalizerUnits })
	err := b.Client.Update(ctx, next)
	switch {
	case err == nil && len(next.Finalizers) > 0:
		b.Feed.Assume(next) // somebody else still has to let it go
	case err == nil, answerOf(err) == gone:
		b.Feed.Forget(string(d.UID)) // the last finalizer was the last of it
	}
	return err
}
