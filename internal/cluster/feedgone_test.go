package cluster

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/internal/books"
)

// When the CRD of devices is removed, none of them waits, leaves or asks any more.
func TestDevicesOfAKindThatIsGone(t *testing.T) {
	f := newTestFeed()
	now := metav1.Now()
	f.Assume(&v1alpha1.GPUDevice{
		ObjectMeta: metav1.ObjectMeta{Name: "d", Namespace: "acme", UID: "a", ResourceVersion: "1", DeletionTimestamp: &now},
		Status:     v1alpha1.GPUDeviceStatus{BindRequest: &v1alpha1.BindRequest{RequestID: "r"}},
	})
	f.change(f.deviceEvents().gone)
	f.View(func(_ *books.Books, v View) {
		for what, list := range map[string][]*v1alpha1.GPUDevice{"waiting": v.Waiting(), "leaving": v.Leaving(), "asking": v.Asking("r")} {
			for _, d := range list {
				t.Errorf("%s: %v", what, d)
			}
		}
	})
}
