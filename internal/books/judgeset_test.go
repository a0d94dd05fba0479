package books

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/internal/tenant"
)

func TestJudgeSet(t *testing.T) {
	key := tenant.Key{Kind: tenant.Resource, Name: string(h200)}
	step := func(use, ask int64) []tenant.Step {
		return []tenant.Step{{Level: "acme", Key: key, Limit: 8, Use: use, Ask: ask, Source: "ResourceQuota acme/gpus"}}
	}
	gives := map[string]gpu.ResourceName{"h200": h200}
	order := func(class string, count int32) []Order {
		return []Order{{Object: "vm", Namespace: "acme-dev", Class: class, Count: count}}
	}
	tests := map[string]struct {
		books *Books
		set   Set
		want  diagnose.SetJudgement
		code  diagnose.Code
	}{
		"it lies where it starts": {
			books: filled(8, on("n1", device("a", 4)), on("n1", device("b", 2))), set: Set{Devices: []string{"a", "b"}},
			want: diagnose.SetJudgement{Known: true, Resources: map[string]gpu.ResourceName{}, Node: "n1"},
		},
		"what a template would take of a budget": {
			books: filled(8, on("n1", device("a", 4))), set: Set{Devices: []string{"a"}, New: order("h200", 4)},
			want: diagnose.SetJudgement{Known: true, Resources: gives, Budgets: step(4, 4), Node: "n1"},
		},
		"more than the budget": {
			books: filled(8, on("n1", device("a", 4))), set: Set{Devices: []string{"a"}, New: order("h200", 5)},
			want: diagnose.SetJudgement{Known: true, Resources: gives, Budgets: step(4, 5)}, code: "GPU0611",
		},
		"no such class": {
			books: filled(8), set: Set{New: order("b300", 1)},
			want: diagnose.SetJudgement{Known: true, Resources: map[string]gpu.ResourceName{}}, code: "GPU0620",
		},
		"more than a node has left beside what runs": {
			books: filled(-1, attached("v", on("n1", device("a", 8))), attached("w", on("n2", device("b", 7))), device("c", 2)), set: Set{Devices: []string{"c"}},
			want: diagnose.SetJudgement{Known: true, Resources: map[string]gpu.ResourceName{}}, code: "GPU0705",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			tc.set.Object, tc.set.Namespace = "vm", "acme-dev"
			before := tc.books.Offers()
			got := tc.books.JudgeSet(tc.set)
			if diff := cmp.Diff(tc.want, got, cmpopts.IgnoreFields(diagnose.SetJudgement{}, "Refusal")); diff != "" {
				t.Errorf("judgement (-want +got):\n%s", diff)
			}
			if code := codeOf(got.Refusal); code != tc.code {
				t.Errorf("refused for %q, want %q", code, tc.code)
			}
			if err := tc.books.AdmitSet(tc.set); (err != nil) != (got.Refusal != nil) || err != nil && err.Error() != got.Refusal.Error() {
				t.Errorf("judged %v, and a start is told %v", got.Refusal, err)
			}
			if diff := cmp.Diff(before, tc.books.Offers()); diff != "" {
				t.Errorf("judging has changed the books (-before +after):\n%s", diff)
			}
		})
	}
}
