package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/internal/manifest"
)

// Startable is a VM as its next instance would be, or an instance as if it were created
// anew.
type Startable struct {
	Named
	VMI *kubevirtv1.VirtualMachineInstance
	// VM says that it is one: it starts again when its instance has ended.
	VM bool
	// Instancetype says that a VM has one, and more CPU and memory than its template says.
	Instancetype bool
	// Halted says that a VM is not meant to run.
	Halted bool
}

// Refers reports that it names devices, rightly or not.
func (s *Startable) Refers() bool {
	return s.VMI.Labels[v1alpha1.LabelDeviceReference] != "" || s.VMI.Annotations[v1alpha1.AnnotationDevices] != ""
}

// Startables returns the VMs and the instances without a VM among documents, by namespace
// and name. Of two of the same name the last counts.
func Startables(docs []manifest.Document) ([]Startable, error) {
	found := map[Named]Startable{}
	for _, kind := range []string{kindVMI, kindVM} {
		for i := range docs {
			d := &docs[i]
			if d.Kind() != kind || group(d) != kubevirtv1.GroupVersion.Group {
				continue
			}
			s, err := startableOf(d)
			if err != nil {
				return nil, fmt.Errorf("read %s: %w", d.Ref(), err)
			}
			if kind == kindVM || metav1.GetControllerOf(s.VMI) == nil || found[s.Named].VMI == nil {
				found[s.Named] = s
			}
		}
	}
	var out []Startable
	for _, s := range found {
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b Startable) int { return compareNamed(a.Named, b.Named) })
	return out, nil
}

func compareNamed(a, b Named) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// errNoTemplate is about a VirtualMachine that KubeVirt would not take.
var errNoTemplate = errors.New("it has no template")

// HasTemplate returns an error for a VirtualMachine of the documents that has none: there
// is nothing to say about it.
func HasTemplate(docs []manifest.Document, vm Named) error {
	for i := range docs {
		d := &docs[i]
		if d.Kind() != kindVM || group(d) != kubevirtv1.GroupVersion.Group || vm != (Named{d.Meta("namespace"), d.Meta("name")}) {
			continue
		}
		if template, _ := manifest.Lookup(d.Object, manifest.Path{"spec", "template"}); template == nil {
			return fmt.Errorf("read %s: %w", d.Ref(), errNoTemplate)
		}
	}
	return nil
}

func startableOf(d *manifest.Document) (s Startable, err error) {
	if d.Kind() == kindVMI {
		s.VMI = &kubevirtv1.VirtualMachineInstance{}
		err = typed(d, s.VMI)
		if _, ours := s.VMI.Annotations[v1alpha1.AnnotationRequestID]; ours { // gpuctl wrote its gpus
			s.VMI.Spec.Domain.Devices.GPUs = nil
		}
		delete(s.VMI.Annotations, v1alpha1.AnnotationRequestID)
		s.VMI.Status = kubevirtv1.VirtualMachineInstanceStatus{}
		s.Named = Named{s.VMI.Namespace, s.VMI.Name}
		return s, err
	}
	vm := &kubevirtv1.VirtualMachine{}
	if err := typed(d, vm); err != nil {
		return s, err
	}
	if vm.Spec.Template == nil {
		return s, errNoTemplate
	}
	s = Startable{Named: Named{vm.Namespace, vm.Name}, VM: true, Instancetype: vm.Spec.Instancetype != nil, Halted: halted(d)}
	controls := true
	s.VMI = &kubevirtv1.VirtualMachineInstance{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: vm.Namespace, Name: vm.Name, Labels: vm.Spec.Template.ObjectMeta.Labels, Annotations: vm.Spec.Template.ObjectMeta.Annotations,
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: kubevirtv1.GroupVersion.String(), Kind: kindVM, Name: vm.Name, UID: types.UID(s.Named.String()), Controller: &controls,
			}},
		},
		Spec: vm.Spec.Template.Spec,
	}
	return s, nil
}
