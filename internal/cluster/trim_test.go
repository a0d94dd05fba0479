package cluster

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
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
				spec: {unschedulable: true, podCIDR: 10.0.0.0/24, taints: [{key: a, effect: NoSchedule}]},
				status: {images: [{}], nodeInfo: {}, capacity: {cpu: 4, nvidia.com/X: 2}, allocatable: {cpu: 4, nvidia.com/X: 1},
					conditions: [{type: MemoryPressure, status: "False"}, {type: Ready, status: "True", lastHeartbeatTime: "2026-01-01T12:00:00Z"}]}}`,
			want: `{apiVersion: v1, kind: Node, metadata: {name: n, uid: u, resourceVersion: "5", labels: {nvidia.com/gpu.present: "true", kubernetes.io/os: linux}},
				spec: {unschedulable: true, taints: [{key: a, effect: NoSchedule}]}, status: {capacity: {nvidia.com/X: 2}, allocatable: {cpu: 4, nvidia.com/X: 1}, conditions: [{type: Ready, status: "True"}]}}`,
		},
		"a node that says nothing": {
			in: `{apiVersion: v1, kind: Node, metadata: {name: n}}`, want: `{apiVersion: v1, kind: Node, metadata: {name: n}}`,
		},
		"an inventory": {
			in:   `{apiVersion: gpuctl.dev/v1alpha1, kind: GPUNode, metadata: {name: n, managedFields: [{}]}, spec: {gpus: 1}}`,
			want: `{apiVersion: gpuctl.dev/v1alpha1, kind: GPUNode, metadata: {name: n}, spec: {gpus: 1}}`,
		},
		"an instance": {
			in:   `{apiVersion: kubevirt.io/v1, kind: VirtualMachineInstance, metadata: {name: v, namespace: a, uid: u, labels: {a: b}}, spec: {domain: {}}, status: {phase: Running, activePods: {p: n}}}`,
			want: `{apiVersion: kubevirt.io/v1, kind: VirtualMachineInstance, metadata: {name: v, namespace: a, uid: u}, status: {phase: Running, activePods: {p: n}}}`,
		},
		"a DeviceClass": {
			in:   `{apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {name: g, uid: u, labels: {a: b}}, spec: {extendedResourceName: nvidia.com/X, selectors: [{}]}}`,
			want: `{apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {name: g, uid: u}, spec: {extendedResourceName: nvidia.com/X}}`,
		},
		"a hierarchy": {
			in:   `{apiVersion: hnc.x-k8s.io/v1alpha2, kind: HierarchyConfiguration, metadata: {name: hierarchy, namespace: a}, spec: {parent: b}, status: {children: [c], conditions: [{type: ActivitiesHalted}]}}`,
			want: `{apiVersion: hnc.x-k8s.io/v1alpha2, kind: HierarchyConfiguration, metadata: {name: hierarchy, namespace: a}, status: {conditions: [{type: ActivitiesHalted}]}}`,
		},
		"a release": {
			in:   `{apiVersion: helm.toolkit.fluxcd.io/v2, kind: HelmRelease, metadata: {name: tenant-a, namespace: tenant-root}, spec: {chart: {}, values: {host: x, resourceQuotas: {nvidia.com/X: 4}}}, status: {}}`,
			want: `{apiVersion: helm.toolkit.fluxcd.io/v2, kind: HelmRelease, metadata: {name: tenant-a, namespace: tenant-root}, spec: {values: {resourceQuotas: {nvidia.com/X: 4}}}}`,
		},
		"a release whose values are odd": {
			in:   `{apiVersion: helm.toolkit.fluxcd.io/v2, kind: HelmRelease, metadata: {name: tenant-a, namespace: tenant-root}, spec: {values: [1]}}`,
			want: `{apiVersion: helm.toolkit.fluxcd.io/v2, kind: HelmRelease, metadata: {name: tenant-a, namespace: tenant-root}, spec: {values: [1]}}`,
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
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	crd := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "c", Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"a": "b"}}}
	if _, err := transform(crd); err != nil || crd.Labels != nil || crd.Annotations != nil || crd.Name != "c" {
		t.Errorf("a CRD is held as %+v: %v", crd, err)
	}
	ns := &metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{
			Name: "a", Labels: map[string]string{"gpuctl.dev/parent": "b"}, Annotations: map[string]string{subnamespaceOf: "b", "long": "text"},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}},
		},
	}
	want := metav1.ObjectMeta{Name: "a", Labels: map[string]string{"gpuctl.dev/parent": "b"}, Annotations: map[string]string{subnamespaceOf: "b"}}
	if _, err := transform(ns); err != nil || cmp.Diff(want, ns.ObjectMeta) != "" {
		t.Errorf("a namespace is held as (-want +got):\n%s%v", cmp.Diff(want, ns.ObjectMeta), err)
	}
}

// What an object becomes in a cache becomes itself once more: it may be trimmed twice.
func TestTrimmedTwice(t *testing.T) {
	objects := map[string]any{
		"a pod":       decodeInto[corev1.Pod](t, launcherPod),
		"a plugin":    decodeInto[corev1.Pod](t, pluginPod),
		"a DaemonSet": decodeInto[appsv1.DaemonSet](t, `{metadata: {name: d, uid: u}, spec: {template: {spec: {containers: [{image: "a:1"}]}}}}`),
		"a quota":     decodeInto[corev1.ResourceQuota](t, `{metadata: {name: q, labels: {a: b}}, spec: {hard: {requests.nvidia.com/X: 4}}}`),
	}
	transform := CacheOptions().DefaultTransform
	for name, o := range objects {
		t.Run(name, func(t *testing.T) {
			once, err := transform(o)
			if err != nil {
				t.Fatal(err)
			}
			twice, err := transform(once.(interface{ DeepCopyObject() runtime.Object }).DeepCopyObject())
			if diff := cmp.Diff(once, twice, cmp.AllowUnexported(heldPod{}, pluginThere{}, plugin{}, owned{})); diff != "" || err != nil {
				t.Errorf("%v (-once +twice):\n%s", err, diff)
			}
		})
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
		"a heartbeat": {node, `{apiVersion: v1, kind: Node, metadata: {name: n, resourceVersion: "6"}, status: {allocatable: {nvidia.com/X: 1}, conditions: [{type: Ready, status: "True"}]}}`, true},
		"what placement needs only": {
			`{kind: Node, metadata: {name: n, labels: {nvidia.com/a: b, zone: east}}, spec: {unschedulable: true}, status: {allocatable: {cpu: 4, nvidia.com/X: 1}}}`,
			`{kind: Node, metadata: {name: n, labels: {nvidia.com/a: b, zone: west}}, spec: {unschedulable: true, taints: [{key: a}]}, status: {allocatable: {cpu: 3, memory: 1Gi, nvidia.com/X: 1}}}`, true,
		},
		"a label of NVIDIA's":    {`{kind: Node, metadata: {labels: {nvidia.com/a: b}}}`, `{kind: Node, metadata: {labels: {nvidia.com/a: c}}}`, false},
		"a node is cordoned":     {`{kind: Node, spec: {taints: []}}`, `{kind: Node, spec: {taints: [], unschedulable: true}}`, false},
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

// What is held of a pod says of itself what the pod says.
func TestHeldPodIsThePod(t *testing.T) {
	pod := decodeInto[corev1.Pod](t, launcherPod)
	pod.ResourceVersion = "7"
	held := (&pool{}).pod(pod)
	for name, o := range map[string]any{"itself": held, "by its metadata": held.GetObjectMeta(), "a copy": held.DeepCopyObject()} {
		got, err := meta.Accessor(o)
		if err != nil {
			t.Fatal(err)
		}
		for _, is := range []struct{ got, want string }{
			{got.GetNamespace(), pod.Namespace}, {got.GetName(), pod.Name}, {string(got.GetUID()), string(pod.UID)}, {got.GetResourceVersion(), "7"},
		} {
			if is.got != is.want {
				t.Errorf("%s is %q, want %q", name, is.got, is.want)
			}
		}
	}
}
