package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gpuctl/gpuctl/internal/diagnose"
)

// judges is Orders as a function.
type judges func(context.Context, Order) error

func (j judges) Admit(ctx context.Context, o Order) error { return j(ctx, o) }

// question is a CREATE of a device.
func question(change func(*admissionv1.AdmissionRequest)) *admissionv1.AdmissionRequest {
	dry := true
	req := &admissionv1.AdmissionRequest{
		UID: "1", Kind: metav1.GroupVersionKind{Group: "gpuctl.dev", Version: "v1alpha1", Kind: "GPUDevice"},
		Namespace: "acme", Name: "train", Operation: admissionv1.Create, DryRun: &dry, UserInfo: authenticationv1.UserInfo{Username: "alice"},
		Object: runtime.RawExtension{Raw: []byte(`{"metadata":{"name":"train"},"spec":{"className":"h200","count":4}}`)},
	}
	change(req)
	return req
}

// ask asks as the API server does, and returns the answer and what was logged.
func ask(t *testing.T, orders Orders, req *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, string) {
	t.Helper()
	body, err := json.Marshal(admissionv1.AdmissionReview{TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: req})
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, DevicesPath, bytes.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	Devices(orders, logr.FromSlogHandler(slog.NewJSONHandler(&log, nil))).ServeHTTP(w, r)
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(w.Body.Bytes(), &review); err != nil || review.Response == nil {
		t.Fatalf("the answer is %s: %v", w.Body, err)
	}
	return review.Response, log.String()
}

// The answer has the code and the tenant's text, the log the operator's.
func TestDevices(t *testing.T) {
	const unjudged = "GPU0601: the request could not be judged; try again"
	same := func(*admissionv1.AdmissionRequest) {}
	for name, tc := range map[string]struct {
		change func(*admissionv1.AdmissionRequest)
		err    error
		code   int32 // 0: allowed
		reason metav1.StatusReason
		text   string
		logged []string
	}{
		"allowed": {change: same},
		"refused": {
			same, diagnose.ClassUnlicensed("GPUDevice acme/train", "h200", "nvidia.com/SECRET-1Q"), http.StatusForbidden, metav1.StatusReasonForbidden,
			"GPU0622: class h200 is not open for orders; ask whoever administers it",
			[]string{`"code":"GPU0622"`, "nvidia.com/SECRET-1Q", `"user":"alice"`, `"name":"train","namespace":"acme"`, `"dryRun":true`},
		},
		"not judged": {same, errors.New("dial 10.0.0.1"), http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, unjudged, []string{"dial 10.0.0.1", `"level":"ERROR"`}},
		"not counted yet": {
			same, diagnose.ClassNotCounted("GPUDevice acme/train", "h200", "x/y"), http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable,
			"GPU0625: class h200 cannot be ordered yet; try again",
			[]string{"x/y"},
		},
		"no order": {
			func(r *admissionv1.AdmissionRequest) { r.Kind.Kind = "GPUClass" }, nil, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable,
			unjudged,
			[]string{"a GPUClass of gpuctl.dev is no order"},
		},
		"not to be decoded": {
			func(r *admissionv1.AdmissionRequest) { r.Object.Raw = []byte(`{"spec":{"count":"four"}}`) }, nil, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable,
			unjudged,
			[]string{"decode a GPUDevice"},
		},
		"a change": {change: func(r *admissionv1.AdmissionRequest) { r.Operation = admissionv1.Update }, err: errors.New("it is judged")},
		"deletion": {change: func(r *admissionv1.AdmissionRequest) { r.Operation = admissionv1.Delete }, err: errors.New("it is judged")},
	} {
		t.Run(name, func(t *testing.T) {
			got, log := ask(t, judges(func(context.Context, Order) error { return tc.err }), question(tc.change))
			want := &admissionv1.AdmissionResponse{UID: "1", Allowed: tc.code == 0, Result: &metav1.Status{Code: http.StatusOK}}
			if tc.code != 0 {
				want.Result = &metav1.Status{Status: metav1.StatusFailure, Code: tc.code, Reason: tc.reason, Message: tc.text}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
			for _, word := range tc.logged {
				if !strings.Contains(log, word) {
					t.Errorf("no %s in the log:\n%s", word, log)
				}
			}
			if len(tc.logged) == 0 && log != "" {
				t.Errorf("logged:\n%s", log)
			}
		})
	}
}

// A panic is no judgement; what it says is for the log.
func TestDevicesPanic(t *testing.T) {
	got, log := ask(t, judges(func(context.Context, Order) error { panic("index of the tenants") }), question(func(*admissionv1.AdmissionRequest) {}))
	if got.Allowed || got.Result.Code != http.StatusServiceUnavailable || strings.Contains(got.Result.Message, "index") {
		t.Errorf("the answer is %+v", got.Result)
	}
	if !strings.Contains(log, "panic: index of the tenants") || !strings.Contains(log, "devices_test.go") {
		t.Errorf("the log does not say where:\n%s", log)
	}
}

// What is judged is the object that will be stored; and there is a limit to how long.
func TestDevicesDecode(t *testing.T) {
	for name, tc := range map[string]struct{ object, name string }{
		"a name":         {`{"metadata":{"name":"train"},"spec":{"className":"h200","count":4}}`, "train"},
		"none yet":       {`{"metadata":{"generateName":"vm-"},"spec":{"className":"h200","count":4}}`, "vm-"},
		"somebody's own": {`{"metadata":{"name":"train","namespace":"other"},"spec":{"className":"h200","count":4}}`, "train"},
	} {
		t.Run(name, func(t *testing.T) {
			var got Order
			answer, _ := ask(t, judges(func(ctx context.Context, o Order) error {
				if _, limited := ctx.Deadline(); !limited {
					t.Error("it may take forever")
				}
				got = o
				return nil
			}), question(func(r *admissionv1.AdmissionRequest) { r.Name, r.Object.Raw = "", []byte(tc.object) }))
			if diff := cmp.Diff(Order{Namespace: "acme", Name: tc.name, Class: "h200", Count: 4}, got); diff != "" || !answer.Allowed {
				t.Errorf("judged (-want +got), allowed %t:\n%s", answer.Allowed, diff)
			}
		})
	}
}

// What is gpuctl's own on a device, and what makes it too large, is no order's.
func TestOrderCarriesNothingElse(t *testing.T) {
	tests := map[string]struct {
		metadata string
		want     string // of GPU0626; "" is allowed
	}{
		"labels of its own": {`{"name":"a","labels":{"team":"ml","mygpuctl.dev/x":"y"},"annotations":{"note":"for the night"}}`, ""},
		"the mark of template devices": {
			`{"name":"a","labels":{"gpuctl.dev/template-device":"true"}}`, "GPU0626: the order has the label gpuctl.dev/template-device, which is gpuctl's own",
		},
		"an id of a start":        {`{"name":"a","annotations":{"gpuctl.dev/request-id":"1"}}`, "GPU0626: the order has the annotation gpuctl.dev/request-id"},
		"under a domain below it": {`{"name":"a","labels":{"x.gpuctl.dev/y":"z"}}`, "GPU0626: the order has the label x.gpuctl.dev/y"},
		"a finalizer":             {`{"name":"a","finalizers":["example.com/mine"]}`, "GPU0626: the order has finalizers"},
		"very much": {
			`{"name":"a","annotations":{"note":"` + strings.Repeat("x", maxMetadata) + `"}}`, "GPU0626: the order has 16388 bytes of labels and annotations, 16384 are allowed",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			asked := false
			orders := judges(func(context.Context, Order) error { asked = true; return nil })
			answer, _ := ask(t, orders, question(func(r *admissionv1.AdmissionRequest) {
				r.Object.Raw = []byte(`{"metadata":` + tc.metadata + `,"spec":{"className":"h200","count":1}}`)
			}))
			if answer.Allowed != (tc.want == "") || asked != answer.Allowed {
				t.Fatalf("allowed: %v, asked: %v, %+v", answer.Allowed, asked, answer.Result)
			}
			if tc.want != "" && (!strings.HasPrefix(answer.Result.Message, tc.want) || answer.Result.Code != http.StatusForbidden) {
				t.Errorf("got %d %q, want %q", answer.Result.Code, answer.Result.Message, tc.want)
			}
		})
	}
}
