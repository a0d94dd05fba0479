package attach

import (
	"errors"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/internal/usage"
)

// errNotYet says that a start cannot be judged before all is known that it is judged by.
var errNotYet = errors.New("the caches are not filled yet")

// vmi is what a start needs to know of a VMI.
type vmi struct {
	object          *kubevirt.VirtualMachineInstance
	namespace, name string // the name is "" while it has none
	vm              *v1alpha1.VMReference
	references      v1alpha1.References
	requestID       string // that it carries, whoever wrote it; "" for what is no id
}

// String names the VMI as findings do.
func (v *vmi) String() string { return Named(v.object) }

// Named names a VMI as findings do.
func Named(o *kubevirt.VirtualMachineInstance) string {
	name := o.Name
	if name == "" {
		name = o.GenerateName
	}
	return "VirtualMachineInstance " + o.Namespace + "/" + name
}

// read takes a VMI apart. The error says what is wrong with it, for the tenant.
func read(o *kubevirt.VirtualMachineInstance) (*vmi, error) {
	v := &vmi{object: o, namespace: o.Namespace, name: o.Name}
	text, has := o.Annotations[v1alpha1.AnnotationDevices]
	if !has {
		return nil, diagnose.BadReferences(v.String(), v1alpha1.ErrNoAnnotation)
	}
	var err error
	if v.references, err = v1alpha1.DecodeReferences(text); err != nil {
		return nil, diagnose.BadReferences(v.String(), err)
	}
	if id := o.Annotations[v1alpha1.AnnotationRequestID]; validID(id) {
		v.requestID = id
	}
	v.vm = vmOf(o.OwnerReferences)
	if len(o.Spec.ResourceClaims) > 0 {
		return nil, diagnose.ClaimsBeside(v.String(), o.Spec.ResourceClaims[0].Name)
	}
	return v, nil
}

// vmOf returns the VM that makes a VMI; nil for one without, and for what no VM is called.
func vmOf(owners []metav1.OwnerReference) *v1alpha1.VMReference {
	for i := range owners {
		o := &owners[i]
		if o.Controller != nil && *o.Controller && o.Kind == "VirtualMachine" && o.APIVersion == kubevirt.GroupVersion.String() && len(validation.IsDNS1123Subdomain(o.Name)) == 0 {
			return &v1alpha1.VMReference{Name: o.Name, UID: o.UID}
		}
	}
	return nil
}

// vmUID is "" for a VMI without a VM.
func (v *vmi) vmUID() types.UID {
	if v.vm == nil {
		return ""
	}
	return v.vm.UID
}

// shape says what a VMI asks for in another way than by its references. want are the
// gpus of its set: what there is of them already is no mistake.
func (v *vmi) shape(names usage.Names, want []kubevirt.GPU) error {
	counts := func(name string) bool { return names.Has(names.Base(gpu.ResourceName(name))) }
	r := &v.object.Spec.Domain.Resources
	for _, list := range []corev1.ResourceList{r.Requests, r.Limits} {
		for _, name := range slices.Sorted(maps.Keys(list)) {
			if counts(string(name)) {
				return diagnose.ResourceNamed(v.String(), string(name))
			}
		}
	}
	own := map[string]string{}
	for _, g := range want {
		own[g.Name] = g.DeviceName
	}
	devices := &v.object.Spec.Domain.Devices
	for _, g := range devices.GPUs {
		if g.ClaimRequest != nil {
			return diagnose.ClaimsBeside(v.String(), g.Name)
		}
		if name, ok := own[g.Name]; !ok || name != g.DeviceName {
			return diagnose.NamedBeside(v.String(), g.Name, g.DeviceName)
		}
	}
	for _, h := range devices.HostDevices {
		if counts(h.DeviceName) {
			return diagnose.NamedBeside(v.String(), h.Name, h.DeviceName)
		}
	}
	return nil
}
