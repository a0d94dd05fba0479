package bind

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
)

// derive returns the status of a device after an entry's write: the same one, to the
// byte, whoever writes it and when. The device is the live one of the entry's
// resourceVersion; at is when the batch was decided.
func derive(d *v1alpha1.GPUDevice, e v1alpha1.LedgerEntry, at metav1.MicroTime) v1alpha1.GPUDeviceStatus {
	s := *d.Status.DeepCopy()
	if s.Origin == nil {
		s.Origin = &v1alpha1.Origin{Kind: v1alpha1.OriginOrder}
	}
	s.Placement = e.Placement
	if s.BindRequest != nil {
		s.BindRequest.Answer = e.Answer
	}
	s.State = s.Derive()
	reason, message := held(&s, d)
	for _, c := range []metav1.Condition{s.Held(reason, message), s.Attached()} {
		c.LastTransitionTime = metav1.NewTime(at.Time).Rfc3339Copy()
		meta.SetStatusCondition(&s.Conditions, c)
	}
	return *s.DeepCopy()
}

// permitted says which rule of the protocol an entry would break. It is for who decides:
// what is in the ledger is written whatever the rules of this version are.
func permitted(d *v1alpha1.GPUDevice, e v1alpha1.LedgerEntry) error {
	switch {
	case d.Status.Origin == nil && d.Labels[v1alpha1.LabelTemplateDevice] == v1alpha1.ValueTrue:
		return errors.New("status.origin: a template device without it is its webhook's alone: leave it out")
	case e.Answer != nil && d.Status.BindRequest == nil:
		return errors.New("status.bindRequest: it has none that could be answered: leave the answer out")
	case e.Placement == nil && d.Status.HoldsUnits():
		return errors.New("status.placement: its units are not lost: they are taken away only after lostSince was written")
	case e.Placement != nil && d.Status.Placement == nil && !slices.Contains(d.Finalizers, v1alpha1.FinalizerUnits):
		return fmt.Errorf("metadata.finalizers: %s is missing: write it before the first placement", v1alpha1.FinalizerUnits)
	}
	return nil
}

// held returns what the condition says of a device's units after a write. One that goes
// on waiting is told what it was told before: why is not for the ledger to say.
func held(s *v1alpha1.GPUDeviceStatus, before *v1alpha1.GPUDevice) (pending, message string) {
	told := meta.FindStatusCondition(before.Status.Conditions, v1alpha1.ConditionHeld)
	switch {
	case s.HoldsUnits():
		return v1alpha1.ReasonNoUnits, ""
	case s.Placement != nil:
		return v1alpha1.ReasonNoUnits, "node " + s.Placement.Node + " no longer serves its units"
	case told != nil && before.Status.Placement == nil:
		return told.Reason, told.Message
	}
	return v1alpha1.ReasonNoUnits, "it waits for units"
}

// tooLate reports an entry that would give something new to a device that is being
// deleted. What such a device has may be lost and healed.
func tooLate(d *v1alpha1.GPUDevice, e v1alpha1.LedgerEntry) bool {
	if d.DeletionTimestamp.IsZero() {
		return false
	}
	has := d.Status.Placement
	moves := e.Placement != nil && (has == nil || has.Node != e.Placement.Node)
	return moves || e.Answer != nil && !equality.Semantic.DeepEqual(e.Answer, answered(d))
}

// says reports that a device has the placement and the answer of an entry.
func says(d *v1alpha1.GPUDevice, e v1alpha1.LedgerEntry) bool {
	return equality.Semantic.DeepEqual(d.Status.Placement, e.Placement) && equality.Semantic.DeepEqual(answered(d), e.Answer)
}

func answered(d *v1alpha1.GPUDevice) *v1alpha1.BindAnswer {
	if d.Status.BindRequest == nil {
		return nil
	}
	return d.Status.BindRequest.Answer
}
