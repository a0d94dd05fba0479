package e2e

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v3/pkg/action"
	helmcli "helm.sh/helm/v3/pkg/cli"
	"helm.sh/helm/v3/pkg/release"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuctl/gpuctl/test/cluster"
)

// quick are the values of a release without pods.
var quick = []string{"--set", "hook.enabled=false", "--set", "agent.enabled=false"}

// absent fails the test when the release has left something.
func (s *stage) absent() {
	s.t.Helper()
	list, err := s.Clientset().CoreV1().Secrets(s.namespace).List(s.t.Context(), metav1.ListOptions{LabelSelector: "owner=helm"})
	if err != nil || len(list.Items) != 0 {
		s.t.Errorf("%d revisions in namespace %s: %v", len(list.Items), s.namespace, err)
	}
}

func TestPreflight(t *testing.T) {
	t.Run("HyperConverged", func(t *testing.T) {
		s := newStage(t)
		s.PatchKubeVirt(`{"metadata":{"labels":{"app.kubernetes.io/managed-by":"hco-operator"}}}`)
		defer s.PatchKubeVirt(`{"metadata":{"labels":{"app.kubernetes.io/managed-by":null}}}`)
		if code, _, stderr := s.gpuctl("install", "--dry-run"); code != 0 || !strings.Contains(stderr, "GPU0124") {
			t.Errorf("HyperConverged: exit %d\n%s", code, stderr)
		}
	})
	t.Run("gpu-operator", func(t *testing.T) {
		s := newStage(t)
		clusterPolicy(s.Cluster, "vm-vgpu")
		if code, _, stderr := s.gpuctl("install", "--dry-run"); code != 0 || !strings.Contains(stderr, "is in mode vm-vgpu, and gpu.variant is passthrough") {
			t.Errorf("another mode: exit %d\n%s", code, stderr)
		}
		s.install(slices.Concat(quick, []string{"--set", "gpu.variant=vgpu"})...)
		if code, _, stderr := s.gpuctl("upgrade", "--dry-run"); code != 0 || strings.Contains(stderr, "GPU0126") || strings.Contains(stderr, "GPU0125") {
			t.Errorf("the same mode, by the values of the install: exit %d\n%s", code, stderr)
		}
	})
	t.Run("another release has the CRDs", func(t *testing.T) {
		first := newStage(t)
		first.install(quick...)
		s := &stage{Cluster: first.Cluster, t: t, namespace: first.namespace + "-2", release: "second"}
		if code, _, stderr := s.gpuctl(slices.Concat([]string{"install"}, quick)...); code != 1 || !strings.Contains(stderr, "were installed by the release "+first.namespace+"/"+first.release) {
			t.Errorf("exit %d\n%s", code, stderr)
		}
		s.absent()
		if _, err := s.Clientset().CoreV1().Namespaces().Get(t.Context(), s.namespace, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("namespace %s: %v", s.namespace, err)
		}
		s.install(slices.Concat(quick, []string{"--set", "crds.enabled=false"})...)
		if code, _, stderr := s.gpuctl("uninstall"); code != 0 {
			t.Errorf("uninstall: exit %d\n%s", code, stderr)
		}
		if err := s.Clientset().CoreV1().Namespaces().Delete(t.Context(), s.namespace, metav1.DeleteOptions{}); err != nil {
			t.Errorf("install has made no namespace: %v", err)
		}
	})
}

// clusterPolicy makes gpu-operator's ClusterPolicy until the test ends.
func clusterPolicy(c *cluster.Cluster, workload string) {
	c.Create(c.Decode(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: clusterpolicies.nvidia.com}
spec:
  group: nvidia.com
  scope: Cluster
  names: {kind: ClusterPolicy, plural: clusterpolicies, singular: clusterpolicy, listKind: ClusterPolicyList}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]`))
	served := c.Decode("{apiVersion: nvidia.com/v1, kind: ClusterPolicy}")
	c.Eventually(soon, "ClusterPolicies are served", func(ctx context.Context) error {
		_, err := c.Resource(served).List(ctx, metav1.ListOptions{})
		return err
	})
	c.Create(c.Decode(`{apiVersion: nvidia.com/v1, kind: ClusterPolicy, metadata: {name: cluster-policy}, spec: {sandboxWorkloads: {enabled: true, defaultWorkload: ` + workload + `}}}`))
}

// helm returns a configuration as the helm command makes it.
func (s *stage) helm() *action.Configuration {
	s.t.Helper()
	settings := helmcli.New()
	settings.KubeConfig = s.Kubeconfig()
	settings.SetNamespace(s.namespace)
	config := new(action.Configuration)
	if err := config.Init(settings.RESTClientGetter(), s.namespace, "secret", s.t.Logf); err != nil {
		s.t.Fatal(err)
	}
	return config
}

// What the release keeps as its user's values is what the user gave, and after an
// operation that was broken off there is a way on.
func TestReleaseIsKept(t *testing.T) {
	s := newStage(t)
	s.install(slices.Concat(quick, []string{"--set-string", "image.tag=1"})...)
	helm := s.helm()
	values, err := action.NewGetValues(helm).Run(s.release)
	want := map[string]any{
		"gpu": map[string]any{"enabled": true}, "hook": map[string]any{"enabled": false},
		"agent": map[string]any{"enabled": false}, "controller": map[string]any{"enabled": false}, "image": map[string]any{"tag": "1"},
	}
	if diff := cmp.Diff(want, values); err != nil || diff != "" {
		t.Errorf("helm get values: %v\n%s", err, diff)
	}

	if code, _, stderr := s.gpuctl("upgrade"); code != 0 {
		t.Errorf("upgrade: exit %d\n%s", code, stderr)
	}
	if after, err := action.NewGetValues(helm).Run(s.release); err != nil || cmp.Diff(want, after) != "" {
		t.Errorf("helm get values after an upgrade: %v\n%s", err, cmp.Diff(want, after))
	}

	last, err := helm.Releases.Last(s.release)
	if err != nil {
		t.Fatal(err)
	}
	last.Info.Status = release.StatusPendingUpgrade // helm was killed
	if err := helm.Releases.Update(last); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"install", "upgrade"} {
		if code, _, stderr := s.gpuctl(command); code != 1 || !strings.Contains(stderr, "helm rollback -n "+s.namespace+" "+s.release) {
			t.Errorf("%s while another is pending: exit %d\n%s", command, code, stderr)
		}
	}
	if code, _, stderr := s.gpuctl("uninstall"); code != 0 {
		t.Errorf("uninstall: exit %d\n%s", code, stderr)
	}
	if list, err := action.NewList(helm).Run(); err != nil || len(list) != 0 {
		t.Errorf("helm list after the uninstall: %v, %v", list, err)
	}
}

// A hook that never ends is named, and keeps no release from being deleted.
func TestHookThatCannotRun(t *testing.T) {
	s := newStage(t)
	s.Script(func(*corev1.Pod) cluster.Outcome { return cluster.Outcome{Phase: corev1.PodPending} })
	s.install(quick...)
	code, _, stderr := s.gpuctl("upgrade", "--timeout", "5s", "--set", "hook.enabled=true", "--set", "image.repository=registry.example/nowhere")
	for _, want := range []string{
		"post-upgrade hooks failed: timed out waiting for the condition; the hook says:\n", "ImagePullBackOff",
		"see: kubectl -n " + s.namespace + " logs job/" + s.release + "-wire",
	} {
		if code != 1 || !strings.Contains(stderr, want) {
			t.Errorf("upgrade: exit %d, no %q in\n%s", code, want, stderr)
		}
	}
	code, _, stderr = s.gpuctl("uninstall", "--timeout", "5s")
	for _, want := range []string{"GPU0107", "hook job/" + s.release + "-unwire: timed out waiting for the condition\n", "gpuctl wire --remove", "is uninstalled"} {
		if code != 0 || !strings.Contains(stderr, want) {
			t.Errorf("uninstall: exit %d, no %q in\n%s", code, want, stderr)
		}
	}
	if list, err := action.NewList(s.helm()).Run(); err != nil || len(list) != 0 {
		t.Errorf("helm list after the uninstall: %v, %v", list, err)
	}
}
