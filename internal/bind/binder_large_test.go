package bind

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
)

// large is an order with labels of so many bytes.
func (w *world) large(name string, size int, finalizers ...string) error {
	d := &v1alpha1.GPUDevice{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name, Labels: map[string]string{}, Finalizers: finalizers},
		Spec:       v1alpha1.GPUDeviceSpec{ClassName: "h200", Count: 1},
	}
	const each = 6 + 63 + 6 // "l00000":"…",
	for i := range size / each {
		d.Labels[fmt.Sprintf("l%05d", i)] = strings.Repeat("x", 63)
	}
	if rest := size % each; rest > 8 {
		d.Labels["r"] = strings.Repeat("x", min(63, rest-8))
	}
	return admin.Create(w.Context(), d)
}

// With so many bytes of labels an order can be created, and no status, or not even an
// annotation, can be written: etcd takes 1.5 MiB.
const (
	noStatus     = 1_572_250
	noAnnotation = 1_572_380
)

// An order that is as large as the API server takes does not keep others from being placed.
func TestBinderGoesOnAfterALargeOrder(t *testing.T) {
	w := newWorld(t)
	w.serves("n1", 8)
	w.class("h200")
	r := w.replica("a")
	w.order("before", 1)
	w.soon(map[string]string{"before": "Held n1"})
	r.Took()
	w.must(w.large("large", noStatus, v1alpha1.FinalizerUnits))
	time.Sleep(time.Second)
	w.order("after", 1)
	defer func() { t.Log(r.Took()) }()
	w.soon(map[string]string{"after": "Held n1"})
}

// An order that is as large as the API server takes does not keep everybody from leading
// after the ledger was deleted.
func TestLeadsThoughAnOrderIsLarge(t *testing.T) {
	w := newWorld(t)
	w.must(w.large("large", noAnnotation))
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	w.must(w.party("a").Lead(ctx))
}
