package v1alpha1_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
)

// The table in the comment of DeviceState.
func TestDeviceStates(t *testing.T) {
	now := metav1.NewMicroTime(time.Unix(1, 0))
	placed := &v1alpha1.Placement{Node: "n1"}
	lost := &v1alpha1.Placement{Node: "n1", LostSince: &now}
	taken := &v1alpha1.Attachment{VMIName: "vm1", RequestID: "r1"}
	claimed := &v1alpha1.Attachment{VMIName: "vm1", RequestID: "r1", VMIUID: "u1"}
	asked := func(id string, answer *v1alpha1.BindAnswer) *v1alpha1.BindRequest {
		return &v1alpha1.BindRequest{RequestID: id, Answer: answer}
	}
	answered := asked("r1", &v1alpha1.BindAnswer{Node: "n1"})
	for name, tc := range map[string]struct {
		facts                 v1alpha1.GPUDeviceStatus
		want                  v1alpha1.DeviceState
		held, attached        string // status and reason of the conditions
		wantHolds, wantInUsed bool
	}{
		"ordered":                        {facts: v1alpha1.GPUDeviceStatus{}, want: "Pending", held: "False NoUnits", attached: "False Unused"},
		"ordered, a VM starts":           {facts: v1alpha1.GPUDeviceStatus{Attachment: taken, BindRequest: asked("r1", nil)}, want: "Pending", held: "False NoUnits", attached: "False Starting"},
		"ordered, a VMI has claimed it":  {facts: v1alpha1.GPUDeviceStatus{Attachment: claimed, BindRequest: asked("r1", nil)}, want: "Pending", held: "False NoUnits", attached: "False Starting", wantInUsed: true},
		"reserved":                       {facts: v1alpha1.GPUDeviceStatus{Placement: placed}, want: "Held", held: "True Reserved", attached: "False Unused", wantHolds: true},
		"reserved, a VM starts":          {facts: v1alpha1.GPUDeviceStatus{Placement: placed, Attachment: taken, BindRequest: asked("r1", nil)}, want: "Held", held: "True Reserved", attached: "False Starting", wantHolds: true},
		"reserved, the start is refused": {facts: v1alpha1.GPUDeviceStatus{Placement: placed, Attachment: taken, BindRequest: asked("r1", &v1alpha1.BindAnswer{Refusal: &v1alpha1.Refusal{Code: "GPU0501"}})}, want: "Held", held: "True Reserved", attached: "False Starting", wantHolds: true},
		"answered for another node":      {facts: v1alpha1.GPUDeviceStatus{Placement: placed, Attachment: taken, BindRequest: asked("r1", &v1alpha1.BindAnswer{Node: "n2"})}, want: "Held", held: "True Reserved", attached: "False Starting", wantHolds: true},
		"answered to an earlier request": {facts: v1alpha1.GPUDeviceStatus{Placement: placed, Attachment: taken, BindRequest: asked("r0", &v1alpha1.BindAnswer{Node: "n1"})}, want: "Held", held: "True Reserved", attached: "False Starting", wantHolds: true},
		"answered":                       {facts: v1alpha1.GPUDeviceStatus{Placement: placed, Attachment: taken, BindRequest: answered}, want: "Bound", held: "True Reserved", attached: "False Starting", wantHolds: true},
		"claimed":                        {facts: v1alpha1.GPUDeviceStatus{Placement: placed, Attachment: claimed, BindRequest: answered}, want: "Attached", held: "True Reserved", attached: "True InUse", wantHolds: true, wantInUsed: true},
		"stopped":                        {facts: v1alpha1.GPUDeviceStatus{Placement: placed, BindRequest: answered}, want: "Held", held: "True Reserved", attached: "False Unused", wantHolds: true},
		"lost":                           {facts: v1alpha1.GPUDeviceStatus{Placement: lost}, want: "Lost", held: "False Lost", attached: "False Unused"},
		"lost while a VM starts":         {facts: v1alpha1.GPUDeviceStatus{Placement: lost, Attachment: taken, BindRequest: answered}, want: "Lost", held: "False Lost", attached: "False Starting"},
		"lost under a VM":                {facts: v1alpha1.GPUDeviceStatus{Placement: lost, Attachment: claimed, BindRequest: answered}, want: "Lost", held: "False Lost", attached: "True InUse", wantInUsed: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := tc.facts
			held, attached := s.Held(v1alpha1.ReasonNoUnits, "why"), s.Attached()
			got := []any{s.Derive(), held.Type, string(held.Status) + " " + held.Reason, held.Message, attached.Type, string(attached.Status) + " " + attached.Reason, s.HoldsUnits(), s.InUse()}
			want := []any{tc.want, "Held", tc.held, "why", "Attached", tc.attached, tc.wantHolds, tc.wantInUsed}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("state (-want +got):\n%s", diff)
			}
		})
	}
}

func TestUsageRecordName(t *testing.T) {
	base := func() v1alpha1.GPUUsageRecordSpec {
		return v1alpha1.GPUUsageRecordSpec{
			Tenant:   v1alpha1.Tenant{Name: "acme", UID: "0b6f3f2c-7d1a-4c1e-9b1d-2a2f6a3f9f10"},
			Consumer: v1alpha1.Consumer{Kind: v1alpha1.ConsumerPod, Name: "p", UID: "9f2b1c7e-0d53-4b0a-8a6e-5d1f0e7c4b21"},
			Node:     "n1", ResourceName: "nvidia.com/A", Units: 1, Start: metav1.NewMicroTime(time.UnixMicro(1)),
		}
	}
	first := base()
	name := v1alpha1.UsageRecordName(&first)
	if want := "0b6f3f2c-7d1a-4c1e-9b1d-2a2f6a3f9f10-"; len(name) != 61 || name[:37] != want {
		t.Errorf("%s has %d characters", name, len(name))
	}
	end := metav1.NewMicroTime(time.UnixMicro(2))
	for title, tc := range map[string]struct {
		change func(*v1alpha1.GPUUsageRecordSpec)
		same   bool
	}{
		"closed":                         {func(s *v1alpha1.GPUUsageRecordSpec) { s.End, s.Reason, s.Estimated = &end, v1alpha1.UsageEnded, true }, true},
		"another zone":                   {func(s *v1alpha1.GPUUsageRecordSpec) { s.Start.Time = s.Start.In(time.FixedZone("east", 3600)) }, true},
		"read from JSON":                 {func(s *v1alpha1.GPUUsageRecordSpec) { s.Start.Time = s.Start.Add(999 * time.Nanosecond) }, true},
		"a later start":                  {func(s *v1alpha1.GPUUsageRecordSpec) { s.Start.Time = s.Start.Add(time.Microsecond) }, false},
		"another consumer":               {func(s *v1alpha1.GPUUsageRecordSpec) { s.Consumer.UID = "x" }, false},
		"another resource":               {func(s *v1alpha1.GPUUsageRecordSpec) { s.ResourceName = "nvidia.com/B" }, false},
		"a class called like it":         {func(s *v1alpha1.GPUUsageRecordSpec) { s.ClassName, s.ResourceName = s.ResourceName, "" }, false},
		"another tenant of that name":    {func(s *v1alpha1.GPUUsageRecordSpec) { s.Tenant.UID = "x" }, false},
		"a tenant under another name":    {func(s *v1alpha1.GPUUsageRecordSpec) { s.Tenant.Name = "x" }, true},
		"the first, once more, as it is": {func(*v1alpha1.GPUUsageRecordSpec) {}, true},
	} {
		s := base()
		tc.change(&s)
		if got := v1alpha1.UsageRecordName(&s); (got == name) != tc.same {
			t.Errorf("%s: %s and %s", title, name, got)
		}
	}
}
