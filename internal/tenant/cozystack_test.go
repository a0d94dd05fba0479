package tenant

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func quotas(pairs ...any) map[string]any {
	m := map[string]any{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i].(string)] = pairs[i+1]
	}
	return map[string]any{"resourceQuotas": m, "host": "example.org"}
}

func TestCozystack(t *testing.T) {
	name := string(h200)
	root := Release{Namespace: "tenant-root", Name: "tenant-root"}
	foo := Release{Namespace: "tenant-root", Name: "tenant-foo"}
	bar := Release{Namespace: "tenant-foo", Name: "tenant-bar"}
	of := func(r Release, values map[string]any) Release {
		r.Values = values
		return r
	}
	for story, tc := range map[string]struct {
		namespaces []Namespace
		releases   []Release
		want       map[string]string
	}{
		"the three rules": {
			namespaces: below("tenant-root", "tenant-foo", "tenant-foo-bar"),
			releases:   []Release{root, foo, bar, {Namespace: "tenant-foo", Name: "kubernetes-bar"}},
			want: map[string]string{
				"tenant-root": "tenant-root", "tenant-foo": "tenant-foo < tenant-root",
				"tenant-foo-bar": "tenant-foo-bar < tenant-foo < tenant-root",
			},
		},
		"budgets are the values, keys verbatim": {
			namespaces: below("tenant-root", "tenant-foo"),
			releases: []Release{
				of(root, quotas(name, "16", "cpu", "100", "requests.storage", "5Ti")),
				of(foo, quotas(name, 8, "class.gpuctl.dev/h200", 4.0, "gpuctl.dev/gpus", json.Number("9"), "requests."+name, int64(7))),
			},
			want: map[string]string{
				"tenant-root": "tenant-root " + name + "=16",
				"tenant-foo":  "tenant-foo " + name + "=7 class.gpuctl.dev/h200=4 gpuctl.dev/gpus=9 < tenant-root " + name + "=16",
			},
		},
		"no quotas, and null": {
			namespaces: below("tenant-root", "tenant-foo"),
			releases:   []Release{of(root, map[string]any{"host": "x"}), of(foo, map[string]any{"resourceQuotas": nil})},
			want:       map[string]string{"tenant-root": "tenant-root", "tenant-foo": "tenant-foo < tenant-root"},
		},
		"a dash in a release's name: the releases decide": {
			namespaces: below("tenant-root", "tenant-foo", "tenant-foo-bar"),
			releases:   []Release{root, foo, {Namespace: "tenant-root", Name: "tenant-foo-bar"}},
			want: map[string]string{
				"tenant-root": "tenant-root", "tenant-foo": "tenant-foo < tenant-root",
				"tenant-foo-bar": "tenant-foo-bar < tenant-root",
			},
		},
		"two releases that claim one namespace refuse": {
			namespaces: below("tenant-root", "tenant-foo", "tenant-foo-bar", "tenant-foo-bar-x"),
			releases: []Release{
				root, foo, bar,
				{Namespace: "tenant-root", Name: "tenant-foo-bar"},
				{Namespace: "tenant-foo-bar", Name: "tenant-x"},
			},
			want: map[string]string{
				"tenant-root": "tenant-root", "tenant-foo": "tenant-foo < tenant-root",
				"tenant-foo-bar":   "refused by tenant-foo-bar: Contradiction",
				"tenant-foo-bar-x": "refused by tenant-foo-bar: Contradiction",
			},
		},
		"a namespace without a release refuses, and all below": {
			namespaces: below("tenant-root", "tenant-foo", "tenant-foo-bar", "default", "default-foo", "tenant-"),
			releases:   []Release{root, bar, {Namespace: "default", Name: "tenant-foo"}, {Namespace: "tenant-root", Name: "tenant-"}},
			want: map[string]string{
				"tenant-root": "tenant-root", "tenant-foo": "refused by tenant-foo: NoRelease",
				"tenant-foo-bar": "refused by tenant-foo: NoRelease", "default": "refused by default: NoRelease",
				"default-foo": "refused by default-foo: NoRelease",
				"tenant-":     "refused by tenant-: NoRelease",
			},
		},
		"without the root's release its budget is unknown": {
			namespaces: below("tenant-root", "tenant-foo"),
			releases:   []Release{foo},
			want: map[string]string{
				"tenant-root": "refused by tenant-root: NoRelease", "tenant-foo": "refused by tenant-root: NoRelease",
			},
		},
		"a namespace in between that is gone": {
			namespaces: below("tenant-root", "tenant-foo-bar"),
			releases:   []Release{root, foo, bar},
			want:       map[string]string{"tenant-root": "tenant-root", "tenant-foo-bar": "refused by tenant-foo: MissingParent"},
		},
		"labels are not Cozystack's tree": {
			namespaces: below("tenant-root", "tenant-foo<nobody"),
			releases:   []Release{root, foo},
			want:       map[string]string{"tenant-root": "tenant-root", "tenant-foo": "tenant-foo < tenant-root"},
		},
		"values that cannot be read": {
			namespaces: below("tenant-root", "tenant-map", "tenant-list", "tenant-null", "tenant-bool", "tenant-nan", "tenant-float", "tenant-nested"),
			releases: []Release{
				root,
				{"tenant-root", "tenant-map", map[string]any{"resourceQuotas": "8"}},
				{"tenant-root", "tenant-list", quotas("cpu", []any{"8"})},
				{"tenant-root", "tenant-null", quotas(name, nil)},
				{"tenant-root", "tenant-bool", quotas(name, true)},
				{"tenant-root", "tenant-nan", quotas(name, math.NaN())},
				{"tenant-root", "tenant-float", quotas(name, 1.5)},
				{"tenant-root", "tenant-nested", quotas("requests", map[string]any{name: "8"})},
			},
			want: map[string]string{
				"tenant-root": "tenant-root",
				"tenant-map":  "refused by tenant-map: BudgetUnreadable", "tenant-list": "refused by tenant-list: BudgetUnreadable",
				"tenant-null": "refused by tenant-null: BudgetUnreadable", "tenant-bool": "refused by tenant-bool: BudgetUnreadable",
				"tenant-nan": "refused by tenant-nan: BudgetUnreadable", "tenant-float": "refused by tenant-float: BudgetFractional",
				"tenant-nested": "refused by tenant-nested: BudgetUnreadable",
			},
		},
	} {
		t.Run(story, func(t *testing.T) {
			tree := Build(tc.namespaces, Cozystack(tc.releases), everyone)
			if diff := cmp.Diff(tc.want, shownAll(tree)); diff != "" {
				t.Errorf("chains (-want +got):\n%s", diff)
			}
		})
	}
}

func TestClaimsAreToldSorted(t *testing.T) {
	releases := []Release{{Namespace: "tenant-root", Name: "tenant-foo-bar"}, {Namespace: "tenant-foo", Name: "tenant-bar"}}
	for _, order := range [][]Release{releases, reversed(releases)} {
		_, err := Build(below("tenant-foo-bar"), Cozystack(order), everyone).Chain("tenant-foo-bar")
		want := `namespace "tenant-foo-bar" is refused: HelmReleases "tenant-foo/tenant-bar", "tenant-root/tenant-foo-bar" claim to make namespace "tenant-foo-bar"`
		if err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}
