package tenant

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

func gpus(class string, units int64) gpu.Amount {
	return gpu.Amount{Resource: h200, Class: class, Units: units}
}

// family is two siblings below acme, which is below root.
func family(quotas ...Quota) *Tree {
	return Build(below("a<acme", "b<acme", "acme<root", "root", "other"), Labels(quotas, false), everyone)
}

func TestCheck(t *testing.T) {
	name := string(h200)
	for story, tc := range map[string]struct {
		quotas  []Quota
		use     map[string][]gpu.Amount
		asks    []gpu.Amount
		want    string // what the operator reads; "" when it is allowed
		tenant  string
		missing int64
	}{
		"a level without a key does not limit": {
			quotas: []Quota{quota("a", "class.gpuctl.dev/other=0", "requests.nvidia.com/OTHER=0")},
			asks:   []gpu.Amount{gpus("h200", 100)},
		},
		"what a budget leaves is allowed": {
			quotas: []Quota{quota("a", "requests."+name+"=4", "class.gpuctl.dev/h200=4", "gpuctl.dev/gpus=4")},
			use:    map[string][]gpu.Amount{"a": {gpus("h200", 2)}},
			asks:   []gpu.Amount{gpus("h200", 2)},
		},
		"one more is not": {
			quotas:  []Quota{quota("a", "requests."+name+"=4")},
			use:     map[string][]gpu.Amount{"a": {gpus("h200", 2)}},
			asks:    []gpu.Amount{gpus("h200", 3)},
			want:    `namespace "a": a has 1 too few of ` + name + ` (a ` + name + `: limit 4, in use 2, asked for 3)`,
			tenant:  `the budget of a does not allow 3 more of ` + name + `; 2 left for a`,
			missing: 1,
		},
		"an ancestor's budget caps the whole subtree": {
			quotas:  []Quota{quota("a", "gpuctl.dev/gpus=100"), quota("acme", "gpuctl.dev/gpus=8")},
			use:     map[string][]gpu.Amount{"a": {gpus("h200", 1)}, "b": {gpus("h200", 4), gpus("", 1)}, "acme": {gpus("", 1)}, "other": {gpus("", 50)}},
			asks:    []gpu.Amount{gpus("h200", 2)},
			want:    `namespace "a": acme has 1 too few of gpuctl.dev/gpus (a gpuctl.dev/gpus: limit 100, in use 1, asked for 2; acme gpuctl.dev/gpus: limit 8, in use 7, asked for 2)`,
			tenant:  `the budget of acme does not allow 2 more of gpuctl.dev/gpus; 1 left for a`,
			missing: 1,
		},
		"it is a cap, not an addition": {
			quotas:  []Quota{quota("a", "gpuctl.dev/gpus=2"), quota("acme", "gpuctl.dev/gpus=8")},
			asks:    []gpu.Amount{gpus("", 3)},
			want:    `namespace "a": a has 1 too few of gpuctl.dev/gpus (a gpuctl.dev/gpus: limit 2, in use 0, asked for 3; acme gpuctl.dev/gpus: limit 8, in use 0, asked for 3)`,
			tenant:  `the budget of a does not allow 3 more of gpuctl.dev/gpus; 2 left for a`,
			missing: 1,
		},
		"what is left for a tenant is what all levels leave": {
			quotas:  []Quota{quota("a", "gpuctl.dev/gpus=5"), quota("root", "gpuctl.dev/gpus=8")},
			use:     map[string][]gpu.Amount{"root": {gpus("", 7)}},
			asks:    []gpu.Amount{gpus("", 6)},
			want:    `namespace "a": a has 1 too few of gpuctl.dev/gpus (a gpuctl.dev/gpus: limit 5, in use 0, asked for 6; root gpuctl.dev/gpus: limit 8, in use 7, asked for 6)`,
			tenant:  `the budget of a does not allow 6 more of gpuctl.dev/gpus; 1 left for a`,
			missing: 1,
		},
		"a budget that was lowered below its use leaves nothing": {
			quotas:  []Quota{quota("acme", "class.gpuctl.dev/h200=1")},
			use:     map[string][]gpu.Amount{"b": {gpus("h200", 4)}},
			asks:    []gpu.Amount{gpus("h200", 1)},
			want:    `namespace "a": acme has 4 too few of class.gpuctl.dev/h200 (acme class.gpuctl.dev/h200: limit 1, in use 4, asked for 1)`,
			tenant:  `the budget of acme does not allow 1 more of class.gpuctl.dev/h200; 0 left for a`,
			missing: 4,
		},
		"units taken by resource name count for no class": {
			quotas: []Quota{quota("a", "class.gpuctl.dev/h200=2", "requests."+name+"=9")},
			use:    map[string][]gpu.Amount{"a": {gpus("", 7)}},
			asks:   []gpu.Amount{gpus("h200", 2)},
		},
		"the asks of a set count together": {
			quotas:  []Quota{quota("a", "gpuctl.dev/gpus=4")},
			asks:    []gpu.Amount{gpus("h200", 2), {Resource: "nvidia.com/B", Class: "b", Units: 3}},
			want:    `namespace "a": a has 1 too few of gpuctl.dev/gpus (a gpuctl.dev/gpus: limit 4, in use 0, asked for 5)`,
			tenant:  `the budget of a does not allow 5 more of gpuctl.dev/gpus; 4 left for a`,
			missing: 1,
		},
		"a budget that cannot be read refuses": {
			quotas: []Quota{quota("acme", "gpuctl.dev/gpus=-7")},
			asks:   []gpu.Amount{gpus("h200", 1)},
			want:   `namespace "a" is refused, as everything below "acme": ResourceQuota acme/gpus: gpuctl.dev/gpus: quantity "-7" is negative`,
			tenant: `the GPU budget of acme cannot be read; ask whoever administers it`,
		},
		"another vendor's refuses those who ask for it": {
			quotas: []Quota{quota("acme", "requests.amd.com/gpu=1.5")},
			asks:   []gpu.Amount{{Resource: "amd.com/gpu", Units: 1}},
			want:   `namespace "a" is refused, as everything below "acme": ResourceQuota acme/gpus: requests.amd.com/gpu: quantity "1.5" is no whole number`,
			tenant: `the GPU budget of acme cannot be read; ask whoever administers it`,
		},
		"another vendor's has no arithmetic": {
			quotas:  []Quota{quota("a", "requests.amd.com/gpu=1"), quota("acme", "requests.amd.com/gpu=1.5")},
			asks:    []gpu.Amount{{Resource: "amd.com/gpu", Units: 2}},
			want:    `namespace "a": a has 1 too few of amd.com/gpu (a amd.com/gpu: limit 1, in use 0, asked for 2)`,
			tenant:  `the budget of a does not allow 2 more of amd.com/gpu; 0 left for a`,
			missing: 1,
		},
		"another vendor's leaves others alone": {
			quotas: []Quota{quota("acme", "requests.amd.com/gpu=1.5")},
			asks:   []gpu.Amount{gpus("h200", 1)},
		},
		"without asks": {quotas: []Quota{quota("a", "gpuctl.dev/gpus=0")}},
		"no units": {
			asks:   []gpu.Amount{gpus("h200", 2), gpus("h200", -1)},
			want:   `namespace "a" is refused: -1 units of "` + name + `" cannot be asked for`,
			tenant: `-1 units of "` + name + `" cannot be asked for`,
		},
		"no resource name": {
			asks:   []gpu.Amount{{Class: "h200", Units: 1}},
			want:   `namespace "a" is refused: 1 units of "" cannot be asked for`,
			tenant: `1 units of "" cannot be asked for`,
		},
		"more than can be counted": {
			quotas:  []Quota{quota("a", "gpuctl.dev/gpus=9223372036854775807")},
			use:     map[string][]gpu.Amount{"a": {gpus("", math.MaxInt64), gpus("", math.MaxInt64)}},
			asks:    []gpu.Amount{gpus("", math.MaxInt64), gpus("", 1)},
			want:    `namespace "a": a has 0 too few of gpuctl.dev/gpus (a gpuctl.dev/gpus: limit 9223372036854775807, in use 9223372036854775807, asked for 9223372036854775807)`,
			tenant:  `the budget of a does not allow 9223372036854775807 more of gpuctl.dev/gpus; 0 left for a`,
			missing: 0,
		},
	} {
		t.Run(story, func(t *testing.T) {
			use, unknown := family(tc.quotas...).Sum(tc.use)
			if len(unknown) > 0 {
				t.Errorf("unknown namespaces %q", unknown)
			}
			err := use.Check("a", tc.asks...)
			var shortage *Shortage
			var refusal *Refusal
			operator, tenant, missing := "", "", int64(0)
			switch {
			case errors.As(err, &shortage):
				operator, tenant, missing = err.Error(), shortage.ForTenant(), shortage.Missing()
			case errors.As(err, &refusal):
				operator, tenant = err.Error(), refusal.ForTenant()
			case err != nil:
				t.Fatal(err)
			}
			if diff := cmp.Diff([]any{tc.want, tc.tenant, tc.missing}, []any{operator, tenant, missing}); diff != "" {
				t.Errorf("operator, tenant, missing (-want +got):\n%s", diff)
			}
		})
	}
}

// TestTenantReadsNothingOfOthers looks for the numbers and names that belong to
// siblings and to levels above in what a tenant reads.
func TestTenantReadsNothingOfOthers(t *testing.T) {
	use, _ := family(quota("acme", "gpuctl.dev/gpus=777"), quota("root", "gpuctl.dev/gpus=888", "class.gpuctl.dev/h200=999")).
		Sum(map[string][]gpu.Amount{"b": {gpus("h200", 555)}, "root": {gpus("h200", 111)}})
	var shortage *Shortage
	if !errors.As(use.Check("a", gpus("h200", 334)), &shortage) {
		t.Fatal("no shortage")
	}
	for _, secret := range []string{"777", "888", "999", "555", "666", "111", `"b"`, "ResourceQuota"} {
		if strings.Contains(shortage.ForTenant(), secret) {
			t.Errorf("%q tells %s", shortage.ForTenant(), secret)
		}
	}
	if got := len(shortage.Steps); got != 3 {
		t.Errorf("the operator reads %d steps, want 3", got)
	}
	if shortage.left != 222 {
		t.Errorf("%d left, want 222", shortage.left)
	}
	for _, reason := range []Reason{
		UnknownNamespace, Terminating, Cycle, MissingParent, Contradiction, TreeUnreadable, NoRelease,
		BudgetUnreadable, BudgetNegative, BudgetFractional, BudgetTooLarge,
	} {
		r := &Refusal{Namespace: "a", Level: "acme", Fault: Fault{Reason: reason, Detail: "secret"}}
		if got := r.ForTenant(); strings.Contains(got, "secret") || !strings.Contains(got, "acme") && reason != UnknownNamespace {
			t.Errorf("%s: the tenant reads %q", reason, got)
		}
	}
}

func TestUseOfWhatIsRefusedCounts(t *testing.T) {
	namespaces := []Namespace{
		hncBelow("top"), hncBelow("left", "top"), hncBelow("right", "top"),
		with(hncBelow("torn", "left", "top"), ParentLabel, "right"), with(hncBelow("under"), ParentLabel, "torn"),
		hncBelow("broken", "left", "top"), with(hncBelow("x"), ParentLabel, "y"), with(hncBelow("y"), ParentLabel, "x"),
		sub(hncBelow("lost"), "left"), with(hncBelow("gap", "right"), "ghost"+hncTreeSuffix, "5"),
	}
	tree := Build(namespaces, Labels([]Quota{quota("broken", "gpuctl.dev/gpus=x")}, true), everyone)
	use, unknown := tree.Sum(map[string][]gpu.Amount{
		"under": {gpus("", 1)}, "torn": {gpus("", 10)}, "broken": {gpus("", 100)}, "x": {gpus("", 7)}, "nowhere": {gpus("", 1), gpus("", 1)},
		"lost": {gpus("", 1000)}, "gap": {gpus("", 10_000)}, "ghost": {gpus("", 1)},
	})
	got := map[string]int64{}
	for _, level := range []string{"top", "left", "right", "torn", "under", "broken", "x", "y", "nowhere"} {
		got[level] = use.Of(level, Key{Kind: Total})
	}
	want := map[string]int64{"top": 11_111, "left": 1111, "right": 10_011, "torn": 11, "under": 1, "broken": 100, "x": 7, "y": 7, "nowhere": 0}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("use (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"ghost", "nowhere"}, unknown); diff != "" {
		t.Errorf("unknown (-want +got):\n%s", diff)
	}
}

func TestUseOfAGoneCozystackTenantCountsAbove(t *testing.T) {
	releases := []Release{{Namespace: "tenant-root", Name: "tenant-root"}, {Namespace: "tenant-gone", Name: "tenant-x"}}
	tree := Build(below("tenant-root", "tenant-foo", "tenant-gone-x", "default"), Cozystack(releases), everyone)
	use, _ := tree.Sum(map[string][]gpu.Amount{"tenant-foo": {gpus("", 1)}, "tenant-gone-x": {gpus("", 10)}, "default": {gpus("", 100)}})
	if got := use.Of("tenant-root", Key{Kind: Total}); got != 11 {
		t.Errorf("the root has %d, want 11", got)
	}
}

// A budget holds for both names of what a DeviceClass gives out, whichever it is
// written under, and whichever is in use and asked for.
func TestWithBase(t *testing.T) {
	const own gpu.ResourceName = "deviceclass.resource.kubernetes.io/gpu"
	base := func(name gpu.ResourceName) gpu.ResourceName {
		if name == own {
			return h200
		}
		return name
	}
	for story, tc := range map[string]struct {
		quotas    []Quota
		use, asks gpu.ResourceName // 4 in use by b, 4 asked for by a
		want      []string         // the steps of a shortage
		room      Headroom
	}{
		"under its own name": {
			quotas: []Quota{quota("a", "requests."+string(own)+"=2")}, use: h200, asks: h200,
			want: []string{"a deviceclass.resource.kubernetes.io/gpu: limit 2, in use 0, asked for 4"}, room: Headroom{true, 2, "a", Key{Resource, string(own)}},
		},
		"without requests.": {
			quotas: []Quota{quota("a", string(own)+"=2")}, use: h200, asks: h200,
			want: []string{"a deviceclass.resource.kubernetes.io/gpu: limit 2, in use 0, asked for 4"}, room: Headroom{true, 2, "a", Key{Resource, string(own)}},
		},
		"asked for by its own name": {
			quotas: []Quota{quota("acme", "requests."+string(h200)+"=7")}, use: h200, asks: own,
			want: []string{"acme nvidia.com/GH100_H200_SXM_141GB: limit 7, in use 4, asked for 4"}, room: Headroom{true, 3, "acme", Key{Resource, string(h200)}},
		},
		"in use by its own name": {
			quotas: []Quota{quota("acme", "requests."+string(h200)+"=7")}, use: own, asks: h200,
			want: []string{"acme nvidia.com/GH100_H200_SXM_141GB: limit 7, in use 4, asked for 4"}, room: Headroom{true, 3, "acme", Key{Resource, string(h200)}},
		},
		"as much as there is": {
			quotas: []Quota{quota("acme", "requests."+string(own)+"=8", "requests."+string(h200)+"=8")}, use: own, asks: h200,
			room: Headroom{true, 4, "acme", Key{Resource, string(own)}},
		},
		"of both names the smaller": {
			quotas: []Quota{quota("a", "requests."+string(own)+"=9", "requests."+string(h200)+"=3")}, use: own, asks: own,
			want: []string{
				"a deviceclass.resource.kubernetes.io/gpu: limit 9, in use 0, asked for 4",
				"a nvidia.com/GH100_H200_SXM_141GB: limit 3, in use 0, asked for 4",
			},
			room: Headroom{true, 3, "a", Key{Resource, string(h200)}},
		},
		"what is left up the chain": {
			quotas: []Quota{quota("a", "requests."+string(own)+"=3"), quota("acme", "requests."+string(h200)+"=5")}, use: own, asks: h200,
			want: []string{
				"a deviceclass.resource.kubernetes.io/gpu: limit 3, in use 0, asked for 4",
				"acme nvidia.com/GH100_H200_SXM_141GB: limit 5, in use 4, asked for 4",
			},
			room: Headroom{true, 1, "acme", Key{Resource, string(h200)}},
		},
		"of other names": {
			quotas: []Quota{quota("a", "requests.nvidia.com/B=0", "requests.deviceclass.resource.kubernetes.io/b=0")}, use: own, asks: h200,
		},
	} {
		t.Run(story, func(t *testing.T) {
			use, _ := family(tc.quotas...).WithBase(base).Sum(map[string][]gpu.Amount{"b": {{Resource: tc.use, Units: 4}}})
			var got []string
			var shortage *Shortage
			if err := use.Check("a", gpu.Amount{Resource: tc.asks, Units: 4}); errors.As(err, &shortage) {
				for _, step := range shortage.Steps {
					got = append(got, step.String())
				}
				if shortage.left != tc.room.Units {
					t.Errorf("%d left, want %d", shortage.left, tc.room.Units)
				}
			} else if err != nil {
				t.Fatal(err)
			}
			room, err := use.Headroom("a", gpu.Amount{Resource: tc.asks})
			if diff := cmp.Diff([]any{tc.want, tc.room}, []any{got, room}); diff != "" || err != nil {
				t.Errorf("%v: steps, headroom (-want +got):\n%s", err, diff)
			}
		})
	}
	use, _ := family(quota("a", "requests."+string(own)+"=x")).WithBase(base).Sum(nil)
	var refusal *Refusal
	if err := use.Check("a", gpu.Amount{Resource: h200, Units: 1}); !errors.As(err, &refusal) || refusal.Reason != BudgetUnreadable {
		t.Errorf("a budget that cannot be read: %v", err)
	}
}

// TestGivenBackTwice takes away more than there is: that widens nothing.
func TestGivenBackTwice(t *testing.T) {
	use, _ := family(quota("a", "gpuctl.dev/gpus=2")).Sum(map[string][]gpu.Amount{"a": {gpus("", 1), gpus("", -2)}})
	if got := use.Of("a", Key{Kind: Total}); got != 0 {
		t.Errorf("%d in use, want 0", got)
	}
	if use.Check("a", gpus("", 3)) == nil {
		t.Error("3 of 2 are allowed")
	}
}

func TestHeadroom(t *testing.T) {
	tree := family(quota("a", "requests."+string(h200)+"=6", "class.gpuctl.dev/h200=5"), quota("acme", "gpuctl.dev/gpus=5"), quota("other", "requests.amd.com/gpu=x"))
	for story, tc := range map[string]struct {
		use  int64 // b's
		of   gpu.Amount
		want Headroom
	}{
		"the nearest of the tightest":     {0, gpus("h200", 0), Headroom{true, 5, "a", Key{Class, "h200"}}},
		"an ancestor's":                   {3, gpus("h200", 0), Headroom{true, 2, "acme", Key{Kind: Total}}},
		"by name":                         {0, gpus("", 0), Headroom{true, 5, "acme", Key{Kind: Total}}},
		"nothing":                         {9, gpus("", 0), Headroom{true, 0, "acme", Key{Kind: Total}}},
		"of something else, up the chain": {0, gpu.Amount{Resource: "nvidia.com/B"}, Headroom{true, 5, "acme", Key{Kind: Total}}},
	} {
		t.Run(story, func(t *testing.T) {
			use, _ := tree.Sum(map[string][]gpu.Amount{"b": {gpus("h200", tc.use)}})
			got, err := use.Headroom("a", tc.of)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("headroom (-want +got):\n%s", diff)
			}
		})
	}
	use, _ := tree.Sum(nil)
	if got, err := use.Headroom("root", gpus("", 0)); err != nil || got.Limited {
		t.Errorf("without a budget: %v, %v", got, err)
	}
	if _, err := use.Headroom("nowhere", gpus("", 0)); err == nil {
		t.Error("an unknown namespace has headroom")
	}
	if _, err := use.Headroom("other", gpu.Amount{Resource: "amd.com/gpu"}); err == nil {
		t.Error("a budget that cannot be read has headroom")
	}
}
