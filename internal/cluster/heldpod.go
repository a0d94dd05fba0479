package cluster

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuctl/gpuctl/internal/usage"
)

// heldPod is what a cache holds of a pod, in place of it: of a corev1.Pod the empty one
// has more than a kilobyte. Nothing changes it.
type heldPod struct {
	*metav1.ObjectMeta // an empty one: who it is, is said here
	namespace, name    string
	uid                types.UID
	version            string

	node      string       // "" for one that takes nothing of a node
	requested amounts      // in all
	counts    *usage.Pod   // nil where books need nothing of it
	plugin    *pluginThere // nil where it is no pod of the device plugin
}

// pluginThere is a pod of the device plugin on a node.
type pluginThere struct {
	node string
	plugin
}

// GetNamespace implements metav1.Object.
func (h *heldPod) GetNamespace() string { return h.namespace }

// GetName implements metav1.Object.
func (h *heldPod) GetName() string { return h.name }

// GetUID implements metav1.Object.
func (h *heldPod) GetUID() types.UID { return h.uid }

// GetResourceVersion implements metav1.Object.
func (h *heldPod) GetResourceVersion() string { return h.version }

// GetObjectMeta implements metav1.ObjectMetaAccessor.
func (h *heldPod) GetObjectMeta() metav1.Object { return h }

// GetObjectKind implements runtime.Object.
func (*heldPod) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object.
func (h *heldPod) DeepCopyObject() runtime.Object {
	out := *h
	return &out
}

// pod returns what is held of a pod.
func (p *pool) pod(pod *corev1.Pod) *heldPod {
	out := &heldPod{ObjectMeta: &p.none, namespace: p.text(pod.Namespace), name: pod.Name, uid: pod.UID, version: pod.ResourceVersion}
	if pod.Spec.NodeName != "" && !ended(pod) {
		out.node, out.requested = p.text(pod.Spec.NodeName), share(p, requested(pod))
	}
	if counts, ok := PodOf(pod); ok {
		counts.Namespace, counts.Node = out.namespace, p.text(counts.Node)
		counts.Level = share(p, counts.Level)
		for i := range counts.Containers {
			counts.Containers[i] = share(p, counts.Containers[i])
		}
		for i := range counts.Init {
			counts.Init[i].Requests = share(p, counts.Init[i].Requests)
		}
		out.counts = &counts
	}
	if node, there, ok := pluginOf(pod); ok {
		there.namespace, there.set = out.namespace, types.UID(p.text(string(there.set)))
		out.plugin = &pluginThere{p.text(node), there}
	}
	return out
}

// leanPlugin is what is looked at of a pod of the device plugin.
func leanPlugin(pod *corev1.Pod) *corev1.Pod {
	out := &corev1.Pod{ObjectMeta: identity(&pod.ObjectMeta), Status: corev1.PodStatus{Phase: pod.Status.Phase}}
	out.OwnerReferences = pod.OwnerReferences
	containers := func(list []corev1.Container) (held []corev1.Container) {
		for i := range list {
			held = append(held, corev1.Container{Image: list[i].Image, Resources: *heldResources(&list[i].Resources), RestartPolicy: list[i].RestartPolicy})
		}
		return held
	}
	out.Spec.NodeName, out.Spec.Resources = pod.Spec.NodeName, heldResources(pod.Spec.Resources)
	out.Spec.Containers, out.Spec.InitContainers = containers(pod.Spec.Containers), containers(pod.Spec.InitContainers)
	return out
}

func heldResources(r *corev1.ResourceRequirements) *corev1.ResourceRequirements {
	if r == nil {
		return nil
	}
	held := func(list corev1.ResourceList) (out corev1.ResourceList) {
		for name, q := range list {
			if !extended(string(name)) {
				continue
			}
			if out == nil {
				out = corev1.ResourceList{}
			}
			out[name] = q
		}
		return out
	}
	return &corev1.ResourceRequirements{Requests: held(r.Requests), Limits: held(r.Limits)}
}
