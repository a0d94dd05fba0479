package v1alpha1_test

import (
	"testing"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
)

// TestConditionsSayTheTable: DeviceState's table has no pending device that a VMI uses.
func TestConditionsSayTheTable(t *testing.T) {
	s := v1alpha1.GPUDeviceStatus{Attachment: &v1alpha1.Attachment{VMIName: "v", VMIUID: "u"}}
	if got := s.Attached(); s.Derive() == v1alpha1.DevicePending && got.Reason != v1alpha1.ReasonUnused && got.Reason != v1alpha1.ReasonStarting {
		t.Errorf("a pending device is %s", got.Reason)
	}
}
