package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// lackOfDevices says, in kubelet's words, that the node has fewer devices left
// than a pod asks for; "" if it has enough. The scheduler has seen to that, but
// devices may have failed since, and pods may name their node.
func (k *kubelets) lackOfDevices(ctx context.Context, pod *corev1.Pod) (string, error) {
	asked := devicesOf(pod)
	if len(asked) == 0 {
		return "", nil
	}
	node, err := k.stack.clientset.CoreV1().Nodes().Get(ctx, pod.Spec.NodeName, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	pods, err := k.pods.List(labels.Everything())
	if err != nil {
		return "", err
	}
	used := map[corev1.ResourceName]int64{}
	for _, other := range pods {
		if other.Spec.NodeName != node.Name || ended(other.Status.Phase) || k.sandbox(other.UID) == nil {
			continue
		}
		for name, amount := range devicesOf(other) {
			used[name] += amount
		}
	}
	var lacks []string
	for name, amount := range asked {
		has := node.Status.Allocatable[name]
		if left := max(0, has.Value()-used[name]); left < amount {
			lacks = append(lacks, fmt.Sprintf(
				"Pod was rejected: Allocate failed due to requested number of devices unavailable for %s. Requested: %d, Available: %d, which is unexpected",
				name, amount, left))
		}
	}
	if len(lacks) == 0 {
		return "", nil
	}
	return slices.Min(lacks), nil
}

// devicesOf returns how many devices of each extended resource a pod's
// containers ask for.
func devicesOf(pod *corev1.Pod) map[corev1.ResourceName]int64 {
	sum := map[corev1.ResourceName]int64{}
	for _, c := range pod.Spec.Containers {
		for name, amount := range c.Resources.Limits {
			if strings.Contains(string(name), "/") && !strings.Contains(string(name), "kubernetes.io/") {
				sum[name] += amount.Value()
			}
		}
	}
	return sum
}
