package v1alpha1_test

import (
	"strings"
	"testing"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
)

// TestLedgerTakesNothingThatTheAPIServerRefuses: an entry that cannot be written can never
// be settled, and nothing is swapped before all are.
func TestLedgerTakesNothingThatTheAPIServerRefuses(t *testing.T) {
	for name, rest := range map[string]string{
		"node of 254 characters":      strings.Replace(placed, "worker-7", strings.Repeat("w", 254), 1),
		"resource name of 309":        strings.Replace(placed, "nvidia.com/A", strings.Repeat("r", 309), 1),
		"refusal without code":        placed + `,"answer":{"answeredAt":"2026-11-30T12:00:00.000001Z","refusal":{"code":"","message":"no"}}`,
		"refusal with another code":   placed + `,"answer":{"answeredAt":"2026-11-30T12:00:00.000001Z","refusal":{"code":"no","message":"no"}}`,
		"refusal without a word":      placed + `,"answer":{"answeredAt":"2026-11-30T12:00:00.000001Z","refusal":{"code":"GPU0501","message":""}}`,
		"refusal of 1,025 characters": placed + `,"answer":{"answeredAt":"2026-11-30T12:00:00.000001Z","refusal":{"code":"GPU0501","message":"` + strings.Repeat("n", 1025) + `"}}`,
		"answer's node of 254":        placed + `,` + strings.Replace(answer, "worker-7", strings.Repeat("w", 254), 1),
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := v1alpha1.DecodeLedger(map[string]string{v1alpha1.LedgerKey: batch(entry("a", "u1", rest))}); err == nil {
				t.Errorf("it is taken: %+v", got)
			}
		})
	}
}

// TestConditionsSayTheTable: DeviceState's table has no pending device that a VMI uses.
func TestConditionsSayTheTable(t *testing.T) {
	s := v1alpha1.GPUDeviceStatus{Attachment: &v1alpha1.Attachment{VMIName: "v", VMIUID: "u"}}
	if got := s.Attached(); s.Derive() == v1alpha1.DevicePending && got.Reason != v1alpha1.ReasonUnused && got.Reason != v1alpha1.ReasonStarting {
		t.Errorf("a pending device is %s", got.Reason)
	}
}
