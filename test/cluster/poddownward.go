package cluster

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// field returns what the downward API says about a field of the pod.
func (b *sandbox) field(pod *corev1.Pod, path string) (string, error) {
	fields := map[string]string{
		"metadata.name": pod.Name, "metadata.namespace": pod.Namespace, "metadata.uid": string(pod.UID),
		"metadata.labels": formatMap(pod.Labels), "metadata.annotations": formatMap(pod.Annotations),
		"spec.nodeName": pod.Spec.NodeName, "spec.serviceAccountName": pod.Spec.ServiceAccountName,
		"status.podIP": b.ip, "status.podIPs": b.ip, "status.hostIP": b.hostIP, "status.hostIPs": b.hostIP,
	}
	if value, ok := fields[path]; ok {
		return value, nil
	}
	base, key, ok := strings.Cut(strings.TrimSuffix(path, "']"), "['")
	switch {
	case ok && base == "metadata.labels":
		return pod.Labels[key], nil
	case ok && base == "metadata.annotations":
		return pod.Annotations[key], nil
	}
	return "", fmt.Errorf("unsupported fieldPath: %s", path)
}

// formatMap writes labels or annotations as the files of the downward API have
// them.
func formatMap(m map[string]string) string {
	var lines []string
	for _, key := range slices.Sorted(maps.Keys(m)) {
		lines = append(lines, key+"="+strconv.Quote(m[key]))
	}
	return strings.Join(lines, "\n")
}

// resourceField returns what the downward API says about a request or limit. A
// limit that is not set is what the node has.
func (b *sandbox) resourceField(ctx context.Context, pod *corev1.Pod, container string, ref *corev1.ResourceFieldSelector) (string, error) {
	if ref.ContainerName != "" {
		container = ref.ContainerName
	}
	at := slices.IndexFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == container })
	if at < 0 {
		return "", fmt.Errorf("container %s not found", container)
	}
	kind, name, _ := strings.Cut(ref.Resource, ".")
	resources := pod.Spec.Containers[at].Resources
	amount := resources.Requests[corev1.ResourceName(name)]
	if kind == "limits" {
		limit, ok := resources.Limits[corev1.ResourceName(name)]
		if !ok {
			node, err := b.kubelets.stack.clientset.CoreV1().Nodes().Get(ctx, b.node, metav1.GetOptions{})
			if err != nil {
				return "", err
			}
			limit = node.Status.Allocatable[corev1.ResourceName(name)]
		}
		amount = limit
	}
	divisor := ref.Divisor
	if divisor.IsZero() {
		return strconv.FormatInt(amount.Value(), 10), nil // rounded up
	}
	n, d := amount.Value(), divisor.Value()
	if name == string(corev1.ResourceCPU) {
		n, d = amount.MilliValue(), divisor.MilliValue()
	}
	return strconv.FormatInt((n+d-1)/d, 10), nil
}
