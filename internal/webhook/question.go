package webhook

import (
	"context"
	"fmt"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gpuctl/gpuctl/internal/diagnose"
)

// patience is how long a judgement may take: less than the webhook's timeout, so that
// it is this process that says why there is no answer.
const patience = 4 * time.Second

// inquiry is one of the API server's.
type inquiry struct {
	log    logr.Logger
	object string // as findings name it
	req    *admissionv1.AdmissionRequest
}

// judged judges in time. A panic is no judgement, and must not end the others'.
func (q *inquiry) judged(ctx context.Context, judge func(context.Context) error) (err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
			q.log.Error(err, "judge", "object", q.object, "stack", string(debug.Stack()))
		}
	}()
	return judge(ctx)
}

// refuse tells the operator all, and the tenant what is for the tenant.
func (q *inquiry) refuse(err error) admission.Response {
	r := diagnose.Refused(err, q.object)
	log := q.log.WithValues("object", r.Object, "user", q.req.UserInfo.Username, "dryRun", dry(q.req))
	status := metav1.Status{Status: metav1.StatusFailure, Message: r.ForTenant(), Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden}
	if unjudged(r.Code) {
		log.Error(r, "a request could not be judged", "hint", r.Hint)
		status.Code, status.Reason = http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable
	} else {
		log.Info("a request is refused", "code", r.Code, "reason", r.Message, "hint", r.Hint)
	}
	return admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{Result: &status}}
}

// unjudged reports the codes that say nothing against an order, but that what it would
// be judged by is not there yet: the same order may be allowed a moment later.
func unjudged(c diagnose.Code) bool {
	return c == "GPU0601" || c == "GPU0603" || c == "GPU0625"
}
