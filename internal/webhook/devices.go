// Package webhook answers the API server's questions about orders. It decodes, asks
// whoever judges, and tells: the tenant in the answer, the operator in the log.
package webhook

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/internal/diagnose"
)

// DevicesPath is where the webhook for orders is served.
const DevicesPath = "/validate-gpuctl-dev-v1alpha1-gpudevice"

// Order is what is ordered: units of a class, under a name of a namespace.
type Order struct {
	Namespace, Name string
	Class           string
	Count           int32
}

// String names the device as findings do.
func (o Order) String() string { return "GPUDevice " + o.Namespace + "/" + o.Name }

// Orders judges orders. It changes nothing: a dry run asks it, too.
type Orders interface {
	// Admit returns nil when the order can be met now, else what [diagnose.Refused]
	// understands. It is called concurrently.
	Admit(ctx context.Context, o Order) error
}

// Devices returns the webhook that judges each GPUDevice before it is stored.
func Devices(orders Orders, log logr.Logger) http.Handler {
	return &admission.Webhook{Handler: &devices{orders, log}}
}

// devices decodes, and tells the judgement.
type devices struct {
	orders Orders
	log    logr.Logger
}

// Handle answers one question. It has no side effects.
func (d *devices) Handle(ctx context.Context, req admission.Request) admission.Response {
	if req.Operation != admissionv1.Create {
		return admission.Allowed("") // an order does not change
	}
	order, device, err := decode(&req.AdmissionRequest)
	log := d.log.WithValues("device", klog.KRef(order.Namespace, order.Name), "class", order.Class, "count", order.Count)
	q := inquiry{log, order.String(), &req.AdmissionRequest}
	if err == nil {
		err = carries(order, &device.ObjectMeta)
	}
	if err == nil {
		err = q.judged(ctx, func(ctx context.Context) error { return d.orders.Admit(ctx, order) })
	}
	if err != nil {
		return q.refuse(err)
	}
	return admission.Allowed("")
}

// maxMetadata is how many bytes of labels and annotations an order may have. The device
// is written again and again, and held by every replica.
const maxMetadata = 16 << 10

// carries refuses what is gpuctl's to write on a device, and what is too much.
func carries(order Order, meta *metav1.ObjectMeta) error {
	own := func(key string) bool {
		domain, _, _ := strings.Cut(key, "/")
		return domain == v1alpha1.GroupName || strings.HasSuffix(domain, "."+v1alpha1.GroupName)
	}
	size := 0
	for what, keys := range map[string]map[string]string{"label": meta.Labels, "annotation": meta.Annotations} {
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			if own(key) {
				return diagnose.OrderOverloaded(order.String(), fmt.Sprintf("has the %s %s, which is gpuctl's own", what, key))
			}
			size += len(key) + len(keys[key])
		}
	}
	if len(meta.Finalizers) > 0 {
		return diagnose.OrderOverloaded(order.String(), "has finalizers, which nobody could take away again: "+strings.Join(meta.Finalizers[:1], ""))
	}
	if size > maxMetadata {
		return diagnose.OrderOverloaded(order.String(), fmt.Sprintf("has %d bytes of labels and annotations, %d are allowed", size, maxMetadata))
	}
	return nil
}

// decode returns what is ordered, and the device as it came.
func decode(req *admissionv1.AdmissionRequest) (order Order, device v1alpha1.GPUDevice, err error) {
	order = Order{Namespace: req.Namespace, Name: req.Name}
	if req.Kind.Group != v1alpha1.GroupVersion.Group || req.Kind.Kind != "GPUDevice" {
		return order, device, fmt.Errorf("a %s of %s is no order: rule of the webhook configuration", req.Kind.Kind, cmp.Or(req.Kind.Group, "the core group"))
	}
	if err := utiljson.Unmarshal(req.Object.Raw, &device); err != nil {
		return order, device, fmt.Errorf("decode a GPUDevice: %w", err)
	}
	order.Name = cmp.Or(device.Name, req.Name, device.GenerateName)
	order.Class, order.Count = device.Spec.ClassName, device.Spec.Count
	return order, device, nil
}
