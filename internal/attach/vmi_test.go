package attach

import (
	"errors"
	"strings"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/internal/diagnose"
)

// vmi is a VMI that references devices, as it comes to a webhook.
func (w *world) vmi(name, references string) *kubevirt.VirtualMachineInstance {
	v := &kubevirt.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{
		Namespace: w.ns, Name: name,
		Labels:      map[string]string{v1alpha1.LabelDeviceReference: v1alpha1.ValueTrue},
		Annotations: map[string]string{v1alpha1.AnnotationDevices: references},
	}}
	v.SetGroupVersionKind(kubevirt.VirtualMachineInstanceGroupVersionKind)
	return v
}

// of makes a VMI one of a VM.
func of(v *kubevirt.VirtualMachineInstance, vm types.UID) *kubevirt.VirtualMachineInstance {
	yes := true
	v.OwnerReferences = []metav1.OwnerReference{{APIVersion: kubevirt.GroupVersion.String(), Kind: "VirtualMachine", Name: v.Name, UID: vm, Controller: &yes}}
	return v
}

// admitted is the object that the webhook's answer makes of a VMI.
func admitted(v *kubevirt.VirtualMachineInstance, s *Started) *kubevirt.VirtualMachineInstance {
	v = v.DeepCopy()
	v.Name = s.Name
	v.Annotations[v1alpha1.AnnotationRequestID] = s.RequestID
	v.Spec.Domain.Devices.GPUs = s.GPUs
	return v
}

// starts starts a VMI, which must succeed, and returns what is to be stored.
func (p *process) starts(v *kubevirt.VirtualMachineInstance) *kubevirt.VirtualMachineInstance {
	p.world.Helper()
	s, err := p.Start(p.world.Context(), v, false)
	p.world.must(err)
	return admitted(v, s)
}

// stores stores a VMI, and returns its UID.
func (w *world) stores(v *kubevirt.VirtualMachineInstance) types.UID {
	w.Helper()
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(v)
	w.must(err)
	u := &unstructured.Unstructured{Object: object}
	w.create(u)
	return u.GetUID()
}

// runs starts a VMI, stores it and has it claim its set.
func (p *process) runs(v *kubevirt.VirtualMachineInstance) types.UID {
	w := p.world
	w.Helper()
	uid := w.stores(p.starts(v))
	_, err := p.Claim(w.Context(), w.ns, v.Name, uid, false)
	w.must(err)
	return uid
}

// ends deletes a VMI for good.
func (w *world) ends(name string) {
	w.Helper()
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kubevirt.VirtualMachineInstanceGroupVersionKind)
	u.SetNamespace(w.ns)
	u.SetName(name)
	w.must(client.IgnoreNotFound(admin.Delete(w.Context(), u)))
}

// vm creates a VM of such VMIs.
func (w *world) vm(name, strategy, references string) *unstructured.Unstructured {
	w.Helper()
	u := w.cluster.Decode("{apiVersion: kubevirt.io/v1, kind: VirtualMachine, metadata: {namespace: " + w.ns + ", name: " + name + "}, spec: {runStrategy: " + strategy +
		", template: {metadata: {annotations: {}}, spec: {domain: {devices: {}}}}}}")
	w.must(unstructured.SetNestedField(u.Object, references, "spec", "template", "metadata", "annotations", v1alpha1.AnnotationDevices))
	w.create(u)
	return u
}

// refused wants an error to be the refusal of a code, with a text in it.
func (w *world) refused(err error, code, text string) {
	w.Helper()
	var r *diagnose.Refusal
	if !errors.As(err, &r) || string(r.Code) != code || !strings.Contains(r.Error(), text) {
		w.Errorf("error %v, want %s with %q", err, code, text)
	}
}

// unchanged returns a function that wants the devices to be stored as they are now.
func (w *world) unchanged() func() {
	w.Helper()
	before := w.versions()
	return func() {
		w.Helper()
		if diff := cmp.Diff(before, w.versions()); diff != "" {
			w.Errorf("devices have changed (-before +after):\n%s", diff)
		}
	}
}
