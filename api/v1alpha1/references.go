package v1alpha1

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"
)

// References is what AnnotationDevices says, as JSON:
//
//	{"devices":["train-a"],"templates":[{"class":"h200","count":4}]}
//
// +kubebuilder:object:generate=false
type References struct {
	// Devices are the names of GPUDevices in the VM's namespace.
	Devices []string `json:"devices,omitempty"`
	// Templates are devices that gpuctl makes for the VM while it needs them.
	Templates []Template `json:"templates,omitempty"`
}

// Template is a device that gpuctl makes for a VM.
//
// +kubebuilder:object:generate=false
type Template struct {
	// Class is the name of a GPUClass.
	Class string `json:"class"`
	// Count is how many units: 1 where it is not written. It is never written as 0.
	Count int32 `json:"count,omitempty"`
}

// Makes reports an order as one that the template makes. The count is not 0.
func (t Template) Makes(order GPUDeviceSpec) bool {
	return order.ClassName == t.Class && order.Count == t.Count
}

// EncodeReferences returns the value of AnnotationDevices.
func EncodeReferences(r References) string {
	out, _ := json.Marshal(r) // strings and numbers: no error
	return string(out)
}

// What is wrong with a VM that has one of label and annotation without the other, for the
// tenant.
var (
	ErrNoAnnotation = errors.New("it has the label " + LabelDeviceReference + " without the annotation " + AnnotationDevices + ": write both, or neither")
	ErrNoLabel      = errors.New("it has the annotation " + AnnotationDevices + " without the label " + LabelDeviceReference + ": write both, or neither")
)

// DecodeReferences reads the value of AnnotationDevices. Counts that are absent are 1.
// Errors are for the tenant: they name the entry that is wrong, and what to write.
func DecodeReferences(text string) (References, error) {
	var r References
	written, err := decodeStrictly(text, &r)
	if err != nil {
		return References{}, fmt.Errorf(`read annotation %s: want {"devices":["NAME"],"templates":[{"class":"NAME","count":1}]}: %w`, AnnotationDevices, err)
	}
	for i := range r.Templates {
		if !written[fmt.Sprintf("templates[%d].count", i)] {
			r.Templates[i].Count = 1
		}
	}
	if err := r.check(); err != nil {
		return References{}, fmt.Errorf("read annotation %s: %w", AnnotationDevices, err)
	}
	return r, nil
}

func (r References) check() error {
	switch n := len(r.Devices) + len(r.Templates); {
	case n == 0:
		return fmt.Errorf("it names neither a device nor a template; without any, take the annotation and the label %s away", LabelDeviceReference)
	case n > MaxDevicesPerSet:
		return fmt.Errorf("it names %d devices and templates; a VM can have %d", n, MaxDevicesPerSet)
	}
	for i, name := range r.Devices {
		if len(name) > MaxDeviceName || len(validation.IsDNS1123Label(name)) > 0 {
			return fmt.Errorf("devices[%d]: %q is not the name of a GPUDevice", i, name)
		}
		if slices.Contains(r.Devices[:i], name) {
			return fmt.Errorf("devices[%d]: %q is there twice", i, name)
		}
	}
	for i, t := range r.Templates {
		if len(validation.IsDNS1123Label(t.Class)) > 0 {
			return fmt.Errorf("templates[%d].class: %q is not the name of a GPUClass", i, t.Class)
		}
		if t.Count < 1 || t.Count > MaxUnitsPerDevice {
			return fmt.Errorf("templates[%d].count: %d is not between 1 and %d", i, t.Count, MaxUnitsPerDevice)
		}
	}
	return nil
}
