package cluster

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func decode(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

func TestCacheHoldsLittle(t *testing.T) {
	tests := map[string]struct{ in, want string }{
		"a node": {
			in: `{apiVersion: v1, kind: Node, metadata: {name: n, uid: u, resourceVersion: "5", annotations: {a: b}, managedFields: [{}], labels: {nvidia.com/gpu.present: "true", kubernetes.io/os: linux}},
				spec: {unschedulable: true, podCIDR: 10.0.0.0/24, taints: []},
				status: {images: [{}], nodeInfo: {}, capacity: {cpu: 4, nvidia.com/X: 2}, allocatable: {cpu: 4, nvidia.com/X: 1},
					conditions: [{type: MemoryPressure, status: "False"}, {type: Ready, status: "True", lastHeartbeatTime: "2026-01-01T12:00:00Z"}]}}`,
			want: `{apiVersion: v1, kind: Node, metadata: {name: n, uid: u, resourceVersion: "5", labels: {nvidia.com/gpu.present: "true"}},
				spec: {unschedulable: true}, status: {capacity: {nvidia.com/X: 2}, allocatable: {nvidia.com/X: 1}, conditions: [{type: Ready, status: "True"}]}}`,
		},
		"a node that says nothing": {
			in: `{apiVersion: v1, kind: Node, metadata: {name: n}}`, want: `{apiVersion: v1, kind: Node, metadata: {name: n}}`,
		},
		"an inventory": {
			in:   `{apiVersion: gpuctl.dev/v1alpha1, kind: GPUNode, metadata: {name: n, managedFields: [{}]}, spec: {gpus: 1}}`,
			want: `{apiVersion: gpuctl.dev/v1alpha1, kind: GPUNode, metadata: {name: n}, spec: {gpus: 1}}`,
		},
		"what is wired stays whole": {
			in:   `{apiVersion: kubevirt.io/v1, kind: KubeVirt, metadata: {name: k, managedFields: [{manager: helm}]}, spec: {a: b}, status: {phase: Deployed}}`,
			want: `{apiVersion: kubevirt.io/v1, kind: KubeVirt, metadata: {name: k, managedFields: [{manager: helm}]}, spec: {a: b}, status: {phase: Deployed}}`,
		},
	}
	transform := CacheOptions().DefaultTransform
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := transform(decode(t, tc.in))
			if err != nil {
				t.Fatal(err)
			}
			want := decode(t, tc.want)
			if status, ok := want.Object["status"].(map[string]any); ok && status["conditions"] == nil && want.GetKind() == "Node" {
				status["conditions"] = []any(nil)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	crd := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "c", Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"a": "b"}}}
	if _, err := transform(crd); err != nil || crd.Labels != nil || crd.Annotations != nil || crd.Name != "c" {
		t.Errorf("a CRD is held as %+v: %v", crd, err)
	}
}

// A look is not worth it when nothing has changed that the wiring follows from.
func TestAlike(t *testing.T) {
	const node = `{apiVersion: v1, kind: Node, metadata: {name: n, resourceVersion: "5"}, status: {allocatable: {nvidia.com/X: 1}, conditions: [{type: Ready, status: "True"}]}}`
	const kubevirt = `{apiVersion: kubevirt.io/v1, kind: KubeVirt, metadata: {name: k, annotations: {a: b}}, spec: {configuration: {}}, status: {phase: Deployed, generation: 1}}`
	tests := map[string]struct {
		before, after string
		want          bool
	}{
		"a heartbeat":            {node, `{apiVersion: v1, kind: Node, metadata: {name: n, resourceVersion: "6"}, status: {allocatable: {nvidia.com/X: 1}, conditions: [{type: Ready, status: "True"}]}}`, true},
		"another count":          {node, `{apiVersion: v1, kind: Node, metadata: {name: n}, status: {allocatable: {nvidia.com/X: 2}, conditions: [{type: Ready, status: "True"}]}}`, false},
		"not ready":              {node, `{apiVersion: v1, kind: Node, metadata: {name: n}, status: {allocatable: {nvidia.com/X: 1}, conditions: [{type: Ready, status: Unknown}]}}`, false},
		"another status":         {kubevirt, `{apiVersion: kubevirt.io/v1, kind: KubeVirt, metadata: {name: k, annotations: {a: b}}, spec: {configuration: {}}, status: {phase: Deployed, generation: 2}}`, true},
		"another phase":          {kubevirt, `{apiVersion: kubevirt.io/v1, kind: KubeVirt, metadata: {name: k, annotations: {a: b}}, spec: {configuration: {}}, status: {phase: Deploying}}`, false},
		"another version":        {kubevirt, `{apiVersion: kubevirt.io/v1, kind: KubeVirt, metadata: {name: k, annotations: {a: b}}, spec: {configuration: {}}, status: {phase: Deployed, observedKubeVirtVersion: v1.9.0}}`, false},
		"another spec":           {kubevirt, `{apiVersion: kubevirt.io/v1, kind: KubeVirt, metadata: {name: k, annotations: {a: b}}, spec: {configuration: {x: y}}, status: {phase: Deployed}}`, false},
		"no annotation":          {kubevirt, `{apiVersion: kubevirt.io/v1, kind: KubeVirt, metadata: {name: k}, spec: {configuration: {}}, status: {phase: Deployed}}`, false},
		"one that is to go":      {kubevirt, `{apiVersion: kubevirt.io/v1, kind: KubeVirt, metadata: {name: k, annotations: {a: b}, deletionTimestamp: "2026-01-01T12:00:00Z"}, spec: {configuration: {}}, status: {phase: Deployed}}`, false},
		"a HyperConverged's now": {kubevirt, `{apiVersion: kubevirt.io/v1, kind: KubeVirt, metadata: {name: k, annotations: {a: b}, ownerReferences: [{kind: HyperConverged}]}, spec: {configuration: {}}, status: {phase: Deployed}}`, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := alike(decode(t, tc.before), decode(t, tc.after)); got != tc.want {
				t.Errorf("alike is %t, want %t", got, tc.want)
			}
		})
	}
}
