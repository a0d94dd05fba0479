package webhook

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/go-logr/logr"
	gocmp "github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/gpuctl/gpuctl/internal/attach"
	"github.com/gpuctl/gpuctl/internal/diagnose"
)

// starts is Starts with one answer.
type starts struct {
	started *attach.Started
	err     error
	asked   []string
}

func (s *starts) Start(_ context.Context, v *kubevirt.VirtualMachineInstance, dry bool) (*attach.Started, error) {
	s.asked = append(s.asked, "start "+v.Namespace+"/"+v.Name)
	if dry {
		s.asked = append(s.asked, "dry")
	}
	return s.started, s.err
}

func (s *starts) Validate(_ context.Context, v *kubevirt.VirtualMachineInstance, _ bool) error {
	s.asked = append(s.asked, "validate "+v.Namespace+"/"+v.Name)
	return s.err
}

// call calls a webhook as the API server does, and returns the answer and the object
// as it is then.
func call(t *testing.T, h http.Handler, req *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, map[string]any) {
	t.Helper()
	req.UID, req.Namespace, req.Operation = "1", "acme", cmp.Or(req.Operation, admissionv1.Create)
	body, err := json.Marshal(admissionv1.AdmissionReview{TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: req})
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", bytes.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(w.Body.Bytes(), &review); err != nil || review.Response == nil {
		t.Fatalf("the answer is %s: %v", w.Body, err)
	}
	return review.Response, patched(t, req.Object.Raw, review.Response.Patch)
}

const vmiOfAcme = `{"apiVersion":"kubevirt.io/v1","kind":"VirtualMachineInstance","metadata":{"generateName":"v-","labels":{"gpuctl.dev/device-reference":"true"},
	"annotations":{"gpuctl.dev/devices":"{\"devices\":[\"a\"]}","gpuctl.dev/request-id":"00000000000000000000000000000000"}},
	"spec":{"newer":9007199254740993,"domain":{"devices":{"gpus":[{"name":"a-0","deviceName":"x/y","virtualGPUOptions":{"display":{}}}]}}}}`

func vmiRequest(raw string) *admissionv1.AdmissionRequest {
	return &admissionv1.AdmissionRequest{
		Kind:   metav1.GroupVersionKind{Group: "kubevirt.io", Version: "v1", Kind: "VirtualMachineInstance"},
		Object: runtime.RawExtension{Raw: []byte(raw)},
	}
}

// A field is the one that KubeVirt reads: another spelling hides nothing.
func TestVMIsAreReadAsKubeVirtReads(t *testing.T) {
	raw := strings.Replace(vmiOfAcme, `"devices":{`, `"resources":{"requests":{"x/y":"1"}},"Resources":null,"devices":{`, 1)
	v, skip, err := decodeVMI(&admissionv1.AdmissionRequest{Operation: admissionv1.Create, Kind: vmiRequest(raw).Kind, Object: runtime.RawExtension{Raw: []byte(raw)}})
	if q := v.Spec.Domain.Resources.Requests["x/y"]; skip || err != nil || q.String() != "1" {
		t.Errorf("skip %t, error %v, x/y is %s", skip, err, q.String())
	}
}

// A VMI gets its name, its id and its gpus; what else it has stays, whether gpuctl knows
// it or not.
func TestVMIs(t *testing.T) {
	s := &starts{started: &attach.Started{Name: "v-1", RequestID: "12", GPUs: []kubevirt.GPU{{Name: "a-0", DeviceName: "x/y"}, {Name: "a-1", DeviceName: "x/y"}}}}
	answer, got := call(t, VMIs(s, logr.Discard()), vmiRequest(vmiOfAcme))
	var want map[string]any
	text := strings.Replace(strings.Replace(vmiOfAcme, `"generateName"`, `"name":"v-1","generateName"`, 1), "00000000000000000000000000000000", "12", 1)
	text = strings.Replace(text, `{"display":{}}}`, `{"display":{}}},{"name":"a-1","deviceName":"x/y"}`, 1)
	decodeNumbers(t, text, &want)
	if diff := gocmp.Diff(want, got); diff != "" || !answer.Allowed {
		t.Errorf("%+v (-want +got):\n%s", answer.Result, diff)
	}
	for name, tc := range map[string]struct {
		change func(*admissionv1.AdmissionRequest)
		err    error
		code   int32
		text   string
		asked  int
	}{
		"refused":    {nil, diagnose.NoDevice("o", "acme", "a"), http.StatusForbidden, "GPU0632: there is no GPUDevice a in namespace acme", 1},
		"not judged": {nil, errors.New("dial 10.0.0.1"), http.StatusServiceUnavailable, "GPU0601: the request could not be judged; try again", 1},
		"another":    {func(r *admissionv1.AdmissionRequest) { r.Kind.Kind = "Pod" }, nil, http.StatusServiceUnavailable, "GPU0601: the request could not be judged; try again", 0},
		"no JSON":    {func(r *admissionv1.AdmissionRequest) { r.Object.Raw = []byte(`{"metadata":[]}`) }, nil, http.StatusServiceUnavailable, "GPU0601: the request could not be judged; try again", 0},
		"no end": {func(r *admissionv1.AdmissionRequest) {
			r.Object.Raw = bytes.Replace(r.Object.Raw, []byte(`"devices":{`), []byte(`"resources":{"limits":{"x/y":"1e-100000000"}},"devices":{`), 1)
		}, nil, http.StatusForbidden, "GPU0649: spec.domain.resources.limits.x/y is 1e-100000000, and nobody can reckon with that", 0},
		"an update":   {func(r *admissionv1.AdmissionRequest) { r.Operation = admissionv1.Update }, nil, 0, "", 0},
		"not labeled": {func(r *admissionv1.AdmissionRequest) { r.Object.Raw = []byte(`{"metadata":{}}`) }, nil, 0, "", 0},
	} {
		for which, handler := range map[string]func(Starts, logr.Logger) http.Handler{"starts": VMIs, "shapes": Shapes} {
			s := &starts{err: tc.err, started: &attach.Started{}}
			req := vmiRequest(vmiOfAcme)
			if tc.change != nil {
				tc.change(req)
			}
			answer, _ := call(t, handler(s, logr.Discard()), req)
			if answer.Allowed != (tc.code == 0) || len(s.asked) != tc.asked || tc.code != 0 && (answer.Result.Code != tc.code || answer.Result.Message != tc.text) {
				t.Errorf("%s, %s: %+v after %q", name, which, answer.Result, s.asked)
			}
		}
	}
}

// claims is Claims with one answer.
type claims struct {
	asked string
	err   error
}

func (c *claims) Claim(_ context.Context, namespace, vmi string, uid types.UID, _ bool) (string, error) {
	c.asked = namespace + "/" + vmi + "/" + string(uid)
	return "n1", c.err
}

const kubeVirtUser = "system:serviceaccount:kv:kubevirt-controller"

func launcherRequest(change func(*corev1.Pod)) *admissionv1.AdmissionRequest {
	controller := true
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "virt-launcher-v-", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "kubevirt.io/v1", Kind: "VirtualMachineInstance", Name: "v", UID: "u", Controller: &controller},
	}}}
	change(pod)
	raw, _ := json.Marshal(pod)
	return &admissionv1.AdmissionRequest{UserInfo: authenticationv1.UserInfo{Username: kubeVirtUser}, Object: runtime.RawExtension{Raw: raw}}
}

// A launcher is bound to the node in each term that can match; whoever is not KubeVirt
// gets nothing.
func TestLaunchers(t *testing.T) {
	expression := corev1.NodeSelectorRequirement{Key: "zone", Operator: corev1.NodeSelectorOpExists}
	here := corev1.NodeSelectorRequirement{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"n1"}}
	there := corev1.NodeSelectorRequirement{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"n2"}}
	fields := func(f ...corev1.NodeSelectorRequirement) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchFields: f}
	}
	both := corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{expression}, MatchFields: []corev1.NodeSelectorRequirement{here}}
	required := func(terms ...corev1.NodeSelectorTerm) *corev1.Affinity {
		return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms}}}
	}
	spread := &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{}}
	for name, tc := range map[string]struct{ has, want *corev1.Affinity }{
		"none":             {nil, required(fields(here))},
		"of pods only":     {spread, &corev1.Affinity{NodeAffinity: required(fields(here)).NodeAffinity, PodAntiAffinity: spread.PodAntiAffinity}},
		"no terms":         {required(), required(fields(here))},
		"a term":           {required(corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{expression}}), required(both)},
		"one that is none": {required(corev1.NodeSelectorTerm{}, fields(there)), required(corev1.NodeSelectorTerm{}, fields(there, here))},
		"bound already":    {required(both), required(both)},
	} {
		t.Run(name, func(t *testing.T) {
			c := &claims{}
			answer, got := call(t, Launchers(c, func(user string) bool { return user == kubeVirtUser }, logr.Discard()), launcherRequest(func(p *corev1.Pod) {
				p.Spec.Affinity = tc.has
			}))
			text, _ := json.Marshal(got)
			pod := &corev1.Pod{}
			if err := json.Unmarshal(text, pod); err != nil {
				t.Fatal(err)
			}
			if diff := gocmp.Diff(tc.want, pod.Spec.Affinity); diff != "" || !answer.Allowed || c.asked != "acme/v/u" {
				t.Errorf("%+v, asked %q (-want +got):\n%s", answer.Result, c.asked, diff)
			}
		})
	}
	for name, tc := range map[string]struct {
		user   string
		change func(*corev1.Pod)
		err    error
		want   string
	}{
		"somebody else": {"alice", func(*corev1.Pod) {}, nil, "GPU0646"},
		"no owner":      {kubeVirtUser, func(p *corev1.Pod) { p.OwnerReferences = nil }, nil, "GPU0646"},
		"a migration":   {kubeVirtUser, func(p *corev1.Pod) { p.Labels = map[string]string{kubevirt.MigrationJobLabel: "m"} }, nil, "GPU0647"},
		"nothing taken": {kubeVirtUser, func(*corev1.Pod) {}, diagnose.NoBinding("o", "x"), "GPU0645"},
	} {
		c := &claims{err: tc.err}
		req := launcherRequest(tc.change)
		req.UserInfo.Username = tc.user
		answer, _ := call(t, Launchers(c, func(user string) bool { return user == kubeVirtUser }, logr.Discard()), req)
		if answer.Allowed || !strings.HasPrefix(answer.Result.Message, tc.want+": ") || tc.err == nil && c.asked != "" {
			t.Errorf("%s: %+v after %q, want %s", name, answer.Result, c.asked, tc.want)
		}
	}
}

// patched returns an object with the patch of an answer.
func patched(t *testing.T, raw, patch []byte) (out map[string]any) {
	t.Helper()
	if len(patch) > 0 {
		p, err := jsonpatch.DecodePatch(patch)
		if err == nil {
			raw, err = p.Apply(raw)
		}
		if err != nil {
			t.Fatalf("patch %s: %v", patch, err)
		}
	}
	if json.Valid(raw) {
		decodeNumbers(t, string(raw), &out)
	}
	return out
}

// decodeNumbers decodes with the numbers as they are written.
func decodeNumbers(t *testing.T, text string, into any) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if err := d.Decode(into); err != nil {
		t.Fatal(err)
	}
}
