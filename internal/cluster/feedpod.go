package cluster

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/internal/manifest"
	"github.com/gpuctl/gpuctl/internal/usage"
)

// everyLauncher are the resources that KubeVirt's launchers have for other things than
// devices of their VMs (virt-controller, services/renderresources.go).
func everyLauncher(name corev1.ResourceName) bool {
	return slices.Contains([]corev1.ResourceName{
		"devices.kubevirt.io/kvm", "devices.kubevirt.io/tun", "devices.kubevirt.io/vhost-net", "devices.kubevirt.io/vhost-vsock", "devices.kubevirt.io/sev",
	}, name)
}

// extendedOf returns the extended resources of requests and limits. Of one that is
// limited only the limit is the request.
func extendedOf(r *corev1.ResourceRequirements) usage.Requests {
	var out usage.Requests
	if r == nil {
		return nil
	}
	for _, list := range []corev1.ResourceList{r.Limits, r.Requests} {
		for name, q := range list {
			if !extended(string(name)) || everyLauncher(name) {
				continue
			}
			if out == nil {
				out = usage.Requests{}
			}
			out[gpu.ResourceName(name)] = q.Value()
		}
	}
	return out
}

// PodOf returns what books need of a pod; ok is false when that is nothing: it has no
// extended resource.
func PodOf(pod *corev1.Pod) (p usage.Pod, ok bool) {
	p = usage.Pod{
		UID: string(pod.UID), Namespace: pod.Namespace, Name: pod.Name, Node: pod.Spec.NodeName,
		Done:  ended(pod),
		Level: extendedOf(pod.Spec.Resources),
	}
	ok = p.Level != nil
	for i := range pod.Spec.Containers {
		r := extendedOf(&pod.Spec.Containers[i].Resources)
		p.Containers = append(p.Containers, r)
		ok = ok || r != nil
	}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		init := usage.Init{Requests: extendedOf(&c.Resources), Sidecar: c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways}
		p.Init = append(p.Init, init)
		ok = ok || init.Requests != nil
	}
	return p, ok
}

// pluginOf returns the node of a pod of the device plugin, and what it says there.
func pluginOf(pod *corev1.Pod) (node string, p plugin, ok bool) {
	owner := metav1.GetControllerOf(pod)
	if owner == nil || pod.Spec.NodeName == "" || ended(pod) {
		return "", p, false
	}
	for i := range pod.Spec.Containers {
		if r, ok := releaseOf(pod.Spec.Containers[i].Image); ok {
			return pod.Spec.NodeName, plugin{owned{pod.Namespace, owner.UID}, pod.UID, r}, true
		}
	}
	return "", p, false
}

// heldDaemonSet is what a cache holds of a DaemonSet: its images.
func heldDaemonSet(d *appsv1.DaemonSet) *appsv1.DaemonSet {
	out := &appsv1.DaemonSet{TypeMeta: d.TypeMeta, ObjectMeta: identity(&d.ObjectMeta)}
	for i := range d.Spec.Template.Spec.Containers {
		out.Spec.Template.Spec.Containers = append(out.Spec.Template.Spec.Containers, corev1.Container{Image: d.Spec.Template.Spec.Containers[i].Image})
	}
	return out
}

func (f *Feed) podEvents() events {
	namespaces := map[types.UID]string{} // of the pods in the books
	return events{
		put: func(before, now metav1.Object) bool {
			pod := now.(*heldPod)
			was, _ := before.(*heldPod)
			if was != nil {
				f.room.pod(was, -1)
			}
			f.room.pod(pod, 1)
			changed := f.putPlugin(was, pod)
			if pod.counts == nil || was != nil && reflect.DeepEqual(was.counts, pod.counts) {
				return changed
			}
			namespaces[pod.uid] = pod.namespace
			f.books.PutPod(*pod.counts)
			return true
		},
		drop: func(o metav1.Object) bool {
			f.room.pod(o.(*heldPod), -1)
			changed := f.dropPlugin(o.(*heldPod))
			namespace, known := namespaces[o.GetUID()]
			if !known {
				return changed
			}
			delete(namespaces, o.GetUID())
			f.books.DropPod(namespace, string(o.GetUID()))
			return true
		},
		gone: func() bool {
			for uid, namespace := range namespaces {
				f.books.DropPod(namespace, string(uid))
			}
			clear(namespaces)
			clear(f.nodes.plugins)
			clear(f.room.index.used)
			f.each(func(*node) {})
			return true
		},
	}
}

// putPlugin takes a pod of the device plugin.
func (f *Feed) putPlugin(was, pod *heldPod) (changed bool) {
	if was != nil {
		if reflect.DeepEqual(was.plugin, pod.plugin) {
			return false
		}
		changed = f.dropPlugin(was)
	}
	if pod.plugin == nil {
		return changed
	}
	f.nodes.hasPlugin(pod.plugin.node, pod.plugin.plugin)
	return f.tell(pod.plugin.node) || changed
}

func (f *Feed) dropPlugin(pod *heldPod) bool {
	if pod.plugin == nil {
		return false
	}
	f.nodes.noPlugin(pod.plugin.node, pod.uid)
	return f.tell(pod.plugin.node)
}

// pluginEvents follow the DaemonSets of the device plugin.
func (f *Feed) pluginEvents() events {
	set := func(o metav1.Object, is bool) bool {
		key := owned{o.GetNamespace(), o.GetUID()}
		if f.nodes.sets[key] == is {
			return false
		}
		if f.nodes.sets[key] = is; !is {
			delete(f.nodes.sets, key)
		}
		changed := false
		for node := range f.nodes.plugins {
			changed = f.tell(node) || changed
		}
		return changed
	}
	return events{
		put: func(_, now metav1.Object) bool {
			containers := now.(*appsv1.DaemonSet).Spec.Template.Spec.Containers
			return set(now, slices.ContainsFunc(containers, func(c corev1.Container) bool { _, ok := releaseOf(c.Image); return ok }))
		},
		drop: func(o metav1.Object) bool { return set(o, false) },
		gone: func() bool { clear(f.nodes.sets); return f.each(func(*node) {}) },
	}
}

// vmiOf returns what books need of a VirtualMachineInstance. Pods that cannot be read
// are no launchers: they count beside the devices.
func vmiOf(d *manifest.Document) (v usage.VMI, err error) {
	v = usage.VMI{UID: d.Meta("uid"), Namespace: d.Meta("namespace"), Name: d.Meta("name")}
	active, _ := manifest.Lookup(d.Object, manifest.Path{"status", "activePods"})
	pods, ok := active.(map[string]any)
	if !ok && active != nil {
		return v, errors.New("status.activePods is no mapping")
	}
	listed := map[string]string{}
	for uid, node := range pods {
		if listed[uid], ok = node.(string); !ok {
			return v, fmt.Errorf("status.activePods[%s] is no text", uid)
		}
	}
	v.ActivePods = listed
	return v, nil
}

// Over reports the phase of a VMI that has ended.
func Over(phase string) bool {
	return phase == string(kubevirt.Succeeded) || phase == string(kubevirt.Failed)
}

func (f *Feed) vmiEvents() events {
	listed := f.room.vmis // and in the books
	drop := func(uid types.UID) bool {
		was, known := listed[uid]
		if known {
			f.books.DropVMI(was.Namespace, was.UID)
		}
		delete(listed, uid)
		return known
	}
	return events{
		put: func(_, now metav1.Object) bool {
			d := f.document(now)
			v, err := vmiOf(&d)
			f.unreadable(d.Ref(), err)
			changed := f.vmi(now.GetUID(), !Over(text(d.Object, "status", "phase")))
			if was, known := listed[now.GetUID()]; len(v.ActivePods) == 0 || known && reflect.DeepEqual(was, v) {
				return len(v.ActivePods) == 0 && drop(now.GetUID()) || changed
			}
			listed[now.GetUID()] = v
			f.room.launched(v)
			f.books.PutVMI(v)
			return true
		},
		drop: func(o metav1.Object) bool {
			d := f.document(o)
			f.unreadable(d.Ref(), nil)
			news := f.vmi(o.GetUID(), false)
			return drop(o.GetUID()) || news
		},
		gone: func() bool {
			for uid := range listed {
				drop(uid)
			}
			for uid := range f.running {
				f.vmi(uid, false)
			}
			return true
		},
	}
}
