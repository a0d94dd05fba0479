package api

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuctl/gpuctl/test/cluster"
)

// vmi returns a VMI in YAML, which nothing acts on.
func vmi(namespace, metadata string) string {
	return "apiVersion: kubevirt.io/v1\nkind: VirtualMachineInstance\nmetadata: {namespace: " + namespace + ", " + metadata + "}\nspec: {domain: {devices: {}}}"
}

// What docs/design/binding.md takes for granted of admission: a webhook may name a VMI that
// has no name yet, the name is what is stored, and whoever is called later sees it.
func TestWebhookNamesObject(t *testing.T) {
	c := served(t)
	ns := c.Namespace()
	h := admit(t, c, ns)
	for name, tc := range map[string]struct {
		metadata string
		dryRun   bool
		stored   string // the name
		want     []call
	}{
		"generated name": {metadata: "generateName: vm-", stored: "vm-named", want: []call{
			{path: "/name"},
			{path: "/touch", object: "vm-named"},
			{path: "/name", object: "vm-named"}, // again
			{path: "/check", request: "vm-named", object: "vm-named", uid: "stored"},
		}},
		"own name": {metadata: "name: own", stored: "own", want: []call{
			{path: "/name", request: "own", object: "own"},
			{path: "/touch", request: "own", object: "own"},
			{path: "/name", request: "own", object: "own"},
			{path: "/check", request: "own", object: "own", uid: "stored"},
		}},
		"dry run": {metadata: "generateName: dry-", dryRun: true, stored: "dry-named", want: []call{
			{path: "/name", dryRun: true},
			{path: "/touch", object: "dry-named", dryRun: true},
			{path: "/name", object: "dry-named", dryRun: true},
			{path: "/check", request: "dry-named", object: "dry-named", uid: "stored", dryRun: true},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			h.take()
			u := c.Decode(vmi(ns, tc.metadata))
			var options metav1.CreateOptions
			if tc.dryRun {
				options.DryRun = []string{metav1.DryRunAll}
			}
			got, err := c.Resource(u).Create(t.Context(), u, options)
			if err != nil {
				t.Fatal(err)
			}
			calls := h.take()
			for i := range calls {
				if calls[i].uid == got.GetUID() {
					calls[i].uid = "stored"
				}
			}
			if diff := cmp.Diff(tc.want, calls, cmp.AllowUnexported(call{})); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
			err = c.Resource(u).Delete(t.Context(), tc.stored, metav1.DeleteOptions{})
			if got.GetName() != tc.stored || apierrors.IsNotFound(err) != tc.dryRun || err != nil && !tc.dryRun {
				t.Errorf("name %q, want %q; deleted: %v", got.GetName(), tc.stored, err)
			}
		})
	}
}

// A name that a webhook wrote is not made anew when it is taken, as the API server's own
// is. The validating webhook is called before that is found out.
func TestWebhookNameIsTaken(t *testing.T) {
	c := served(t)
	ns := c.Namespace()
	h := admit(t, c, ns)
	create(t, c, vmi(ns, "name: vm-named"))
	h.take()
	u := c.Decode(vmi(ns, "generateName: vm-"))
	got, err := c.Resource(u).Create(t.Context(), u, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		t.Errorf("%v, %v", got, err)
	}
	var paths []string
	for _, call := range h.take() {
		paths = append(paths, call.path)
	}
	if want := []string{"/name", "/touch", "/name", "/check"}; !slices.Equal(want, paths) {
		t.Errorf("calls %q, want %q", paths, want)
	}
}

// call is one request that a webhook had.
type call struct {
	path            string
	request, object string    // the name in the request, and in its object
	uid             types.UID // the object's
	dryRun          bool
}

// hooks are two mutating webhooks, /name and /touch, and a validating one, /check.
type hooks struct {
	sync.Mutex
	calls []call
}

// take returns the calls since it was called last.
func (h *hooks) take() []call {
	h.Lock()
	defer h.Unlock()
	out := h.calls
	h.calls = nil
	return out
}

func (h *hooks) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var review admissionv1.AdmissionReview
	var object metav1.PartialObjectMetadata
	err := json.NewDecoder(r.Body).Decode(&review)
	if err == nil {
		err = json.Unmarshal(review.Request.Object.Raw, &object)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	h.Lock()
	h.calls = append(h.calls, call{
		path: r.URL.Path, request: review.Request.Name, object: object.Name, uid: object.UID, dryRun: *review.Request.DryRun,
	})
	h.Unlock()
	review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
	patch := func(field, value string) {
		kind := admissionv1.PatchTypeJSONPatch
		review.Response.PatchType = &kind
		review.Response.Patch = fmt.Appendf(nil, `[{"op":"add","path":"/metadata/%s","value":%s}]`, field, value)
	}
	switch {
	case r.URL.Path == "/name" && object.Name == "":
		patch("name", `"`+object.GenerateName+`named"`)
	case r.URL.Path == "/touch":
		patch("annotations", `{"touched":"true"}`)
	}
	_ = json.NewEncoder(w).Encode(review)
}

// admit has the webhooks called for VMIs of a namespace until the test ends.
func admit(t *testing.T, c *cluster.Cluster, ns string) *hooks {
	t.Helper()
	h := &hooks{}
	ca, certificate := cluster.ServerCertificate(t, "127.0.0.1")
	server := httptest.NewUnstartedServer(h)
	server.TLS = certificate
	server.StartTLS()
	t.Cleanup(server.Close)
	webhook := func(path, more string) string {
		return fmt.Sprintf(`
- name: %[1]s.gpuctl.example
  clientConfig: {url: %[2]s/%[1]s, caBundle: %[3]s}
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[4]s}}
  rules: [{apiGroups: [kubevirt.io], apiVersions: [v1], operations: [CREATE], resources: [virtualmachineinstances]}]
  sideEffects: NoneOnDryRun
  admissionReviewVersions: [v1]%[5]s`, path, server.URL, base64.StdEncoding.EncodeToString(ca), ns, more)
	}
	const head = "apiVersion: admissionregistration.k8s.io/v1\nkind: %s\nmetadata: {name: %s}\nwebhooks:%s"
	create(t, c, fmt.Sprintf(head, "MutatingWebhookConfiguration", ns, webhook("name", "\n  reinvocationPolicy: IfNeeded")+webhook("touch", "")))
	create(t, c, fmt.Sprintf(head, "ValidatingWebhookConfiguration", ns, webhook("check", "")))
	probe := c.Decode(vmi(ns, "name: probe"))
	c.Eventually(30*time.Second, "the webhooks are called", func(ctx context.Context) error {
		h.take()
		_, err := c.Resource(probe).Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if n := len(h.take()); err == nil && n != 4 {
			err = fmt.Errorf("%d calls", n)
		}
		return err
	})
	return h
}
