package cluster

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/internal/manifest"
	"github.com/gpuctl/gpuctl/internal/usage"
)

// OtherPods reads the pods that a [Survey] leaves out, since they have nothing to do with
// GPUs: of each what it takes of its node.
func (c *Client) OtherPods(ctx context.Context) (out []manifest.Document, err error) {
	options := metav1.ListOptions{FieldSelector: "status.phase!=Succeeded,status.phase!=Failed"}
	err = c.eachPod(ctx, metav1.NamespaceAll, options, func(pod *corev1.Pod) error {
		if relevant(pod) {
			return nil
		}
		d, err := c.podDocument(otherPod(pod))
		out = append(out, d)
		return err
	})
	return out, c.Explain(err)
}

// otherPod is what such a pod takes of its node.
func otherPod(pod *corev1.Pod) *corev1.Pod {
	out := &corev1.Pod{ObjectMeta: identity(&pod.ObjectMeta), Status: corev1.PodStatus{Phase: pod.Status.Phase}}
	out.Spec.NodeName = pod.Spec.NodeName
	out.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: requests(pod)}}}
	return out
}

// RoomOf returns what nodes have for launchers, by documents of [ByName]: as [View.Room]
// has it from a cluster. It is nil where no node says what CPU it has, as in a bundle.
// Resources that leaveOut names, the GPUs, are not counted.
func RoomOf(docs []manifest.Document, leaveOut func(corev1.ResourceName) bool) *Room {
	r, told := newRoom(), false
	var devices []*v1alpha1.GPUDevice
	on := map[string]map[string]string{} // the nodes of launchers, by the VMI
	for i := range docs {
		d := &docs[i]
		switch group(d) + "/" + d.Kind() {
		case "/Node":
			u := &unstructured.Unstructured{Object: d.Object}
			n := hostNode(u, u.GetLabels())
			told = told || !n.Status.Allocatable.Cpu().IsZero()
			r.index.put(n)
		case "/Pod":
			var pod corev1.Pod
			if typed(d, &pod) != nil {
				continue
			}
			r.pod(new(pool).pod(&pod), 1)
			if vmi := launchedBy(&pod); vmi != "" && pod.Spec.NodeName != "" && !ended(&pod) {
				if on[vmi] == nil {
					on[vmi] = map[string]string{}
				}
				on[vmi][pod.Name] = pod.Spec.NodeName
			}
		case v1alpha1.GroupName + "/GPUDevice":
			device := &v1alpha1.GPUDevice{}
			if typed(d, device) == nil {
				devices = append(devices, device)
			}
		}
	}
	if !told {
		return nil
	}
	for vmi, nodes := range on {
		r.vmis[types.UID(vmi)] = usage.VMI{UID: vmi, ActivePods: nodes}
	}
	for _, d := range devices {
		_ = r.device(d) // what cannot be read takes nothing
	}
	r.index.leaveOut = leaveOut
	return &Room{room: &r, given: map[string]amounts{}}
}
