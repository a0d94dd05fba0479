package cluster

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/internal/manifest"
)

// eachPod lists pods. Clusters have more of them than of all else together, and most of
// them have nothing to do with GPUs: so they come as protobuf, which costs the API server
// and gpuctl a fraction of JSON, and page by page, of which nothing but what take keeps is
// held.
func (c *Client) eachPod(ctx context.Context, namespace string, opts metav1.ListOptions, take func(*corev1.Pod) error) error {
	opts.Limit = pageSize
	for {
		page, err := c.compact.CoreV1().Pods(namespace).List(ctx, opts)
		if err != nil {
			return err
		}
		for i := range page.Items {
			if err := take(&page.Items[i]); err != nil {
				return err
			}
		}
		if opts.Continue = page.Continue; opts.Continue == "" {
			return nil
		}
	}
}

// listPods lists the pods that matter, reduced to what is looked at.
func (c *Client) listPods(ctx context.Context, namespace string, opts metav1.ListOptions) (out []manifest.Document, err error) {
	err = c.eachPod(ctx, namespace, opts, func(pod *corev1.Pod) error {
		if !relevant(pod) {
			return nil
		}
		d, err := c.podDocument(lookedAt(pod))
		out = append(out, d)
		return err
	})
	return out, err
}

// podDocument returns a pod as a document.
func (c *Client) podDocument(pod *corev1.Pod) (manifest.Document, error) {
	pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pod)
	if err != nil {
		return manifest.Document{}, fmt.Errorf("read Pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return manifest.Live(c.server, object), nil
}

// relevant reports a pod that readPod keeps, or one of an agent.
func relevant(pod *corev1.Pod) bool {
	if pod.Labels["kubevirt.io"] == "virt-launcher" || pod.Labels[v1alpha1.LabelPartOf] == v1alpha1.PartOf || operandOf(pod) != "" {
		return true
	}
	for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			for name := range list[i].Resources.Limits {
				if strings.Contains(string(name), "/") {
					return true
				}
			}
		}
	}
	return false
}

// lookedAt returns the part of a pod that the readers look at.
func lookedAt(pod *corev1.Pod) *corev1.Pod {
	containers := func(list []corev1.Container) []corev1.Container {
		var out []corev1.Container
		for _, c := range list {
			out = append(out, corev1.Container{Name: c.Name, Image: c.Image, Resources: c.Resources, RestartPolicy: c.RestartPolicy})
		}
		return out
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID, Labels: pod.Labels, OwnerReferences: pod.OwnerReferences,
			CreationTimestamp: pod.CreationTimestamp, DeletionTimestamp: pod.DeletionTimestamp,
		},
		Spec: corev1.PodSpec{
			NodeName: pod.Spec.NodeName, Affinity: pod.Spec.Affinity, Overhead: pod.Spec.Overhead, Resources: pod.Spec.Resources,
			Containers: containers(pod.Spec.Containers), InitContainers: containers(pod.Spec.InitContainers),
		},
		Status: corev1.PodStatus{
			Phase: pod.Status.Phase, Reason: pod.Status.Reason, Message: pod.Status.Message, Conditions: pod.Status.Conditions,
			ContainerStatuses: pod.Status.ContainerStatuses, InitContainerStatuses: pod.Status.InitContainerStatuses,
		},
	}
}
