package cluster_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuctl/gpuctl/test/cluster"
)

func job(c *cluster.Cluster, ns, node, spec string) *unstructured.Unstructured {
	return c.Decode(fmt.Sprintf(`
apiVersion: batch/v1
kind: Job
metadata: {name: hook, namespace: %s}
spec: {backoffLimit: 3, template: {spec: %s}}`, ns, onNode(node, spec)))
}

func jobIs(ctx context.Context, c *cluster.Cluster, ns string, want batchv1.JobConditionType) error {
	got, err := c.Clientset().BatchV1().Jobs(ns).Get(ctx, "hook", metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, condition := range got.Status.Conditions {
		if condition.Type == want && condition.Status == corev1.ConditionTrue {
			return nil
		}
	}
	return fmt.Errorf("its status is %+v", got.Status)
}

func onNode(node, spec string) string {
	return strings.Replace(spec, "{", "{nodeSelector: {kubernetes.io/hostname: "+node+"}, ", 1)
}

// newPod makes a pod.
func newPod(c *cluster.Cluster, ns, name, spec string) *corev1.Pod {
	u := c.Create(c.Decode(fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: %s}, spec: %s}", name, ns, spec)))
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: u.GetName(), Namespace: ns, UID: u.GetUID()}}
}

func podsOf(t *testing.T, c *cluster.Cluster, ns string) []corev1.Pod {
	t.Helper()
	list, err := c.Clientset().CoreV1().Pods(ns).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

func onlyPod(t *testing.T, c *cluster.Cluster, ns string) (pod corev1.Pod) {
	t.Helper()
	c.Eventually(soon, "there is one pod", func(context.Context) error {
		pods := podsOf(t, c, ns)
		if len(pods) != 1 {
			return fmt.Errorf("there are %d", len(pods))
		}
		pod = pods[0]
		return nil
	})
	return pod
}

func getPod(t *testing.T, c *cluster.Cluster, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	got, err := c.Clientset().CoreV1().Pods(pod.Namespace).Get(t.Context(), pod.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Status.ContainerStatuses) == 0 {
		got.Status.ContainerStatuses = make([]corev1.ContainerStatus, 1)
	}
	return got
}

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// logSays checks that the log that the API server shows holds a text.
func logSays(c *cluster.Cluster, pod *corev1.Pod, want string) func(context.Context) error {
	return func(ctx context.Context) error {
		data, err := c.Clientset().CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{}).DoRaw(ctx)
		if err == nil && !strings.Contains(string(data), want) {
			err = fmt.Errorf("its log is %q", data)
		}
		return err
	}
}

func readJSON(path string, into any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

func touch(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}
