package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/internal/attach"
	"github.com/gpuctl/gpuctl/internal/cluster"
)

// StartsPath is where the webhook is served that gives VMIs their devices, ShapesPath
// that of the one that looks at what is stored.
const (
	StartsPath = "/mutate-kubevirt-io-v1-virtualmachineinstance"
	ShapesPath = "/validate-kubevirt-io-v1-virtualmachineinstance"
)

// Starts takes devices for VMIs; [attach.Starter] does. It is called concurrently.
type Starts interface {
	Start(ctx context.Context, v *kubevirt.VirtualMachineInstance, dry bool) (*attach.Started, error)
	Validate(ctx context.Context, v *kubevirt.VirtualMachineInstance, dry bool) error
}

// VMIs returns the webhook that gives each VMI with references its devices before it is
// stored, or refuses it.
func VMIs(starts Starts, log logr.Logger) http.Handler {
	return &admission.Webhook{Handler: &instances{starts, log}}
}

// Shapes returns the webhook that looks whether a VMI is stored with what it was given.
func Shapes(starts Starts, log logr.Logger) http.Handler {
	return &admission.Webhook{Handler: admission.HandlerFunc((&instances{starts, log}).validate)}
}

// instances decodes VMIs, and tells what became of them.
type instances struct {
	starts Starts
	log    logr.Logger
}

// Handle gives a VMI its devices.
func (h *instances) Handle(ctx context.Context, req admission.Request) admission.Response {
	v, skip, err := decodeVMI(&req.AdmissionRequest)
	if skip {
		return admission.Allowed("")
	}
	q := inquiry{h.log, attach.Named(v), &req.AdmissionRequest}
	var started *attach.Started
	if err == nil {
		err = q.judged(ctx, func(ctx context.Context) (err error) {
			started, err = h.starts.Start(ctx, v, dry(&req.AdmissionRequest))
			return err
		})
	}
	if err != nil {
		return q.refuse(err)
	}
	changed, err := write(req.Object.Raw, started)
	if err != nil {
		return q.refuse(err)
	}
	return admission.PatchResponseFromRaw(req.Object.Raw, changed)
}

func (h *instances) validate(ctx context.Context, req admission.Request) admission.Response {
	v, skip, err := decodeVMI(&req.AdmissionRequest)
	if skip {
		return admission.Allowed("")
	}
	q := inquiry{h.log, attach.Named(v), &req.AdmissionRequest}
	if err == nil {
		err = q.judged(ctx, func(ctx context.Context) error { return h.starts.Validate(ctx, v, dry(&req.AdmissionRequest)) })
	}
	if err != nil {
		return q.refuse(err)
	}
	return admission.Allowed("")
}

func dry(req *admissionv1.AdmissionRequest) bool { return req.DryRun != nil && *req.DryRun }

// decodeVMI returns the VMI that is to be stored; skip says that there is nothing to
// judge. Names of fields count as they are written, as they do for KubeVirt.
func decodeVMI(req *admissionv1.AdmissionRequest) (v *kubevirt.VirtualMachineInstance, skip bool, err error) {
	v = &kubevirt.VirtualMachineInstance{}
	if req.Operation != admissionv1.Create {
		return v, true, nil // references do not change
	}
	if req.Kind.Group != kubevirt.GroupVersion.Group || req.Kind.Kind != "VirtualMachineInstance" {
		return v, false, fmt.Errorf("a %s of %s is no VMI: rule of the webhook configuration", req.Kind.Kind, req.Kind.Group)
	}
	head := &metav1.PartialObjectMetadata{}
	if err := utiljson.Unmarshal(req.Object.Raw, head); err != nil {
		return v, false, fmt.Errorf("decode a VirtualMachineInstance: %w", err)
	}
	v.ObjectMeta = head.ObjectMeta
	v.Namespace = req.Namespace
	if v.Labels[v1alpha1.LabelDeviceReference] != v1alpha1.ValueTrue {
		return v, true, nil
	}
	object := map[string]any{}
	if err := utiljson.Unmarshal(req.Object.Raw, &object); err != nil {
		return v, false, fmt.Errorf("decode a VirtualMachineInstance: %w", err)
	}
	if err := cluster.CheckQuantities(attach.Named(v), object); err != nil {
		return v, false, err
	}
	if err := utiljson.Unmarshal(req.Object.Raw, v); err != nil {
		return v, false, fmt.Errorf("decode a VirtualMachineInstance: %w", err)
	}
	v.Namespace = req.Namespace
	return v, false, nil
}

// write writes what a start gives into the VMI, and changes nothing else of it: fields
// that gpuctl does not know stay.
func write(raw []byte, s *attach.Started) ([]byte, error) {
	o := map[string]any{}
	if err := utiljson.Unmarshal(raw, &o); err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{Object: o}
	u.SetName(s.Name)
	annotations := u.GetAnnotations()
	delete(annotations, v1alpha1.AnnotationRequestID)
	if s.RequestID != "" {
		annotations[v1alpha1.AnnotationRequestID] = s.RequestID
	}
	u.SetAnnotations(annotations)
	had := map[string]any{}
	list, _, _ := unstructured.NestedSlice(o, "spec", "domain", "devices", "gpus")
	for _, entry := range list {
		if m, ok := entry.(map[string]any); ok {
			name, _ := m["name"].(string)
			had[name] = entry
		}
	}
	gpus := make([]any, len(s.GPUs))
	for i, g := range s.GPUs {
		gpus[i] = map[string]any{"name": g.Name, "deviceName": g.DeviceName}
		if entry, ok := had[g.Name]; ok {
			gpus[i] = entry
		}
	}
	if err := unstructured.SetNestedSlice(o, gpus, "spec", "domain", "devices", "gpus"); err != nil {
		return nil, err
	}
	return json.Marshal(o)
}
