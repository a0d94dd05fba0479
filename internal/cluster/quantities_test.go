package cluster

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gpuctl/gpuctl/internal/manifest"
)

// What a pod asks for beyond all numbers counts as more than there is. Without a bound
// this test does not end.
func TestRequestsEnd(t *testing.T) {
	pod := &corev1.Pod{Spec: *decodeInto[corev1.PodSpec](t, `
overhead: {example.com/x: 1e100000000}
initContainers: [{name: i, resources: {requests: {cpu: 1e100000000, memory: 64Mi}}}]
containers:
- {name: a, resources: {requests: {cpu: 1500m, example.com/x: 1e100000000, example.com/y: "0e100000000"}}}
- {name: b, resources: {requests: {cpu: 500m, example.com/x: 1e99999999, example.com/y: "3", example.com/z: -1e100000000}}}
`)}
	before := pod.DeepCopy()
	got := requested(pod)
	want := amounts{"cpu": beyond, "memory": 64 << 20, "example.com/x": beyond, "example.com/y": 3, "example.com/z": 0}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got := pod.Spec.Containers[0].Resources.Requests["example.com/x"]; got != before.Spec.Containers[0].Resources.Requests["example.com/x"] {
		t.Errorf("the pod itself has %s now", got.String())
	}
	if tame := (&corev1.Pod{Spec: *decodeInto[corev1.PodSpec](t, `containers: [{name: a, resources: {requests: {cpu: 100m, memory: 1.5Gi, x.io/y: 1e3}}}]`)}); reckonable(tame) != tame {
		t.Error("a usual pod is copied")
	}
	if q := resource.MustParse("1" + strings.Repeat("0", 200)); !boundless(q) {
		t.Error("a number of 201 digits can be reckoned with")
	}
}

func TestCheckQuantities(t *testing.T) {
	for text, want := range map[string]string{
		"{spec: {a: {b: [x, {memory: 64Gi}]}, serial: 1e999}}": "",
		"{metadata: {name: 1e1000}}":                           "",
		"{spec: {b: 1e1000, a: [{c: 64Gi}, {c: 1e-1000}]}}":    "GPU0649: spec.a[1].c is 1e-1000, and nobody can reckon with that",
		"{spec: 1e1000}": "GPU0649: spec is 1e1000, and nobody can reckon with that",
	} {
		got := ""
		if err := CheckQuantities("it", *decodeInto[manifest.Object](t, strings.NewReplacer("1e", `"1e`, "1000", `1000"`, "999", `999"`).Replace(text))); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// A pod that asks for what nobody can reckon with is one among the others.
func TestTypedIsTame(t *testing.T) {
	o := *decodeInto[manifest.Object](t, `{kind: Pod, metadata: {name: 1e1000}, spec: {containers: [
  {name: a, resources: {requests: {memory: "1e-100000000", cpu: "-1e100000000", x.io/y: "3", x.io/z: "1e1000"}}}]}}`)
	var pod corev1.Pod
	if err := typed(&manifest.Document{Object: o}, &pod); err != nil {
		t.Fatal(err)
	}
	want := map[corev1.ResourceName]string{"memory": "10E", "cpu": "-1", "x.io/y": "3", "x.io/z": "10E"}
	got := map[corev1.ResourceName]string{}
	for name, q := range pod.Spec.Containers[0].Resources.Requests {
		got[name] = q.String()
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	if _, text, _ := endless(o["spec"]); text != "-1e100000000" {
		t.Errorf("the document itself has %q now", text)
	}
}

// A number that a file has without quotes is a quantity, too.
func TestNumbersAreTame(t *testing.T) {
	for text, want := range map[string]string{"1e-100000000": "10E", "1e100000000": "10E", "3": "3"} {
		docs, _, err := manifest.Parse("pod.yaml", []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: a, resources: {requests: {x.io/y: "+text+"}}}]}\n"))
		if err != nil {
			t.Fatal(err)
		}
		var pod corev1.Pod
		if err := typed(&docs[0], &pod); err != nil {
			t.Fatal(err)
		}
		if q := pod.Spec.Containers[0].Resources.Requests["x.io/y"]; q.String() != want {
			t.Errorf("%s: it requests %s, want %s", text, q.String(), want)
		}
	}
}
