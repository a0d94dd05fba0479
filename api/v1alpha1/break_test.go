package v1alpha1_test

import (
	"strings"
	"testing"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
)

// TestReferencesHaveOneReading: fields that are not known are errors, and so is one that is
// there twice: of two readers each could take another one.
func TestReferencesHaveOneReading(t *testing.T) {
	for name, text := range map[string]string{
		"capitals":         `{"Devices":["a"]}`,
		"devices twice":    `{"devices":["a"],"devices":["b"]}`,
		"count of another": `{"templates":[{"class":"h200","count":8}],"templates":[{"class":"l40s"}]}`,
		"count twice":      `{"templates":[{"class":"h200","count":8,"count":1}]}`,
		"count null":       `{"templates":[{"class":"h200","count":null}]}`,
		"devices are null": `{"devices":null,"templates":[{"class":"h200"}]}`,
		"two spellings, ſ": `{"devices":["a"],"deviceſ":["b"]}`,
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := v1alpha1.DecodeReferences(text); err == nil {
				t.Errorf("it is taken: %+v", got)
			}
		})
	}
}

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

// TestLedgerKnowsItsFieldsByTheirNames: what EncodeLedger could not have written is not
// taken, nor a field twice in another spelling.
func TestLedgerKnowsItsFieldsByTheirNames(t *testing.T) {
	for name, text := range map[string]string{
		"capitals":        strings.Replace(batch(entry("a", "u1", placed)), `"term"`, `"TERM"`, 1),
		"a long s":        strings.Replace(batch(entry("a", "u1", placed)), `"sequence"`, `"sequence":4711,"ſequence"`, 1),
		"long s, version": strings.Replace(batch(entry("a", "u1", placed)), `"resourceVersion"`, `"resourceVersion":"1","reſourceVersion"`, 1),
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := v1alpha1.DecodeLedger(map[string]string{v1alpha1.LedgerKey: text}); err == nil {
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
