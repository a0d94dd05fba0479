package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuctl/gpuctl/test/cluster"
)

// A DaemonSet has one process on each node, which knows where it is, and whose
// token says so to the API server.
func TestDaemonSetRunsOnEveryNode(t *testing.T) {
	c := shared.For(t)
	runProgram(t, c)
	roots := map[string]string{"each-1": t.TempDir(), "each-2": t.TempDir()}
	for name, root := range roots {
		c.AddNode(cluster.Node{Name: name, Labels: map[string]string{"set": "each"}, Root: root})
	}
	ns := c.Namespace()
	c.Create(c.Decode(fmt.Sprintf(`
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent, namespace: %s}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec: %s`, ns, strings.Replace(podSpec("Always", "", "identity", "serve"), "{", "{nodeSelector: {set: each}, ", 1))))
	pods := map[string]corev1.Pod{}
	c.Eventually(soon, "both pods are ready", func(context.Context) error {
		clear(pods)
		for _, pod := range podsOf(t, c, ns) {
			if !isReady(&pod) {
				return fmt.Errorf("%s on %s is %s", pod.Name, pod.Spec.NodeName, pod.Status.Phase)
			}
			pods[pod.Spec.NodeName] = pod
		}
		if len(pods) != len(roots) {
			return fmt.Errorf("there are %d", len(pods))
		}
		return nil
	})
	for node, root := range roots {
		var got identity
		c.Eventually(soon, "the process has written who it is", func(context.Context) error {
			return readJSON(filepath.Join(root, "identity"), &got)
		})
		want := identity{Node: node, User: "system:serviceaccount:" + ns + ":default", TokenNode: node, TokenPod: pods[node].Name}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	if a, b := pods["each-1"].Status.PodIP, pods["each-2"].Status.PodIP; a == b {
		t.Errorf("both pods have the address %s", a)
	}
}

// The Job controller makes another pod for one that failed.
func TestJobIsTriedAgain(t *testing.T) {
	c := shared.For(t)
	runProgram(t, c)
	c.AddNode(cluster.Node{Name: "again", Root: t.TempDir()})
	ns := c.Namespace()
	c.Create(job(c, ns, "again", podSpec("Never", "terminationMessagePolicy: FallbackToLogsOnError,", "fail-once",
		"message=/dev/termination-log:done")))
	c.Eventually(soon, "the Job is complete", func(ctx context.Context) error { return jobIs(ctx, c, ns, batchv1.JobComplete) })
	got := map[corev1.PodPhase]corev1.ContainerStateTerminated{}
	for _, pod := range podsOf(t, c, ns) {
		got[pod.Status.Phase] = *pod.Status.ContainerStatuses[0].State.Terminated
	}
	want := map[corev1.PodPhase]corev1.ContainerStateTerminated{
		corev1.PodFailed:    {ExitCode: 1, Reason: "Error", Message: "failed on again\n"},
		corev1.PodSucceeded: {ExitCode: 0, Reason: "Completed", Message: "done"},
	}
	for phase, state := range got {
		if state.StartedAt.IsZero() || state.FinishedAt.IsZero() || state.ContainerID == "" {
			t.Errorf("%s: %+v", phase, state)
		}
		state.StartedAt, state.FinishedAt, state.ContainerID = metav1.Time{}, metav1.Time{}, ""
		got[phase] = state
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A pod that is killed, as by a lack of memory, has failed, and the Job
// controller tries again.
func TestKilledJobIsTriedAgain(t *testing.T) {
	c := shared.For(t)
	runProgram(t, c)
	c.AddNode(cluster.Node{Name: "killed", Root: t.TempDir()})
	ns := c.Namespace()
	c.Create(job(c, ns, "killed", podSpec("Never", "", "serve")))
	first := onlyPod(t, c, ns)
	c.KillPod(&first, syscall.SIGKILL)
	c.Eventually(soon, "another pod runs", func(context.Context) error {
		pods := podsOf(t, c, ns)
		if !slices.ContainsFunc(pods, func(p corev1.Pod) bool { return p.UID != first.UID && p.Status.Phase == corev1.PodRunning }) {
			return fmt.Errorf("there are %d pods", len(pods))
		}
		return nil
	})
	got := getPod(t, c, &first)
	if s := got.Status.ContainerStatuses[0].State.Terminated; got.Status.Phase != corev1.PodFailed || s == nil || s.ExitCode != 137 || s.Signal != 9 {
		t.Errorf("the killed pod is %s: %+v", got.Status.Phase, s)
	}
}

// A Deployment's process that ends is started again in its pod.
func TestKilledDeploymentIsStartedAgain(t *testing.T) {
	c := shared.For(t)
	runProgram(t, c)
	c.AddNode(cluster.Node{Name: "restart", Root: t.TempDir()})
	ns := c.Namespace()
	c.Create(c.Decode(fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: controller, namespace: %s}
spec:
  selector: {matchLabels: {app: controller}}
  template: {metadata: {labels: {app: controller}}, spec: %s}`, ns, onNode("restart", podSpec("Always", "", "serve")))))
	pod := onlyPod(t, c, ns)
	c.KillPod(&pod, syscall.SIGKILL)
	c.Eventually(soon, "it runs again", func(context.Context) error {
		s := getPod(t, c, &pod).Status.ContainerStatuses[0]
		if last := s.LastTerminationState.Terminated; s.State.Running == nil || s.RestartCount != 1 || last == nil || last.ExitCode != 137 {
			return fmt.Errorf("it is %+v", s)
		}
		return nil
	})
}

// Readiness and liveness are found out by asking the process at the address of
// its pod.
func TestProbes(t *testing.T) {
	c := shared.For(t)
	runProgram(t, c)
	root := t.TempDir()
	touch(t, filepath.Join(root, "not-ready"))
	c.AddNode(cluster.Node{Name: "probed", Root: root})
	ns := c.Namespace()
	const probes = `ports: [{name: health, containerPort: 8081}],
    readinessProbe: {httpGet: {path: /ready, port: health}, periodSeconds: 1},
    livenessProbe: {httpGet: {path: /healthy, port: 8081}, periodSeconds: 1, failureThreshold: 1, initialDelaySeconds: 1},`
	pod := newPod(c, ns, "probed", onNode("probed", podSpec("Always", probes, "serve")))
	readiness := func(want bool) func(context.Context) error {
		return func(context.Context) error {
			got := getPod(t, c, pod)
			if got.Status.Phase != corev1.PodRunning || isReady(got) != want {
				return fmt.Errorf("it is %s, ready %t", got.Status.Phase, isReady(got))
			}
			return nil
		}
	}
	c.Eventually(soon, "it runs and is not ready", readiness(false))
	remove(t, filepath.Join(root, "not-ready"))
	c.Eventually(soon, "it is ready", readiness(true))
	touch(t, filepath.Join(root, "not-ready"))
	c.Eventually(soon, "it is not ready any more", readiness(false))
	touch(t, filepath.Join(root, "not-healthy"))
	c.Eventually(soon, "it is started again", func(context.Context) error {
		if s := getPod(t, c, pod).Status.ContainerStatuses[0]; s.RestartCount == 0 {
			return fmt.Errorf("it is %+v", s)
		}
		return nil
	})
}

// A pod that is deleted is told to end, and killed when it does not.
func TestDeletionTakesItsTime(t *testing.T) {
	c := shared.For(t)
	runProgram(t, c)
	c.AddNode(cluster.Node{Name: "ends"})
	ns := c.Namespace()
	for name, tc := range map[string]struct {
		args     []string
		says     string
		from, to time.Duration
	}{
		"ends-soon": {args: []string{"serve"}, says: "serving", to: 1500 * time.Millisecond},
		"ends-late": {args: []string{"hang"}, says: "hanging", from: 2 * time.Second, to: 4 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			c := shared.For(t)
			pod := newPod(c, ns, name, onNode("ends", podSpec("Always", "", tc.args...)))
			c.Eventually(soon, "it serves", logSays(c, pod, tc.says))
			began, grace := time.Now(), int64(2)
			if err := c.Clientset().CoreV1().Pods(ns).Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &grace}); err != nil {
				t.Fatal(err)
			}
			c.Eventually(soon, "it is gone", func(ctx context.Context) error {
				_, err := c.Clientset().CoreV1().Pods(ns).Get(ctx, name, metav1.GetOptions{})
				if apierrors.IsNotFound(err) {
					return nil
				}
				return errors.Join(errors.New("it is there"), err)
			})
			if took := time.Since(began); took < tc.from || took > tc.to {
				t.Errorf("it took %v, want %v to %v", took, tc.from, tc.to)
			}
		})
	}
}
