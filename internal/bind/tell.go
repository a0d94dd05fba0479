package bind

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/internal/books"
	"github.com/gpuctl/gpuctl/internal/cluster"
	"github.com/gpuctl/gpuctl/internal/diagnose"
)

// tellAgain is how often an order that waits is told anew why, where only numbers have
// changed.
const tellAgain = 30 * time.Second

// tell writes what needs no ledger: why requests are refused, and that devices may go.
// A conflict is no error: who was changed meanwhile is looked at again.
func (b *Binder) tell(ctx context.Context, p *plan, now time.Time) error {
	var writes []func(context.Context) error
	for _, r := range p.refused {
		if write := b.refuse(r, p, now); write != nil {
			writes = append(writes, write)
		}
	}
	for _, d := range p.leaving {
		writes = append(writes, func(ctx context.Context) error { return b.release(ctx, d) })
	}
	each(len(writes), func(i int) {
		ctx, cancel := context.WithTimeout(ctx, answerTime)
		defer cancel()
		if err := writes[i](ctx); err != nil && answerOf(err) != conflict && answerOf(err) != gone && ctx.Err() == nil {
			b.Log.Error(err, "tell")
		}
	})
	return ctx.Err()
}

// refuse returns the write that tells a request why it has nothing; nil where that is
// told already.
func (b *Binder) refuse(r refusal, p *plan, now time.Time) func(context.Context) error {
	var d *v1alpha1.GPUDevice
	b.Feed.View(func(_ *books.Books, v cluster.View) { d = v.Device(r.demand.uids[0]) })
	if d == nil {
		return nil
	}
	next := d.DeepCopy()
	if r.demand.set {
		if q := next.Status.BindRequest; q == nil || q.RequestID != r.demand.key {
			return nil
		}
		next.Status.BindRequest.Answer = &v1alpha1.BindAnswer{
			AnsweredAt: p.decidedAt, Refusal: &v1alpha1.Refusal{Code: string(r.why.Code), Message: r.why.ForTenant()},
		}
	} else if d.Status.Placement != nil || !b.waits(next, r, now) {
		return nil
	}
	next.Status.State = next.Status.Derive()
	return func(ctx context.Context) error {
		err := b.Client.Status().Update(ctx, next)
		if err == nil {
			b.Feed.Assume(next)
		}
		return err
	}
}

// waits puts into the status of an order why it waits, and reports that this is worth a
// write.
func (b *Binder) waits(d *v1alpha1.GPUDevice, r refusal, now time.Time) bool {
	code, text := string(r.why.Code), r.why.ForTenant()
	has := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.ConditionHeld)
	same := has != nil && has.Message == text
	if same || has != nil && r.demand.told.code == code && now.Before(r.demand.told.at.Add(tellAgain)) {
		return false
	}
	r.demand.told = told{code, now}
	if d.Status.Origin == nil {
		d.Status.Origin = &v1alpha1.Origin{Kind: v1alpha1.OriginOrder}
	}
	for _, c := range []metav1.Condition{d.Status.Held(reasonOf(r.why), text), d.Status.Attached()} {
		c.LastTransitionTime = metav1.NewTime(now).Rfc3339Copy()
		meta.SetStatusCondition(&d.Status.Conditions, c)
	}
	return true
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

// release takes the finalizer of a device that nobody uses away. Its units are free when
// it is seen to be gone.
func (b *Binder) release(ctx context.Context, d *v1alpha1.GPUDevice) error {
	next := d.DeepCopy()
	next.Finalizers = slices.DeleteFunc(next.Finalizers, func(f string) bool { return f == v1alpha1.FinalizerUnits })
	return b.Client.Update(ctx, next)
}
