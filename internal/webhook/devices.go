// Package webhook answers the API server's questions about orders. It decodes, asks
// whoever judges, and tells: the tenant in the answer, the operator in the log.
package webhook

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/internal/diagnose"
)

// DevicesPath is where the webhook for orders is served.
const DevicesPath = "/validate-gpuctl-dev-v1alpha1-gpudevice"

// patience is how long a judgement may take: less than the webhook's timeout, so that
// it is this process that says why there is no answer.
const patience = 4 * time.Second

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
	if err == nil {
		err = carries(order, &device.ObjectMeta)
	}
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		err = d.judge(ctx, order)
	}
	if err == nil {
		return admission.Allowed("")
	}
	return d.refuse(diagnose.Refused(err, order.String()), order, &req.AdmissionRequest)
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
	if err := json.Unmarshal(req.Object.Raw, &device); err != nil {
		return order, device, fmt.Errorf("decode a GPUDevice: %w", err)
	}
	order.Name = cmp.Or(device.Name, req.Name, device.GenerateName)
	order.Class, order.Count = device.Spec.ClassName, device.Spec.Count
	return order, device, nil
}

// judge asks for the judgement. A panic is no judgement, and must not end the others'.
func (d *devices) judge(ctx context.Context, order Order) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
			d.log.Error(err, "judge an order", "stack", string(debug.Stack()))
		}
	}()
	return d.orders.Admit(ctx, order)
}

// refuse tells the operator all, and the tenant what is for the tenant.
func (d *devices) refuse(r *diagnose.Refusal, order Order, req *admissionv1.AdmissionRequest) admission.Response {
	log := d.log.WithValues("device", klog.KRef(order.Namespace, order.Name), "class", order.Class, "count", order.Count,
		"user", req.UserInfo.Username, "dryRun", req.DryRun != nil && *req.DryRun)
	status := metav1.Status{Status: metav1.StatusFailure, Message: r.ForTenant(), Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden}
	if unjudged(r.Code) {
		log.Error(r, "an order could not be judged", "hint", r.Hint)
		status.Code, status.Reason = http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable
	} else {
		log.Info("an order is refused", "code", r.Code, "reason", r.Message, "hint", r.Hint)
	}
	return admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{Result: &status}}
}

// unjudged reports the codes that say nothing against an order, but that what it would
// be judged by is not there yet: the same order may be allowed a moment later.
func unjudged(c diagnose.Code) bool {
	return c == "GPU0601" || c == "GPU0603" || c == "GPU0625"
}
