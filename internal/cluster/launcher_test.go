package cluster

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/gpuctl/gpuctl/internal/alloc"
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

// A RuntimeClass can have tolerations of its own, which nobody sees before there is a pod.
func TestLauncherOfRuntimeClassToleratesAll(t *testing.T) {
	vmi := &kubevirtv1.VirtualMachineInstance{Spec: kubevirtv1.VirtualMachineInstanceSpec{Tolerations: []corev1.Toleration{{Key: "own"}}}}
	tainted := decodeInto[corev1.Node](t, `{metadata: {name: n1, labels: {kubevirt.io/schedulable: "true"}}, spec: {taints: [{key: kata, effect: NoSchedule}]}, status: {allocatable: {pods: 1}}}`)
	for class, want := range map[string]alloc.Verdict{"": "untolerated taint kata:NoSchedule", "kata": ""} {
		config := &kubevirtv1.KubeVirtConfiguration{DefaultRuntimeClass: class, DeveloperConfiguration: &kubevirtv1.DeveloperConfiguration{}}
		spec := renderLauncher(vmi, config)
		spec.Containers = nil
		if got := IndexNodes([]*corev1.Node{tainted.DeepCopy()}, nil, nil).Fits(&corev1.Pod{Spec: spec})("n1"); got != want {
			t.Errorf("of RuntimeClass %q: %q, want %q", class, got, want)
		}
	}
}
