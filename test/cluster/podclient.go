package cluster

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"
)

// podsGetter is the client that virtual-kubelet's controller is given, which
// writes to the API server in two ways as kubelet does and it does not.
type podsGetter struct {
	typed.PodsGetter
	kubelets *kubelets
}

// Pods returns the client for the pods of a namespace.
func (g podsGetter) Pods(namespace string) typed.PodInterface {
	return podClient{PodInterface: g.PodsGetter.Pods(namespace), namespace: namespace, kubelets: g.kubelets}
}

type podClient struct {
	typed.PodInterface
	namespace string
	kubelets  *kubelets
}

// UpdateStatus patches what kubelet reports and nothing else. The controller's
// copy of the pod is old: it would put back labels, finalizers and other
// people's conditions.
func (c podClient) UpdateStatus(ctx context.Context, pod *corev1.Pod, _ metav1.UpdateOptions) (*corev1.Pod, error) {
	return patchPodStatus(ctx, c.PodInterface, pod, pod.Status)
}

// Delete has a pod's processes ended first; the pod goes away after them. The
// controller would delete it when the time is up, and never sooner.
func (c podClient) Delete(ctx context.Context, name string, options metav1.DeleteOptions) error {
	if options.Preconditions != nil && options.Preconditions.UID != nil {
		if b := c.kubelets.sandbox(*options.Preconditions.UID); b != nil {
			b.end(graceOf(b.latest()))
			return nil
		}
	}
	if pod, err := c.kubelets.pods.Pods(c.namespace).Get(name); err == nil && !c.kubelets.stack.nodes.ours(pod.Spec.NodeName) {
		return nil // its node is somebody else's
	}
	return c.PodInterface.Delete(ctx, name, options)
}

// patchPodStatus writes a status over that of the pod with this UID.
func patchPodStatus(ctx context.Context, client typed.PodInterface, pod *corev1.Pod, status corev1.PodStatus) (*corev1.Pod, error) {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": status})
	if err != nil {
		return nil, fmt.Errorf("encode the status of pod %s: %w", pod.Name, err)
	}
	return client.Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
}
