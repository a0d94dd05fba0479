package cluster

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestPinnedTo(t *testing.T) {
	term := func(op corev1.NodeSelectorOperator, nodes ...string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: op, Values: nodes}}}
	}
	label := corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "kubernetes.io/hostname", Operator: "In", Values: []string{"n1"}}}}
	tests := map[string]struct {
		terms []corev1.NodeSelectorTerm
		want  string
	}{
		"no affinity":                        {},
		"by its name":                        {[]corev1.NodeSelectorTerm{term("In", "n1")}, "n1"},
		"in each of two terms":               {[]corev1.NodeSelectorTerm{term("In", "n1"), term("In", "n1")}, "n1"},
		"one of two terms lets it elsewhere": {[]corev1.NodeSelectorTerm{term("In", "n1"), label}, ""},
		"the first of two terms does":        {[]corev1.NodeSelectorTerm{label, term("In", "n1")}, ""},
		"two nodes by two terms":             {[]corev1.NodeSelectorTerm{term("In", "n1"), term("In", "n2")}, ""},
		"two nodes by one term":              {[]corev1.NodeSelectorTerm{term("In", "n1", "n2")}, ""},
		"any node but one":                   {[]corev1.NodeSelectorTerm{term("NotIn", "n1")}, ""},
		"by a label":                         {[]corev1.NodeSelectorTerm{label}, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{}
			if tc.terms != nil {
				pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: tc.terms}}}
			}
			if got := pinnedTo(pod); got != tc.want {
				t.Errorf("pinned to %q, want %q", got, tc.want)
			}
		})
	}
}
