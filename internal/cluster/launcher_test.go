package cluster

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// termsOf reads "a b | c": terms of labels that must be there; "-" is a term without any.
func termsOf(text string) (out []corev1.NodeSelectorTerm) {
	for words := range strings.SplitSeq(text, "|") {
		var term corev1.NodeSelectorTerm
		for key := range strings.FieldsSeq(words) {
			if key != "-" {
				term.MatchExpressions = append(term.MatchExpressions, corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpExists})
			}
		}
		out = append(out, term)
	}
	return out
}

func TestRequire(t *testing.T) {
	many := strings.TrimPrefix(strings.Repeat("| x ", 65), "| ")
	tests := map[string]struct{ has, more, want string }{
		"one and one":                  {"a", "b", "a b"},
		"one of two, and one":          {"a | b", "c", "a c | b c"},
		"one of two, and of two":       {"a | b", "c | d", "a c | a d | b c | b d"},
		"what is required already":     {"a | b", "a", "a | b a"},
		"a term that holds nowhere":    {"- | a", "b", "- | a b"},
		"more than can be put down":    {"a", many, "a"},
		"nothing but what is required": {"", "a | b", "a | b"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			spec := &corev1.PodSpec{}
			for _, text := range []string{tc.has, tc.more} {
				if text != "" {
					require(spec, termsOf(text))
				}
			}
			got := spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
			if diff := cmp.Diff(termsOf(tc.want), got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Who shares what a pool knows does not get somebody else's.
func TestPool(t *testing.T) {
	p := &pool{}
	for i := range poolSize + 2 {
		list := decodeInto[corev1.ResourceList](t, fmt.Sprintf("{cpu: %dm, memory: 1Gi}", i))
		if diff := cmp.Diff(*list, p.list(*list)); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
		if name := fmt.Sprint("worker-", i); p.text(name) != name {
			t.Fatalf("%s is %s", name, p.text(name))
		}
	}
	if len(p.lists) > poolSize || len(p.texts) > poolSize {
		t.Errorf("it knows %d lists and %d texts", len(p.lists), len(p.texts))
	}
	a, b := p.list(corev1.ResourceList{"cpu": resource.MustParse("1")}), p.list(corev1.ResourceList{"cpu": resource.MustParse("1000m")})
	if a["cpu"] = resource.MustParse("7"); !cmp.Equal(a, b) {
		t.Errorf("what is alike is not shared: %v, %v", a, b)
	}
}
