package books

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/internal/tenant"
)

func TestJudge(t *testing.T) {
	key := tenant.Key{Kind: tenant.Resource, Name: string(h200)}
	step := func(use, ask int64) []tenant.Step {
		return []tenant.Step{{Level: "acme", Key: key, Limit: 8, Use: use, Ask: ask, Source: "ResourceQuota acme/gpus"}}
	}
	class := diagnose.ClassView{Exists: true, Resource: h200}
	otherTable := gpu.Table{Set: true}
	tests := map[string]struct {
		books *Books
		want  diagnose.Judgement
		code  diagnose.Code // of the refusal
		unfit diagnose.Code
	}{
		"nobody knows it": {books: filled(8)},
		"there is room": {
			books: filled(8, device("a", 4)),
			want:  diagnose.Judgement{Known: true, Class: class, Tenant: true, Budgets: step(0, 4), Room: true, Node: "n1"},
		},
		"it has its units": {
			books: filled(8, on("n1", device("a", 4)), on("n1", device("b", 2))),
			want:  diagnose.Judgement{Known: true, Class: class, Tenant: true, Budgets: step(2, 4), Served: 8, Held: 6},
		},
		"over the budget of one above": {
			books: filled(8, device("a", 4), on("n1", device("b", 6))),
			want:  diagnose.Judgement{Known: true, Class: class, Tenant: true, Budgets: step(6, 4)}, code: "GPU0611",
		},
		"nothing is free": {
			books: filled(-1, device("a", 4), on("n1", device("b", 8)), on("n2", device("c", 8))),
			want:  diagnose.Judgement{Known: true, Class: class, Tenant: true}, code: "GPU0705",
		},
		"the class is gone": {
			books: func() *Books { b := filled(8, device("a", 4)); b.DropClass("h200"); return b }(),
			want:  diagnose.Judgement{Known: true}, code: "GPU0620",
		},
		"no VM can use the class": {
			books: func() *Books { b := filled(8, on("n1", device("a", 4))); b.SetTable(otherTable); return b }(),
			want:  diagnose.Judgement{Known: true, Class: class, Tenant: true, Budgets: step(0, 4), Served: 8, Held: 4}, unfit: "GPU0624",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := tc.books.Judge("a")
			if diff := cmp.Diff(tc.want, got, cmpopts.IgnoreFields(diagnose.Judgement{}, "Refusal", "Unusable")); diff != "" {
				t.Errorf("judgement (-want +got):\n%s", diff)
			}
			if code := codeOf(got.Refusal); code != tc.code {
				t.Errorf("refused for %q, want %q", code, tc.code)
			}
			if code := codeOf(got.Unusable); code != tc.unfit {
				t.Errorf("unusable for %q, want %q", code, tc.unfit)
			}
		})
	}
}

func codeOf(r *diagnose.Refusal) diagnose.Code {
	if r == nil {
		return ""
	}
	return r.Code
}

// TestJudgeIsTheBinder compares a judgement with what a round decides, and looks that it
// leaves no trace.
func TestJudgeIsTheBinder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		budget := rapid.Int64Range(-1, 16).Draw(t, "budget")
		b := filled(budget, device("a", rapid.Int64Range(1, 10).Draw(t, "asked")))
		for _, uid := range []string{"b", "c", "d", "e"} {
			d := device(uid, rapid.Int64Range(1, 8).Draw(t, "units"))
			if node := rapid.SampledFrom([]string{"", "n1", "n2"}).Draw(t, "node"); node != "" {
				d = on(node, d)
			}
			b.PutDevice(d)
		}
		before := b.Offers()
		got := b.Judge("a")
		if diff := cmp.Diff(before, b.Offers()); diff != "" {
			t.Fatalf("judging has changed the books (-before +after):\n%s", diff)
		}
		r := b.Begin()
		defer r.Close()
		r.Settle()
		writes, err := r.Place("a")
		if (err != nil) != (got.Refusal != nil) || (err == nil) != got.Room {
			t.Fatalf("judged %+v, and the binder says %v, %v", got, writes, err)
		}
		if err != nil && err.Error() != got.Refusal.Error() {
			t.Fatalf("judged %q, and the binder says %q", got.Refusal.Error(), err.Error())
		}
		if got.Node != "" && (len(writes) != 1 || writes[0].Node != got.Node) {
			t.Fatalf("judged to go to %s, and the binder writes %+v", got.Node, writes)
		}
	})
}
