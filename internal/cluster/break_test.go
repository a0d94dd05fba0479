package cluster

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestVerdictsNameNoNode: a tenant reads them.
func TestVerdictsNameNoNode(t *testing.T) {
	for name, taints := range map[string]string{
		"in the value":         `[{key: dedicated, value: worker-7, effect: NoSchedule}]`,
		"in the key":           `[{key: repair.example.com/worker-7, effect: NoSchedule}]`,
		"another one, in both": `[{key: spare-for.example.com/worker-8, value: worker-8, effect: NoSchedule}]`,
	} {
		t.Run(name, func(t *testing.T) {
			x := IndexNodes([]*corev1.Node{
				decodeInto[corev1.Node](t, `{metadata: {name: worker-7}, spec: {taints: `+taints+`}}`),
				decodeInto[corev1.Node](t, `{metadata: {name: worker-8}}`),
			}, nil, nil)
			if got := string(x.Fits(&corev1.Pod{})("worker-7")); strings.Contains(got, "worker-") {
				t.Errorf("it names a node: %s", got)
			}
		})
	}
}
