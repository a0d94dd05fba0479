package cluster

import (
	"net/http"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
)

// That a kind is not served at this moment, by this API server, does not say that a
// device is gone.
func TestUnservedKindBuriesNobody(t *testing.T) {
	f := newTestFeed()
	c := fake.NewSimpleDynamicClient(CacheOptions().Scheme)
	c.PrependReactor("get", "gpudevices", func(clienttesting.Action) (bool, runtime.Object, error) {
		// What client-go makes of "404 page not found".
		kind := v1alpha1.GroupVersion.WithResource("gpudevices").GroupResource()
		return true, nil, apierrors.NewGenericServerResponse(http.StatusNotFound, "get", kind, "d", "404 page not found", 0, true)
	})
	f.client.dynamic = c
	d := &v1alpha1.GPUDevice{ObjectMeta: metav1.ObjectMeta{Name: "d", Namespace: "acme", UID: "a", ResourceVersion: "1"}}
	d.Status.Placement = &v1alpha1.Placement{Node: "n1", ResourceName: string(h200Name), Units: 8}
	f.putDevice(known{device: d, assumed: time.Now().Add(-time.Hour)})
	f.buryUnseen(t.Context())
	if _, known := f.Device("a"); !known {
		t.Error("a device that holds 8 units counts as gone, and their node as free")
	}
}
