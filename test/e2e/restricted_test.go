package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// Every pod of every rendering is admitted where the Pod Security Standard
// "restricted" is enforced, and would not be if any of what it asks were missing.
func TestEveryPodIsRestricted(t *testing.T) {
	s := newStage(t)
	renderings := map[string]string{
		"passthrough": "{}",
		"vgpu":        "gpu: {variant: vgpu}",
		"everything": `{hook: {podAnnotations: {a: b}, nodeSelector: {a: b}, tolerations: [{operator: Exists}], forceRemove: true},
agent: {podAnnotations: {a: b}, nodeSelector: {a: b}, priorityClassName: system-node-critical},
controller: {podAnnotations: {a: b}, nodeSelector: {a: b}, tolerations: [{operator: Exists}], metrics: {enabled: false}}, imagePullSecrets: [{name: pull}]}`,
	}
	weaker := map[string]struct {
		weaken func(*corev1.PodSpec)
		want   string
	}{
		"root":          {func(p *corev1.PodSpec) { *p.SecurityContext.RunAsUser = 0 }, "runAsUser=0"},
		"maybe root":    {func(p *corev1.PodSpec) { p.SecurityContext.RunAsNonRoot = nil }, "runAsNonRoot != true"},
		"no seccomp":    {func(p *corev1.PodSpec) { p.SecurityContext.SeccompProfile = nil }, "seccompProfile"},
		"escalation":    {func(p *corev1.PodSpec) { p.Containers[0].SecurityContext.AllowPrivilegeEscalation = nil }, "allowPrivilegeEscalation != false"},
		"capabilities":  {func(p *corev1.PodSpec) { p.Containers[0].SecurityContext.Capabilities = nil }, "unrestricted capabilities"},
		"host network":  {func(p *corev1.PodSpec) { p.HostNetwork = true }, "host namespaces"},
		"the host's fs": {func(p *corev1.PodSpec) { p.Volumes = append(p.Volumes, hostPath()) }, "hostPath"},
	}
	for name, values := range renderings {
		t.Run(name, func(t *testing.T) {
			pods := s.pods(t, values)
			if len(pods) != 4 {
				t.Fatalf("%d pods are rendered, want the agent's, the controller's and the hook's two", len(pods))
			}
			for what, pod := range pods {
				if err := s.admit(t.Context(), pod); err != nil {
					t.Errorf("%s: %v", what, err)
				}
				if readOnly := pod.Containers[0].SecurityContext.ReadOnlyRootFilesystem; readOnly == nil || !*readOnly {
					t.Errorf("%s can write to its root file system", what)
				}
				for how, tc := range weaker {
					loose := pod.DeepCopy()
					tc.weaken(loose)
					if err := s.admit(t.Context(), loose); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), tc.want) {
						t.Errorf("%s with %s is answered with %v, want %q", what, how, err, tc.want)
					}
				}
			}
		})
	}
}

func hostPath() corev1.Volume {
	return corev1.Volume{Name: "sys", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/sys"}}}
}

// pods returns the pods that install would make of values, by kind and name of what
// makes them.
func (s *stage) pods(t *testing.T, values string) map[string]*corev1.PodSpec {
	t.Helper()
	file := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, []byte(values), 0o600); err != nil {
		t.Fatal(err)
	}
	code, manifest, stderr := s.gpuctl("install", "--dry-run", "-f", file)
	if code != 0 {
		t.Fatalf("install: exit %d\n%s", code, stderr)
	}
	out := map[string]*corev1.PodSpec{}
	for document := range strings.SplitSeq("\n"+manifest, "\n---") {
		if !strings.Contains(document, "\nkind:") {
			continue
		}
		if u := s.Decode(document); hasPods(u) {
			out[u.GetKind()+" "+u.GetName()] = podOf(t, u)
		}
	}
	return out
}

func hasPods(u *unstructured.Unstructured) bool {
	_, found, _ := unstructured.NestedMap(u.Object, "spec", "template", "spec")
	return found
}

func podOf(t *testing.T, u *unstructured.Unstructured) *corev1.PodSpec {
	t.Helper()
	var (
		daemons  appsv1.DaemonSet
		replicas appsv1.Deployment
		job      batchv1.Job
		err      error
	)
	spec := &daemons.Spec.Template.Spec
	switch u.GetKind() {
	case "DaemonSet":
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &daemons)
	case "Deployment":
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &replicas)
		spec = &replicas.Spec.Template.Spec
	case "Job":
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &job)
		spec = &job.Spec.Template.Spec
	default:
		t.Fatalf("%s %s makes pods, and this test does not know how", u.GetKind(), u.GetName())
	}
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

// admit asks the API server whether it would take a pod. The pod's account is not
// there in a dry run, and the standard does not ask for it.
func (s *stage) admit(ctx context.Context, spec *corev1.PodSpec) error {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "asked"}, Spec: *spec.DeepCopy()}
	pod.Spec.ServiceAccountName = "default"
	_, err := s.Clientset().CoreV1().Pods(s.namespace).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}
