package cluster_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuctl/gpuctl/test/cluster"
)

// A process finds what its pod describes, and nothing of the test's environment.
func TestSurroundings(t *testing.T) {
	t.Setenv("OF_THE_TEST", "secret")
	c := shared.For(t)
	runProgram(t, c)
	root := t.TempDir()
	c.AddNode(cluster.Node{Name: "described", Root: root})
	ns := c.Namespace()
	c.Create(c.Decode("{apiVersion: v1, kind: ConfigMap, metadata: {name: cm, namespace: " + ns + "}, data: {key: of-cm, path: /etc/cm/key}}"))
	c.Create(c.Decode("{apiVersion: v1, kind: Secret, metadata: {name: s, namespace: " + ns + "}, stringData: {key: of-secret}}"))
	out := filepath.Join(root, "described")
	pod := c.Create(c.Decode(fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: described, namespace: %s, labels: {app: x}, annotations: {note: "a b"}}
spec:
  nodeName: described
  restartPolicy: Never
  containers:
  - name: main
    image: %s@sha256:%064d
    command: [/ko-app/program]
    args: ["describe=%s", "say=$(PLAIN) $$(PLAIN) $(NONE)", "say=/etc/cm/key /etc/cmx"]
    resources: {limits: {cpu: 1500m}}
    envFrom: [{prefix: CM_, configMapRef: {name: cm}}, {secretRef: {name: none, optional: true}}]
    env:
    - {name: GPUCTL_POD_PROGRAM, value: "1"}
    - {name: PLAIN, value: plain}
    - {name: COMPOSED, value: "<$(PLAIN)>"}
    - {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
    - {name: LABEL, valueFrom: {fieldRef: {fieldPath: "metadata.labels['app']"}}}
    - {name: NOTE, valueFrom: {fieldRef: {fieldPath: "metadata.annotations['note']"}}}
    - {name: ACCOUNT, valueFrom: {fieldRef: {fieldPath: spec.serviceAccountName}}}
    - {name: CPU, valueFrom: {resourceFieldRef: {resource: limits.cpu}}}
    - {name: SECRET, valueFrom: {secretKeyRef: {name: s, key: key}}}
    - {name: FILES, value: "/etc/cm/key /etc/all/secret /etc/all/labels"}
    volumeMounts: [{name: cm, mountPath: /etc/cm}, {name: all, mountPath: /etc/all}]
  volumes:
  - {name: cm, configMap: {name: cm}}
  - name: all
    projected:
      sources:
      - {secret: {name: s, items: [{key: key, path: secret}]}}
      - {downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}]}}`, ns, programImage, 0, out)))
	var got surroundings
	c.Eventually(soon, "the process has looked around", func(ctx context.Context) error {
		if err := readJSON(out, &got); err != nil {
			p, _ := c.Clientset().CoreV1().Pods(ns).Get(ctx, pod.GetName(), metav1.GetOptions{})
			return fmt.Errorf("%w; %+v", err, p.Status)
		}
		return nil
	})
	local := strings.Fields(got.Env["FILES"])[0] // where /etc/cm/key is here
	env := map[string]string{}
	for _, name := range []string{"OF_THE_TEST", "CM_key", "CM_path", "COMPOSED", "NODE", "LABEL", "NOTE", "ACCOUNT", "CPU", "SECRET", "GPUCTL_HOST_ROOT"} {
		env[name] = got.Env[name]
	}
	wantEnv := map[string]string{
		"OF_THE_TEST": "", "CM_key": "of-cm", "CM_path": local, "COMPOSED": "<plain>", "NODE": "described", "LABEL": "x", "NOTE": "a b",
		"ACCOUNT": "default", "CPU": "2", "SECRET": "of-secret", "GPUCTL_HOST_ROOT": root,
	}
	if diff := cmp.Diff(wantEnv, env); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"key": "of-cm", "secret": "of-secret", "labels": `app="x"`}, got.Files); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	wantArgs := []string{"describe=" + out, "say=plain $(PLAIN) $(NONE)", "say=" + local + " /etc/cmx"}
	if diff := cmp.Diff(wantArgs, got.Args); diff != "" {
		t.Errorf("arguments (-want +got):\n%s", diff)
	}
}

// A pod waits for a ConfigMap that its environment is made of.
func TestMissingConfigMapIsAwaited(t *testing.T) {
	c := shared.For(t)
	runProgram(t, c)
	c.AddNode(cluster.Node{Name: "awaits"})
	ns := c.Namespace()
	spec := strings.Replace(podSpec("Never", "", "exit=0"), "env: [", "env: [{name: A, valueFrom: {configMapKeyRef: {name: late, key: a}}}, ", 1)
	pod := newPod(c, ns, "awaits", onNode("awaits", spec))
	c.Eventually(soon, "it waits", func(context.Context) error {
		w := getPod(t, c, pod).Status.ContainerStatuses[0].State.Waiting
		if w == nil || w.Reason != "CreateContainerConfigError" || w.Message != `configmap "late" not found` {
			return fmt.Errorf("it is %+v", w)
		}
		return nil
	})
	c.Create(c.Decode("{apiVersion: v1, kind: ConfigMap, metadata: {name: late, namespace: " + ns + "}, data: {a: b}}"))
	c.Eventually(soon, "it has succeeded", phaseIs(t, c, pod, corev1.PodSucceeded))
}

// What initializes a pod ends first.
func TestInitContainersRunFirst(t *testing.T) {
	c := shared.For(t)
	runProgram(t, c)
	c.AddNode(cluster.Node{Name: "initial", Root: t.TempDir()})
	ns := c.Namespace()
	init := fmt.Sprintf(`{initContainers: [{name: first, image: %q, args: [fail-once], env: [{name: %s, value: "1"}]}], `, programImage, asProgram)
	spec := strings.Replace(podSpec("OnFailure", "", "exit=0"), "{", init, 1)
	pod := newPod(c, ns, "initial", onNode("initial", spec))
	c.Eventually(soon, "it has succeeded", phaseIs(t, c, pod, corev1.PodSucceeded))
	got := getPod(t, c, pod)
	first, main := got.Status.InitContainerStatuses[0], got.Status.ContainerStatuses[0]
	if first.RestartCount != 1 || main.RestartCount != 0 || main.State.Terminated.StartedAt.Before(&first.State.Terminated.FinishedAt) {
		t.Errorf("first %+v, then %+v", first, main)
	}
}

// What others write into a pod stays when its status is reported.
func TestStatusOfOthersStays(t *testing.T) {
	c := shared.For(t)
	runProgram(t, c)
	c.AddNode(cluster.Node{Name: "stays"})
	ns := c.Namespace()
	pod := newPod(c, ns, "stays", onNode("stays", podSpec("Always", "", "serve")))
	c.Eventually(soon, "it serves", logSays(c, pod, "serving"))
	pods := c.Clientset().CoreV1().Pods(ns)
	if _, err := pods.Patch(t.Context(), "stays", types.MergePatchType, []byte(`{"metadata":{"labels":{"later":"yes"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	const condition = `{"status":{"conditions":[{"type":"example.com/Kept","status":"True","reason":"Test"}]}}`
	if _, err := pods.Patch(t.Context(), "stays", types.StrategicMergePatchType, []byte(condition), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	c.KillPod(pod, syscall.SIGKILL)
	c.Eventually(soon, "it was started again", func(context.Context) error {
		if s := getPod(t, c, pod).Status.ContainerStatuses[0]; s.RestartCount == 0 {
			return fmt.Errorf("it is %+v", s)
		}
		return nil
	})
	got := getPod(t, c, pod)
	kept := got.Labels["later"] == "yes"
	for _, kind := range []corev1.PodConditionType{"example.com/Kept", corev1.PodScheduled} {
		found := false
		for _, condition := range got.Status.Conditions {
			found = found || condition.Type == kind && condition.Status == corev1.ConditionTrue
		}
		kept = kept && found
	}
	if !kept {
		t.Errorf("labels %v, conditions %+v", got.Labels, got.Status.Conditions)
	}
}

// A pod may name a node that comes later.
func TestPodBeforeItsNode(t *testing.T) {
	c := shared.For(t)
	runProgram(t, c)
	ns := c.Namespace()
	spec := strings.Replace(podSpec("Never", "", "exit=0"), "{", "{nodeName: later, ", 1)
	pod := newPod(c, ns, "early", spec)
	c.AddNode(cluster.Node{Name: "later"})
	c.Eventually(soon, "it has succeeded", phaseIs(t, c, pod, corev1.PodSucceeded))
}

func phaseIs(t *testing.T, c *cluster.Cluster, pod *corev1.Pod, want corev1.PodPhase) func(context.Context) error {
	t.Helper()
	return func(context.Context) error {
		if got := getPod(t, c, pod); got.Status.Phase != want {
			return fmt.Errorf("it is %s: %+v", got.Status.Phase, got.Status.ContainerStatuses)
		}
		return nil
	}
}
