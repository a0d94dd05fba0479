package cluster

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/internal/manifest"
)

// WaitingVM is a VirtualMachine that references devices, and whose VMI could not be made.
type WaitingVM struct {
	Namespace, Name string
	UID             types.UID
	References      v1alpha1.References
	Since           time.Time
}

// waitingOf reads a VM; ok is false for one that waits for nothing of gpuctl's.
func waitingOf(obj manifest.Object) (vm WaitingVM, ok bool) {
	u := &unstructured.Unstructured{Object: obj}
	references, err := v1alpha1.DecodeReferences(text(obj, "spec", "template", "metadata", "annotations", v1alpha1.AnnotationDevices))
	failure := failureOf(obj)
	if err != nil || failure == nil || u.GetDeletionTimestamp() != nil {
		return vm, false
	}
	since, _ := failure["lastTransitionTime"].(string)
	at, _ := time.Parse(time.RFC3339, since)
	return WaitingVM{Namespace: u.GetNamespace(), Name: u.GetName(), UID: u.GetUID(), References: references, Since: at}, true
}

// failureOf returns the condition by which KubeVirt says that a VMI could not be made.
// Its text is that of the first refusal, and says nothing of the last one.
func failureOf(obj manifest.Object) map[string]any {
	list, _ := manifest.Lookup(obj, manifest.Path{"status", "conditions"})
	conditions, _ := list.([]any)
	for _, item := range conditions {
		if c, _ := item.(map[string]any); c["type"] == "Failure" && c["status"] == "True" {
			return c
		}
	}
	return nil
}

// heldVM drops of a VM what says nothing about its waiting.
func heldVM(obj manifest.Object, meta, spec, status map[string]any) {
	keep(meta, "name", "namespace", "uid", "resourceVersion", "deletionTimestamp")
	keep(obj, "apiVersion", "kind", "metadata", "spec", "status")
	keep(status, "conditions")
	if failure := failureOf(obj); failure != nil {
		delete(failure, "message")
		status["conditions"] = []any{failure}
	} else {
		delete(obj, "status")
	}
	references := text(obj, "spec", "template", "metadata", "annotations", v1alpha1.AnnotationDevices)
	keep(spec)
	if references != "" {
		spec["template"] = map[string]any{"metadata": map[string]any{"annotations": map[string]any{v1alpha1.AnnotationDevices: references}}}
	}
}

func (f *Feed) vmEvents() events {
	drop := func(o metav1.Object) bool {
		_, waited := f.waitingVMs[o.GetUID()]
		delete(f.waitingVMs, o.GetUID())
		return waited
	}
	return events{
		put: func(_, now metav1.Object) bool {
			vm, waits := waitingOf(now.(*unstructured.Unstructured).Object)
			if !waits {
				return drop(now)
			}
			_, known := f.waitingVMs[vm.UID]
			f.waitingVMs[vm.UID] = vm
			return !known
		},
		drop: drop,
		gone: func() bool { clear(f.waitingVMs); return true },
	}
}

// WaitingVMs returns the VMs that wait for devices, in any order.
func (v View) WaitingVMs() []WaitingVM {
	out := make([]WaitingVM, 0, len(v.f.waitingVMs))
	for _, vm := range v.f.waitingVMs {
		out = append(out, vm)
	}
	return out
}

// Named returns the device of a name; nil for one that is not known.
func (v View) Named(namespace, name string) *v1alpha1.GPUDevice {
	uid, ok := v.f.devices.sets.names[types.NamespacedName{Namespace: namespace, Name: name}]
	if !ok {
		return nil
	}
	return v.Device(uid)
}
