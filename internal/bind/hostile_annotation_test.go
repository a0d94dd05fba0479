package bind

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
)

// A tenant's order with as many annotations as the API server takes does not keep
// everybody from leading after the ledger was deleted.
func TestLeadsThoughAnOrderTakesNoAnnotation(t *testing.T) {
	w := newWorld(t)
	d := &v1alpha1.GPUDevice{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "full", Annotations: map[string]string{"a": strings.Repeat("x", 256<<10-1)}},
		Spec:       v1alpha1.GPUDeviceSpec{ClassName: "h200", Count: 1},
	}
	w.must(admin.Create(t.Context(), d))
	w.must(w.party("a").Lead(t.Context()))
}
