package tenant

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestParseKey(t *testing.T) {
	longest := strings.Repeat("a", 63)
	for text, want := range map[string]struct {
		key  Key
		ours bool
		bad  bool
	}{
		"requests.nvidia.com/X": {Key{Resource, "nvidia.com/X"}, true, false},
		"nvidia.com/X":          {Key{Resource, "nvidia.com/X"}, true, false},
		"requests.deviceclass.resource.kubernetes.io/h": {Key{Resource, "deviceclass.resource.kubernetes.io/h"}, true, false},
		"class.gpuctl.dev/h200":                         {Key{Class, "h200"}, true, false},
		"requests.class.gpuctl.dev/h200":                {Key{Class, "h200"}, true, false},
		"gpuctl.dev/gpus":                               {Key{Kind: Total}, true, false},
		"requests.gpuctl.dev/gpus":                      {Key{Kind: Total}, true, false},
		"requests.cpu":                                  {},
		"cpu":                                           {},
		"":                                              {},
		"count/deployments.apps":                        {},
		"gpuctl.dev":                                    {},
		"example.com/":                                  {},
		"gpuctl.dev/gpu":                                {Key{}, true, true},
		"clas.gpuctl.dev/h200":                          {Key{}, true, true},
		"class.gpuctl.dev/":                             {Key{}, true, true},
		"class.gpuctl.dev/a/b":                          {Key{}, true, true},
		"class.gpuctl.dev/H200":                         {Key{}, true, true},
		"class.gpuctl.dev/h_200":                        {Key{}, true, true},
		"class.gpuctl.dev/h200.big":                     {Key{}, true, true},
		"class.gpuctl.dev/-h200":                        {Key{}, true, true},
		"requests.class.gpuctl.dev/H200":                {Key{}, true, true},
		"class.gpuctl.dev/" + longest:                   {Key{Class, longest}, true, false},
		"class.gpuctl.dev/" + longest + "a":             {Key{}, true, true},
		"nvidia.com/":                                   {Key{}, true, true},
		"requests.nvidia.com/X ":                        {Key{}, true, true},
		" nvidia.com/X":                                 {Key{}, true, true},
		"NVIDIA.com/X":                                  {Key{}, true, true},
		"gold.storageclass.storage.k8s.io/requests.disk": {Key{Resource, "gold.storageclass.storage.k8s.io/requests.disk"}, true, false},
	} {
		key, ours, err := ParseKey(text)
		if key != want.key || ours != want.ours || (err != nil) != want.bad {
			t.Errorf("ParseKey(%q) = %v, %v, %v; want %v", text, key, ours, err, want)
		}
	}
}

func TestReadUnits(t *testing.T) {
	for text, want := range map[string]struct {
		units  int64
		reason Reason
	}{
		"8": {units: 8}, "8000m": {units: 8}, "8.0": {units: 8}, "8e0": {units: 8}, "+8": {units: 8}, "1k": {units: 1000}, "1Ki": {units: 1024},
		"0": {}, "-0": {}, "1E": {units: 1e18}, "9223372036854775807": {units: 1<<63 - 1},
		"1.5": {reason: BudgetFractional}, "1500m": {reason: BudgetFractional}, "0.0000000001": {reason: BudgetFractional},
		"-1": {reason: BudgetNegative}, "-0.5": {reason: BudgetNegative}, "-10E": {reason: BudgetNegative},
		"10E": {reason: BudgetTooLarge}, "9223372036854775808": {reason: BudgetTooLarge}, "1e30": {reason: BudgetTooLarge},
		"": {reason: BudgetUnreadable}, "many": {reason: BudgetUnreadable}, "8 ": {reason: BudgetUnreadable}, "8gpus": {reason: BudgetUnreadable},
		"unlimited": {reason: BudgetUnreadable}, "0x8": {reason: BudgetUnreadable}, "1_000": {reason: BudgetUnreadable},
		"1e2147483648": {reason: BudgetUnreadable}, "1e-2147483648": {reason: BudgetUnreadable},
		"00000000000000000000000000000000000000000000000000000000000000008": {reason: BudgetUnreadable},
	} {
		units, fault := readUnits(text)
		var reason Reason
		if fault != nil {
			reason = fault.Reason
		}
		if units != want.units || reason != want.reason {
			t.Errorf("readUnits(%q) = %d, %q; want %d, %q", text, units, reason, want.units, want.reason)
		}
	}
}

// TestReadLimits has what counts of several declarations, in any order of them.
func TestReadLimits(t *testing.T) {
	for story, tc := range map[string]struct {
		declared []Declaration
		want     string
	}{
		"the smallest, and of equals the first source": {
			[]Declaration{{"q2", "gpuctl.dev/gpus", "3"}, {"q1", "requests.gpuctl.dev/gpus", "3"}, {"q0", "gpuctl.dev/gpus", "4"}},
			"gpuctl.dev/gpus=3 of q1 <nil>;",
		},
		"by kind, then by name": {
			[]Declaration{{"q", "gpuctl.dev/gpus", "1"}, {"q", "class.gpuctl.dev/a", "2"}, {"q", "nvidia.com/B", "3"}, {"q", "nvidia.com/A", "4"}},
			"nvidia.com/A=4 of q <nil>;nvidia.com/B=3 of q <nil>;class.gpuctl.dev/a=2 of q <nil>;gpuctl.dev/gpus=1 of q <nil>;",
		},
		"one that cannot be read makes its key unreadable": {
			[]Declaration{{"q1", "amd.com/gpu", "0"}, {"q2", "amd.com/gpu", "-1"}},
			`amd.com/gpu=0 of q2 &{BudgetNegative q2: amd.com/gpu: quantity "-1" is negative};`,
		},
		"of two that cannot be read the first source is told": {
			[]Declaration{{"q1", "amd.com/gpu", "-1"}, {"q2", "amd.com/gpu", "-2"}},
			`amd.com/gpu=0 of q1 &{BudgetNegative q1: amd.com/gpu: quantity "-1" is negative};`,
		},
		"of two that refuse the first source is told": {
			[]Declaration{{"q2", "gpuctl.dev/gpus", "-2"}, {"q1", "nvidia.com/A", "-1"}},
			`refused: q1: nvidia.com/A: quantity "-1" is negative`,
		},
	} {
		t.Run(story, func(t *testing.T) {
			for _, declared := range [][]Declaration{tc.declared, reversed(tc.declared)} {
				limits, fault := readLimits(declared)
				got := ""
				for _, l := range limits {
					got += fmt.Sprintf("%s=%d of %s %v;", l.Key, l.Units, l.Source, l.fault)
				}
				if fault != nil {
					got = "refused: " + fault.Detail
				}
				if got != tc.want {
					t.Errorf("got  %s\nwant %s", got, tc.want)
				}
			}
		})
	}
}

func reversed[T any](list []T) []T {
	out := slices.Clone(list)
	slices.Reverse(out)
	return out
}

func FuzzBudget(f *testing.F) {
	for _, seed := range [][2]string{
		{"requests.nvidia.com/X", "8"},
		{"class.gpuctl.dev/h200", "1.5"},
		{"gpuctl.dev/gpus", "1e999"},
		{"a.b/c", "-0.0000000001Ki"},
		{"gpuctl.dev/gpus", "1e2147483648"},
		{"gpuctl.dev/gpus", "9223372036854775808"},
		{"nvidia.com/ ", "10E"},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, key, text string) {
		start := time.Now()
		limits, fault := readLimits([]Declaration{{"s", key, text}})
		if took := time.Since(start); took > time.Second {
			t.Errorf("%q: %q took %s", key, text, took)
		}
		k, ours, err := ParseKey(key)
		units, bad := readUnits(text)
		switch {
		case !ours && (len(limits) > 0 || fault != nil):
			t.Errorf("%q is not ours and limits", key)
		case ours && len(limits) == 0 && fault == nil:
			t.Errorf("%q: %q is ours and neither limits nor refuses", key, text)
		case bad == nil && units < 0:
			t.Errorf("%q is %d units", text, units)
		case len(limits) == 1 && limits[0].fault == nil && limits[0].Units != units:
			t.Errorf("%q: %q limits to %d, not %d", key, text, limits[0].Units, units)
		}
		if ours && err == nil {
			if again, ok, err := ParseKey(k.String()); again != k || !ok || err != nil {
				t.Errorf("%q reads as %v, which reads back as %v, %v, %v", key, k, again, ok, err)
			}
		}
	})
}
