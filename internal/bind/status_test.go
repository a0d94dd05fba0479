package bind

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
)

const id = "0123456789abcdef0123456789abcdef"

var (
	decided = metav1.NewMicroTime(time.Date(2026, 11, 30, 12, 0, 9, 999999000, time.UTC))
	early   = metav1.NewMicroTime(time.Date(2026, 11, 29, 12, 0, 0, 1000, time.UTC))
	on1     = &v1alpha1.Placement{Node: "n1", ResourceName: "nvidia.com/A", Units: 1, Since: early}
	on2     = &v1alpha1.Placement{Node: "n2", ResourceName: "nvidia.com/A", Units: 1, Since: decided}
	lost1   = &v1alpha1.Placement{Node: "n1", ResourceName: "nvidia.com/A", Units: 1, Since: early, LostSince: &decided}
	start   = &v1alpha1.Attachment{VMIName: "vm1", RequestID: id, Since: early}
	claim   = &v1alpha1.Attachment{VMIName: "vm1", VMIUID: "u1", RequestID: id, Since: early}
	node1   = &v1alpha1.BindAnswer{AnsweredAt: decided, Node: "n1"}
	order   = &v1alpha1.Origin{Kind: v1alpha1.OriginOrder}
)

func asks(a *v1alpha1.BindAnswer) *v1alpha1.BindRequest {
	return &v1alpha1.BindRequest{RequestID: id, RequestedAt: early, Devices: 1, Answer: a}
}

// since returns a condition.
func since(at metav1.MicroTime, kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(at.Time).Rfc3339Copy()}
}

func conditions(c ...metav1.Condition) []metav1.Condition { return c }

func TestDerive(t *testing.T) {
	const (
		yes, no        = metav1.ConditionTrue, metav1.ConditionFalse
		held, attached = v1alpha1.ConditionHeld, v1alpha1.ConditionAttached
	)
	template := &v1alpha1.Origin{Kind: v1alpha1.OriginTemplate, VM: &v1alpha1.VMReference{Name: "vm1", UID: "v1"}}
	reserved := since(early, held, yes, "Reserved", "")
	other := since(early, "Other", yes, "Other", "stays")
	for name, tc := range map[string]struct {
		live  v1alpha1.GPUDeviceStatus
		entry v1alpha1.LedgerEntry
		want  v1alpha1.GPUDeviceStatus
	}{
		"an order is placed": {
			entry: v1alpha1.LedgerEntry{Placement: on1},
			want: v1alpha1.GPUDeviceStatus{State: "Held", Origin: order, Placement: on1, Conditions: conditions(
				since(decided, held, yes, "Reserved", ""), since(decided, attached, no, "Unused", ""))},
		},
		"one that waited is placed": {
			live: v1alpha1.GPUDeviceStatus{State: "Pending", Origin: order, Conditions: conditions(
				other, since(early, attached, no, "Unused", ""), since(early, held, no, "NoUnits", "n1 is full"))},
			entry: v1alpha1.LedgerEntry{Placement: on1},
			want: v1alpha1.GPUDeviceStatus{State: "Held", Origin: order, Placement: on1, Conditions: conditions(
				other, since(early, attached, no, "Unused", ""), since(decided, held, yes, "Reserved", ""))},
		},
		"a template device is placed for its start": {
			live:  v1alpha1.GPUDeviceStatus{State: "Pending", Origin: template, Attachment: start, BindRequest: asks(nil)},
			entry: v1alpha1.LedgerEntry{Placement: on1, Answer: node1},
			want: v1alpha1.GPUDeviceStatus{State: "Bound", Origin: template, Placement: on1, Attachment: start, BindRequest: asks(node1), Conditions: conditions(
				since(decided, held, yes, "Reserved", ""), since(decided, attached, no, "Starting", "for VMI vm1"))},
		},
		"a reservation moves, held all the time": {
			live: v1alpha1.GPUDeviceStatus{State: "Held", Origin: order, Placement: on1, Conditions: conditions(
				reserved, since(early, attached, no, "Unused", ""))},
			entry: v1alpha1.LedgerEntry{Placement: on2},
			want: v1alpha1.GPUDeviceStatus{State: "Held", Origin: order, Placement: on2, Conditions: conditions(
				reserved, since(early, attached, no, "Unused", ""))},
		},
		"an answer that is to go, goes": {
			live:  v1alpha1.GPUDeviceStatus{State: "Bound", Origin: order, Placement: on1, Attachment: start, BindRequest: asks(node1), Conditions: conditions(reserved)},
			entry: v1alpha1.LedgerEntry{Placement: on1},
			want: v1alpha1.GPUDeviceStatus{State: "Held", Origin: order, Placement: on1, Attachment: start, BindRequest: asks(nil), Conditions: conditions(
				reserved, since(decided, attached, no, "Starting", "for VMI vm1"))},
		},
		"units are lost under a VM": {
			live: v1alpha1.GPUDeviceStatus{State: "Attached", Origin: order, Placement: on1, Attachment: claim, BindRequest: asks(node1), Conditions: conditions(
				reserved, since(early, attached, yes, "InUse", "by VMI vm1"))},
			entry: v1alpha1.LedgerEntry{Placement: lost1, Answer: node1},
			want: v1alpha1.GPUDeviceStatus{State: "Lost", Origin: order, Placement: lost1, Attachment: claim, BindRequest: asks(node1), Conditions: conditions(
				since(decided, held, no, "Lost", "node n1 no longer serves its units"), since(early, attached, yes, "InUse", "by VMI vm1"))},
		},
		"lost units heal when it was decided": {
			live:  v1alpha1.GPUDeviceStatus{State: "Lost", Origin: order, Placement: lost1, Conditions: conditions(since(early, held, no, "Lost", ""))},
			entry: v1alpha1.LedgerEntry{Placement: on1},
			want: v1alpha1.GPUDeviceStatus{State: "Held", Origin: order, Placement: on1, Conditions: conditions(
				since(decided, held, yes, "Reserved", ""), since(decided, attached, no, "Unused", ""))},
		},
		"a lost device waits again": {
			live:  v1alpha1.GPUDeviceStatus{State: "Lost", Origin: order, Placement: lost1, Conditions: conditions(since(early, held, no, "Lost", "n1 serves fewer"))},
			entry: v1alpha1.LedgerEntry{},
			want: v1alpha1.GPUDeviceStatus{State: "Pending", Origin: order, Conditions: conditions(
				since(early, held, no, "NoUnits", "it waits for units"), since(decided, attached, no, "Unused", ""))},
		},
		"what waits keeps its reason": {
			live:  v1alpha1.GPUDeviceStatus{State: "Pending", Origin: order, Conditions: conditions(since(early, held, no, "OverBudget", "GPU0611"))},
			entry: v1alpha1.LedgerEntry{},
			want: v1alpha1.GPUDeviceStatus{State: "Pending", Origin: order, Conditions: conditions(
				since(early, held, no, "OverBudget", "GPU0611"), since(decided, attached, no, "Unused", ""))},
		},
		"an answer without a question is left out": {
			live:  v1alpha1.GPUDeviceStatus{Origin: order, Placement: on1},
			entry: v1alpha1.LedgerEntry{Placement: on1, Answer: node1},
			want: v1alpha1.GPUDeviceStatus{State: "Held", Origin: order, Placement: on1, Conditions: conditions(
				since(decided, held, yes, "Reserved", ""), since(decided, attached, no, "Unused", ""))},
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := &v1alpha1.GPUDevice{Status: tc.live}
			before := d.DeepCopy()
			got := derive(d, tc.entry, decided)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, d); diff != "" {
				t.Errorf("the device was changed:\n%s", diff)
			}
			written := &v1alpha1.GPUDevice{Status: got}
			if diff := cmp.Diff(got, derive(written, tc.entry, metav1.NewMicroTime(decided.Add(time.Hour)))); diff != "" {
				t.Errorf("written twice, it changes:\n%s", diff)
			}
		})
	}
}

func TestPermitted(t *testing.T) {
	finalizers := []string{v1alpha1.FinalizerUnits}
	labels := map[string]string{v1alpha1.LabelTemplateDevice: v1alpha1.ValueTrue}
	device := func(m metav1.ObjectMeta, s v1alpha1.GPUDeviceStatus) *v1alpha1.GPUDevice {
		return &v1alpha1.GPUDevice{ObjectMeta: m, Status: s}
	}
	for name, tc := range map[string]struct {
		device *v1alpha1.GPUDevice
		entry  v1alpha1.LedgerEntry
		wrong  string
	}{
		"first placement": {device: device(metav1.ObjectMeta{Finalizers: finalizers}, v1alpha1.GPUDeviceStatus{}), entry: v1alpha1.LedgerEntry{Placement: on1}},
		"template device with origin": {
			device: device(metav1.ObjectMeta{Finalizers: finalizers, Labels: labels}, v1alpha1.GPUDeviceStatus{Origin: order}),
			entry:  v1alpha1.LedgerEntry{Placement: on1},
		},
		"lost, then nowhere":             {device: device(metav1.ObjectMeta{}, v1alpha1.GPUDeviceStatus{Placement: lost1})},
		"lost without the finalizer":     {device: device(metav1.ObjectMeta{}, v1alpha1.GPUDeviceStatus{Placement: on1}), entry: v1alpha1.LedgerEntry{Placement: lost1}},
		"answered":                       {device: device(metav1.ObjectMeta{}, v1alpha1.GPUDeviceStatus{Placement: on1, BindRequest: asks(nil)}), entry: v1alpha1.LedgerEntry{Placement: on1, Answer: node1}},
		"template device without origin": {device: device(metav1.ObjectMeta{Finalizers: finalizers, Labels: labels}, v1alpha1.GPUDeviceStatus{}), entry: v1alpha1.LedgerEntry{Placement: on1}, wrong: "status.origin: a template device without it is its webhook's alone: leave it out"},
		"answer without a question":      {device: device(metav1.ObjectMeta{}, v1alpha1.GPUDeviceStatus{Placement: on1}), entry: v1alpha1.LedgerEntry{Placement: on1, Answer: node1}, wrong: "status.bindRequest: it has none that could be answered: leave the answer out"},
		"held, then nowhere":             {device: device(metav1.ObjectMeta{}, v1alpha1.GPUDeviceStatus{Placement: on1}), wrong: "status.placement: its units are not lost: they are taken away only after lostSince was written"},
		"no finalizer":                   {device: device(metav1.ObjectMeta{}, v1alpha1.GPUDeviceStatus{}), entry: v1alpha1.LedgerEntry{Placement: on1}, wrong: "metadata.finalizers: gpuctl.dev/units is missing: write it before the first placement"},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if err := permitted(tc.device, tc.entry); err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(tc.wrong, got); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}

// A device that is being deleted gets nothing new. What it has is looked after.
func TestTooLate(t *testing.T) {
	now := metav1.Now()
	for name, tc := range map[string]struct {
		live  v1alpha1.GPUDeviceStatus
		entry v1alpha1.LedgerEntry
		alive bool
		want  bool
	}{
		"placed":             {entry: v1alpha1.LedgerEntry{Placement: on1}, want: true},
		"placed while alive": {entry: v1alpha1.LedgerEntry{Placement: on1}, alive: true},
		"moved":              {live: v1alpha1.GPUDeviceStatus{Placement: on1}, entry: v1alpha1.LedgerEntry{Placement: on2}, want: true},
		"answered":           {live: v1alpha1.GPUDeviceStatus{Placement: on1, BindRequest: asks(nil)}, entry: v1alpha1.LedgerEntry{Placement: on1, Answer: node1}, want: true},
		"lost":               {live: v1alpha1.GPUDeviceStatus{Placement: on1, BindRequest: asks(node1)}, entry: v1alpha1.LedgerEntry{Placement: lost1, Answer: node1}},
		"healed":             {live: v1alpha1.GPUDeviceStatus{Placement: lost1}, entry: v1alpha1.LedgerEntry{Placement: on1}},
	} {
		t.Run(name, func(t *testing.T) {
			d := &v1alpha1.GPUDevice{Status: tc.live}
			if !tc.alive {
				d.DeletionTimestamp = &now
			}
			if got := tooLate(d, tc.entry); got != tc.want {
				t.Errorf("too late: %v, want %v", got, tc.want)
			}
		})
	}
}
