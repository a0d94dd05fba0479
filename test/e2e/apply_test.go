package e2e

import (
	"context"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuctl/gpuctl/internal/cluster"
	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/internal/manifest"
	"github.com/gpuctl/gpuctl/internal/patch"
	harness "github.com/gpuctl/gpuctl/test/cluster"
)

// faulty is the real API server with something happening around an update.
type faulty struct {
	patch.Store
	before func() error // an error is returned instead of updating
	after  func() error // an error is returned although the update was made
	writes int
}

func (f *faulty) Update(ctx context.Context, d *manifest.Document, obj manifest.Object) (manifest.Object, error) {
	f.writes++
	if f.before != nil {
		if err := f.before(); err != nil {
			return nil, err
		}
	}
	stored, err := f.Store.Update(ctx, d, obj)
	if err != nil {
		return nil, err
	}
	if f.after != nil {
		if err := f.after(); err != nil {
			return nil, err
		}
	}
	return stored, nil
}

// applied plans one entry for the live KubeVirt CR through a faulty store.
func applied(t *testing.T, c *harness.Cluster, f *faulty) (patch.Applied, error) {
	t.Helper()
	client, err := cluster.ForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	docs, _, err := client.Gather(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	facts, err := cluster.Read(docs)
	if err != nil {
		t.Fatal(err)
	}
	target, err := patch.ChooseDeployed(facts.Targets)
	if err != nil {
		t.Fatal(err)
	}
	f.Store = client
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	return patch.Apply(ctx, f, patch.Input{
		Target: target, WorkloadsKnown: true, Permits: []patch.Permit{{ID: gpu.ID{Vendor: 0x8086, Device: 0x37c8}, Name: "intel.com/qat"}},
	}, patch.Plan)
}

// Somebody writes between every read and write of the first three attempts.
func TestConflictIsTriedAgain(t *testing.T) {
	c := shared.For(t)
	c.PatchKubeVirt(`{"metadata":{"annotations":{"gpuctl.dev/wired":null}},"spec":{"configuration":{"permittedHostDevices":{"pciHostDevices":[]}}}}`)
	left := 3
	f := &faulty{before: func() error {
		if left == 0 {
			return nil
		}
		left--
		return appendEntry(c, "example.com/theirs")
	}}
	done, err := applied(t, c, f)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"example.com/theirs", "example.com/theirs", "example.com/theirs", "intel.com/qat"}
	if got := permitted(kubeVirt(t, c)); !slices.Equal(got, want) || f.writes != 4 {
		t.Errorf("permitted %v after %d writes", got, f.writes)
	}
	before, err := patch.TableOf(&patch.Target{Document: manifest.Live("", done.Before)}, done.Before)
	if err != nil || len(before.Entries) != 3 {
		t.Errorf("the plan that was written was made of %v, %v", before.Entries, err)
	}
}

// The answer to a write that was made gets lost: it counts as made.
func TestLostAnswer(t *testing.T) {
	c := shared.For(t)
	unwired(c)
	f := &faulty{}
	f.after = func() error {
		if f.writes == 1 {
			return syscall.ECONNRESET
		}
		return nil
	}
	done, err := applied(t, c, f)
	if err != nil || len(done.Changes) != 2 || f.writes != 1 {
		t.Errorf("%d changes, %v, after %d writes", len(done.Changes), err, f.writes)
	}
}

// A server that never takes the write is given up on, with its own last word.
func TestGivesUp(t *testing.T) {
	c := shared.For(t)
	unwired(c)
	check := untouched(t, c)
	f := &faulty{before: func() error { return syscall.ECONNREFUSED }}
	_, err := applied(t, c, f)
	if err == nil || !strings.Contains(err.Error(), "gave up") || !strings.Contains(err.Error(), "connection refused") || f.writes < 3 {
		t.Errorf("%v after %d writes", err, f.writes)
	}
	check()
}

// The release of the device plugin is read from the pods that its DaemonSet
// controls; a tenant's pod with the same labels tells nothing.
func TestPluginRelease(t *testing.T) {
	c := shared.For(t)
	unwired(c)
	c.AddNode(gpuNode("worker-1", h200, 0))
	ns := c.Namespace()
	labels := map[string]string{"app": "kubevirt-gpu-device-plugin"}
	const image = "nvcr.io/nvidia/kubevirt-gpu-device-plugin:"
	pod := func(tag string) corev1.PodTemplateSpec {
		return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "plugin", Image: image + tag}}}}
	}
	set := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "plugin", Namespace: ns},
		Spec:       appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: pod("v1.2.4")},
	}
	if _, err := c.Clientset().AppsV1().DaemonSets(ns).Create(t.Context(), set, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	fake := pod("v1.6.0")
	fake.Spec.NodeName = "worker-1"
	if _, err := c.Clientset().CoreV1().Pods(ns).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "tenant", Labels: labels}, Spec: fake.Spec,
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// 2335 has no name in v1.2.4's pci.ids.
	c.Eventually(soon, "the plugin's pod is on the node", func(context.Context) error {
		_, stderr := succeed(t, c, "wire", "--dry-run", "--lspci", "worker-1=../demo/testdata/worker-1.lspci")
		if !strings.Contains(stderr, "10DE:2335 as nvidia.com/2335") || !strings.Contains(stderr, "v1.2.4") {
			return errorf("%s", stderr)
		}
		return nil
	})
}

// A legacy ConfigMap beside the CR is reported.
func TestLegacyConfigMap(t *testing.T) {
	c := shared.For(t)
	u := c.Create(c.Decode("{apiVersion: v1, kind: ConfigMap, metadata: {name: kubevirt-config, namespace: kubevirt}, data: {feature-gates: GPU}}"))
	defer deleteAnyway(t, c, u)
	if _, stderr := succeed(t, c, "wire", "--dry-run"); !strings.Contains(stderr, "GPU0315") {
		t.Errorf("stderr lacks GPU0315:\n%s", stderr)
	}
}
