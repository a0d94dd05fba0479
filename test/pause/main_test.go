package pause

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/test/cluster"
	"github.com/gpuctl/gpuctl/test/kinds"
)

var shared = cluster.NewShared(cluster.APIOnly())

func TestMain(m *testing.M) { os.Exit(shared.Main(m)) }

const (
	soon = 30 * time.Second
	// One unit of the first is all that a node serves. Of the second there are many, and
	// one is all that a budget allows.
	fewUnits    = "nvidia.com/GH100_H200_SXM_141GB"
	smallBudget = "nvidia.com/GA102GL_A10"
)

// last are the classes of which one unit is left, and what they are left by.
var last = map[string]string{"few-units": fewUnits, "small-budget": smallBudget}

// world is what two replicas share.
type world struct {
	*testing.T
	cluster     *cluster.Cluster
	admin       client.WithWatch
	ns          string // gpuctl's own
	left, right string // tenants below the one with the budget
}

// newWorld makes a node, classes, and tenants.
func newWorld(t *testing.T) *world {
	t.Helper()
	c := shared.For(t)
	w := &world{T: t, cluster: c, admin: kinds.Install(t, c)}
	w.cluster.AddNode(cluster.Node{Name: "n1", Resources: map[corev1.ResourceName]int64{fewUnits: 1, smallBudget: 8}})
	for name, of := range last {
		w.create(&v1alpha1.GPUClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.GPUClassSpec{ResourceName: of, MaxCount: 8}})
	}
	w.ns = w.namespace("")
	parent := w.namespace("")
	w.left, w.right = w.namespace(parent), w.namespace(parent)
	w.create(&corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: parent, Name: "gpus"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"requests." + smallBudget: resource.MustParse("1")}},
	})
	return w
}

func (w *world) namespace(parent string) string {
	w.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "pause-"}}
	if parent != "" {
		ns.Labels = map[string]string{v1alpha1.LabelParent: parent}
	}
	w.create(ns)
	return ns.Name
}

// order asks for one unit.
func (w *world) order(namespace, name, class string) *v1alpha1.GPUDevice {
	w.Helper()
	d := &v1alpha1.GPUDevice{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: v1alpha1.GPUDeviceSpec{ClassName: class, Count: 1}}
	w.create(d)
	return d
}

// held returns the one order that has a unit. Nobody, or more than one, is an error.
func (w *world) held(ctx context.Context) (name string, err error) {
	all := &v1alpha1.GPUDeviceList{}
	if err := w.admin.List(ctx, all); err != nil {
		return "", err
	}
	var names []string
	for i := range all.Items {
		if all.Items[i].Status.HoldsUnits() {
			names = append(names, all.Items[i].Name)
		}
	}
	if len(names) != 1 {
		return "", fmt.Errorf("%d of %d orders have a unit: %v", len(names), len(all.Items), names)
	}
	return names[0], nil
}

// clear deletes all orders, and waits until the replicas let them go.
func (w *world) clear() {
	w.Helper()
	for _, ns := range []string{w.left, w.right} {
		w.must(w.admin.DeleteAllOf(w.Context(), &v1alpha1.GPUDevice{}, client.InNamespace(ns)))
	}
	w.cluster.Eventually(soon, "all orders are gone", func(ctx context.Context) error {
		all := &v1alpha1.GPUDeviceList{}
		if err := w.admin.List(ctx, all); err != nil {
			return err
		}
		if len(all.Items) > 0 {
			return fmt.Errorf("%d are left, one is %s", len(all.Items), all.Items[0].Name)
		}
		return nil
	})
}

// ledger returns what is stored; one that is not there has no term.
func (w *world) ledger(ctx context.Context) (l v1alpha1.Ledger, err error) {
	m := &corev1.ConfigMap{}
	err = client.IgnoreNotFound(w.admin.Get(ctx, client.ObjectKey{Namespace: w.ns, Name: v1alpha1.LedgerName}, m))
	if err == nil && m.Name != "" {
		l, err = v1alpha1.DecodeLedger(m.Data)
	}
	return l, err
}

func (w *world) create(o client.Object) {
	w.Helper()
	w.must(w.admin.Create(w.Context(), o))
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}
