package cluster_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuctl/gpuctl/test/cluster"
)

// A webhook behind an ordinary Service, as a chart would install it, is served
// by the test itself.
func TestExposedWebhookIsCalled(t *testing.T) {
	c := shared.For(t)
	ns := c.Namespace()
	ca, server := refuseAll(t, "webhook."+ns+".svc")
	c.Create(c.Decode(fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata: {name: webhook, namespace: %s}
spec: {selector: {app: webhook}, ports: [{port: 443, targetPort: 9443}]}`, ns)))
	c.Expose(ns+"/webhook", strings.TrimPrefix(server.URL, "https://"))
	configuration := c.Create(c.Decode(fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: %[1]s}
webhooks:
- name: refuse.gpuctl.example
  clientConfig: {service: {namespace: %[1]s, name: webhook, path: /validate}, caBundle: %[2]s}
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[1]s}}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]
  sideEffects: None
  admissionReviewVersions: [v1]`, ns, base64.StdEncoding.EncodeToString(ca))))
	t.Cleanup(func() {
		if err := c.Resource(configuration).Delete(context.Background(), ns, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	c.Eventually(soon, "a ConfigMap is refused", func(ctx context.Context) error {
		_, err := c.Clientset().CoreV1().ConfigMaps(ns).Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "refused-"},
		}, metav1.CreateOptions{})
		if err == nil || !strings.Contains(err.Error(), "refused by the test") {
			return fmt.Errorf("the result is %q", fmt.Sprint(err))
		}
		return nil
	})
}

// refuseAll serves an admission webhook for a host that refuses everything. It
// returns the CA of its certificate.
func refuseAll(t *testing.T, host string) (ca []byte, server *httptest.Server) {
	t.Helper()
	ca, certificate := cluster.ServerCertificate(t, host)
	server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{
			UID: review.Request.UID, Result: &metav1.Status{Message: "refused by the test"},
		}
		if err := json.NewEncoder(w).Encode(review); err != nil {
			t.Error(err)
		}
	}))
	server.TLS = certificate
	server.StartTLS()
	t.Cleanup(server.Close)
	return ca, server
}

func TestNodesLive(t *testing.T) {
	c := shared.For(t)
	c.AddNode(cluster.Node{Name: "lives", Resources: map[corev1.ResourceName]int64{"nvidia.com/LIVES": 4}})
	c.SetAllocatable("lives", "nvidia.com/LIVES", 0)
	c.SetAllocatable("lives", "nvidia.com/MORE", 2)
	node, err := c.Clientset().CoreV1().Nodes().Get(t.Context(), "lives", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int64{}
	for _, name := range []corev1.ResourceName{"nvidia.com/LIVES", "nvidia.com/MORE"} {
		capacity, allocatable := node.Status.Capacity[name], node.Status.Allocatable[name]
		got["capacity "+string(name)], got["allocatable "+string(name)] = capacity.Value(), allocatable.Value()
	}
	want := map[string]int64{
		"capacity nvidia.com/LIVES": 4, "allocatable nvidia.com/LIVES": 0,
		"capacity nvidia.com/MORE": 2, "allocatable nvidia.com/MORE": 2,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	leases := c.Clientset().CoordinationV1().Leases(corev1.NamespaceNodeLease)
	first, err := leases.Get(t.Context(), "lives", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.Eventually(soon, "the lease is renewed", func(ctx context.Context) error {
		lease, err := leases.Get(ctx, "lives", metav1.GetOptions{})
		if err == nil && !lease.Spec.RenewTime.After(first.Spec.RenewTime.Time) {
			err = fmt.Errorf("it was last renewed at %v", lease.Spec.RenewTime)
		}
		return err
	})
	c.Eventually(soon, "virt-handler's heartbeat moves", func(ctx context.Context) error {
		later, err := c.Clientset().CoreV1().Nodes().Get(ctx, "lives", metav1.GetOptions{})
		if err == nil && later.Annotations["kubevirt.io/heartbeat"] == node.Annotations["kubevirt.io/heartbeat"] {
			err = fmt.Errorf("it is %q", node.Annotations["kubevirt.io/heartbeat"])
		}
		return err
	})
}
