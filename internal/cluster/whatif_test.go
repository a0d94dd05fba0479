package cluster

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpuctl/gpuctl/internal/alloc"
	"github.com/gpuctl/gpuctl/internal/manifest"
)

const whatIf = `
{apiVersion: v1, kind: Node, metadata: {name: n1}, spec: {taints: []}, status: {allocatable: {cpu: 8, pods: "10", memory: 64Gi}}}
---
{apiVersion: v1, kind: Node, metadata: {name: n2}, status: {allocatable: {cpu: "8", pods: "10", memory: 64Gi}}}
---
{apiVersion: kubevirt.io/v1, kind: VirtualMachineInstance, metadata: {name: a, namespace: t, uid: i-1}, status: {phase: Running, nodeName: n1}}
---
{apiVersion: kubevirt.io/v1, kind: VirtualMachineInstance, metadata: {name: b, namespace: t, uid: i-2}, status: {phase: Failed, nodeName: n1}}
---
{apiVersion: v1, kind: Pod, metadata: {name: launcher-a, namespace: t, labels: {app: a}, ownerReferences: [{apiVersion: kubevirt.io/v1, kind: VirtualMachineInstance, name: a, uid: i-1, controller: true}]}, spec: {nodeName: n1, containers: [{name: c, resources: {requests: {cpu: "3"}}}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: other, namespace: t}, spec: {nodeName: n1, containers: [{name: c, resources: {requests: {cpu: "2"}}}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: ended, namespace: t}, spec: {nodeName: n1, containers: [{name: c, resources: {requests: {cpu: "8"}}}]}, status: {phase: Succeeded}}
---
{apiVersion: gpuctl.dev/v1alpha1, kind: GPUDevice, metadata: {name: d-a, namespace: t, uid: x}, status: {state: Attached, placement: {node: n1}, attachment: {vmiName: a, vmiUID: i-1, vmUID: v-1}, bindRequest: {requestID: r}}}
---
{apiVersion: gpuctl.dev/v1alpha1, kind: GPUDevice, metadata: {name: d-c, namespace: t, uid: y}, status: {state: Bound, placement: {node: n2}, attachment: {vmiName: c, vmUID: v-2},
  origin: {kind: Template, vm: {name: c, uid: v-2}}, bindRequest: {answer: {node: n2}, launcher: '{"containers":[{"name":"compute","resources":{"requests":{"cpu":"6"}}}]}'}}}
`

func documents(t *testing.T, text string) []manifest.Document {
	t.Helper()
	docs, skipped, err := manifest.Load(strings.NewReader(text), "-")
	if err != nil || len(skipped) > 0 {
		t.Fatal(err, skipped)
	}
	return docs
}

func names(docs []manifest.Document) (out []string) {
	for i := range docs {
		out = append(out, docs[i].Kind()+" "+docs[i].Meta("name"))
	}
	return out
}

func TestDrain(t *testing.T) {
	docs := ByName(documents(t, whatIf))
	tests := map[string]struct {
		nodes   []string
		ended   []Named
		missing []string // of the documents
		free    string   // the device that is given back
	}{
		"no node":                    {},
		"where an instance runs":     {[]string{"n1"}, []Named{{"t", "a"}}, []string{"VirtualMachineInstance a", "Pod launcher-a"}, "d-a"},
		"where one starts":           {[]string{"n2"}, []Named{{"t", "c"}}, nil, "d-c"},
		"one that nobody knows here": {nodes: []string{"n3"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			after, ended := Drain(docs, tc.nodes)
			if diff := cmp.Diff(tc.ended, ended); diff != "" {
				t.Errorf("ended (-want +got):\n%s", diff)
			}
			left := map[string]bool{}
			for _, n := range names(after) {
				left[n] = true
			}
			var missing []string
			for _, n := range names(docs) {
				if !left[n] {
					missing = append(missing, n)
				}
			}
			if diff := cmp.Diff(tc.missing, missing); diff != "" {
				t.Errorf("missing (-want +got):\n%s", diff)
			}
			for i := range after {
				d := &after[i]
				closed, _ := manifest.Lookup(d.Object, manifest.Path{"spec", "unschedulable"})
				if d.Kind() == "Node" && (closed == true) != (len(tc.nodes) > 0 && d.Meta("name") == tc.nodes[0]) {
					t.Errorf("node %s is cordoned: %v", d.Meta("name"), closed)
				}
				if d.Kind() == "GPUDevice" && (text(d.Object, "status", "attachment", "vmiName") == "") != (d.Meta("name") == tc.free) {
					t.Errorf("%s is %v", d.Meta("name"), d.Object["status"])
				}
			}
		})
	}
	if text(docs[0].Object, "spec", "unschedulable") != "" || names(docs)[2] != "VirtualMachineInstance a" {
		t.Errorf("the documents have changed: %v", docs)
	}
}

func TestByName(t *testing.T) {
	before := documents(t, whatIf)
	docs := ByName(before)
	got := map[string]string{}
	for i := range docs {
		if d := &docs[i]; d.Kind() == "GPUDevice" || d.Kind() == kindVMI {
			got[d.Meta("name")] = strings.Join([]string{
				d.Meta("uid"), text(d.Object, "status", "attachment", "vmiUID"), text(d.Object, "status", "attachment", "vmUID"), text(d.Object, "status", "origin", "vm", "uid"),
			}, " ")
		}
	}
	want := map[string]string{"a": "t/a   ", "b": "t/b   ", "d-a": "t/d-a t/a t/a ", "d-c": "t/d-c  t/c t/c"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("identities (-want +got):\n%s", diff)
	}
	if before[2].Meta("uid") != "i-1" {
		t.Errorf("the documents have changed: %v", before[2])
	}
	if node, runs := Running(docs, Named{"t", "a"}); node != "n1" || !runs {
		t.Errorf("a runs on %q: %v", node, runs)
	}
	if node, runs := Running(docs, Named{"t", "b"}); runs {
		t.Errorf("b, which has failed, runs on %q", node)
	}
	if made := MadeFor(docs, Named{"t", "c"}); len(made) != 1 || made[0].Name != "d-c" {
		t.Errorf("made for c: %v", made)
	}
}

// Pods take room, and so does the launcher of a start that is not there yet.
func TestRoomOf(t *testing.T) {
	docs := ByName(documents(t, whatIf))
	asks := func(cpu string) *corev1.PodSpec {
		spec, err := ReadLauncher(`{"containers":[{"name":"c","resources":{"requests":{"cpu":"` + cpu + `"}}}]}`)
		if err != nil {
			t.Fatal(err)
		}
		return spec
	}
	room := RoomOf(docs, func(corev1.ResourceName) bool { return false })
	for _, tc := range []struct {
		node, cpu string
		want      alloc.Verdict
	}{{"n1", "3", ""}, {"n1", "4", "too little cpu"}, {"n2", "2", ""}, {"n2", "3", "too little cpu"}} {
		if got := room.Fits(asks(tc.cpu), nil)(tc.node); got != tc.want {
			t.Errorf("%s on %s: %q, want %q", tc.cpu, tc.node, got, tc.want)
		}
	}
	after, _ := Drain(docs, []string{"n1", "n2"})
	room = RoomOf(after, func(corev1.ResourceName) bool { return false })
	for node, want := range map[string]alloc.Verdict{"n1": "too little cpu", "n2": ""} {
		if got := room.Fits(asks("7"), nil)(node); got != want {
			t.Errorf("7 on %s with nothing there but another pod: %q, want %q", node, got, want)
		}
	}
	if RoomOf(documents(t, `{apiVersion: v1, kind: Node, metadata: {name: n1}, status: {allocatable: {nvidia.com/X: "1"}}}`), nil) != nil {
		t.Error("something is concluded from nodes that say nothing of CPU")
	}
}

func TestReaderOf(t *testing.T) {
	r := ReaderOf(documents(t, whatIf))
	var node corev1.Node
	if err := r.Get(t.Context(), client.ObjectKey{Name: "n1"}, &node); err != nil || node.Status.Allocatable.Cpu().Value() != 8 {
		t.Errorf("n1 is %+v: %v", node, err)
	}
	if err := r.Get(t.Context(), client.ObjectKey{Name: "n1", Namespace: "t"}, &node); !apierrors.IsNotFound(err) {
		t.Errorf("t/n1: %v", err)
	}
	var pods corev1.PodList
	err := r.List(t.Context(), &pods, client.InNamespace("t"), client.MatchingLabels{"app": "a"})
	if err != nil || len(pods.Items) != 1 || pods.Items[0].Name != "launcher-a" {
		t.Errorf("pods of app a: %v: %v", pods.Items, err)
	}
	var nodes metav1.PartialObjectMetadataList
	nodes.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))
	if err := errors.Join(r.List(t.Context(), &nodes), r.List(t.Context(), &corev1.PodList{}, client.InNamespace("x"))); err != nil || len(nodes.Items) != 2 {
		t.Errorf("nodes: %v: %v", nodes.Items, err)
	}
}
