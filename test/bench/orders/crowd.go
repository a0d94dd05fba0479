package main

import (
	"context"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/internal/cluster"
	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/test/bench/fleet"
)

const (
	gpusOfNode = 8
	tenants    = 50
	root       = "tenant-root" // the parent of all tenants
)

// crowd is what a cluster is filled with.
type crowd struct {
	nodes   int // of gpusOfNode GPUs each, with inventories and agents' Leases
	devices int // placed, of one unit each
	pods    int // the first ones are the device plugin's and the agents', one a node
}

// filler fills a cluster.
type filler struct {
	crowd
	client client.Client
	fleet  *fleet.Fleet
	now    metav1.Time
}

func newFiller(config *rest.Config, of crowd) (*filler, error) {
	if of.nodes < 1 || of.devices < 0 || of.devices > gpusOfNode*of.nodes || of.pods < 0 {
		return nil, fmt.Errorf("%d devices and %d pods on %d nodes of %d GPUs: that does not fit", of.devices, of.pods, of.nodes, gpusOfNode)
	}
	config = rest.CopyConfig(config)
	config.WarningHandler = rest.NoWarnings{}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	f := &filler{crowd: of, now: metav1.Now()}
	if f.fleet, err = fleet.New(objects, gpusOfNode); err != nil {
		return nil, err
	}
	f.client, err = client.New(config, client.Options{Scheme: cluster.CacheOptions().Scheme})
	return f, err
}

func tenantName(i int) string { return fmt.Sprintf("tenant-%02d", i%tenants) }

func className(node int) string { return "gpu-" + fleet.CardOf(node).String() }

func resourceName(node int) gpu.ResourceName { return gpu.Newest().Name(fleet.CardOf(node)) }

// fill makes all objects, and what orders are judged by. Webhooks would refuse devices
// that hold units: there must be none yet.
func (f *filler) fill(ctx context.Context) error {
	names := []string{root}
	for i := range tenants {
		names = append(names, tenantName(i))
	}
	if err := f.fleet.Base(ctx, names...); err != nil {
		return err
	}
	for _, name := range names {
		if err := f.tenant(ctx, name); err != nil {
			return err
		}
	}
	for i := range f.kinds() {
		class := &v1alpha1.GPUClass{
			ObjectMeta: metav1.ObjectMeta{Name: className(i)},
			Spec:       v1alpha1.GPUClassSpec{ResourceName: string(resourceName(i)), MaxCount: gpusOfNode},
		}
		if err := f.client.Create(ctx, class); err != nil {
			return err
		}
	}
	if err := f.ledger(ctx); err != nil {
		return err
	}
	for _, step := range []struct {
		what string
		n    int
		do   func(context.Context) error
	}{
		{"nodes", f.nodes, func(ctx context.Context) error { return fleet.InParallel(ctx, f.nodes, f.fleet.Node) }},
		{"devices", f.devices, func(ctx context.Context) error { return fleet.InParallel(ctx, f.devices, f.device) }},
		{"pods", f.pods, f.fillPods},
	} {
		if step.n == 0 {
			continue
		}
		began := time.Now()
		if err := step.do(ctx); err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "orders: made %d %s in %s\n", step.n, step.what, time.Since(began).Round(time.Second))
	}
	return nil
}

// kinds returns how many kinds of GPUs there are.
func (f *filler) kinds() int {
	n := 1
	for n < f.nodes && className(n) != className(0) {
		n++
	}
	return n
}

// tenant gives a namespace a budget of each kind and, but for the root, its parent.
func (f *filler) tenant(ctx context.Context, name string) error {
	hard := corev1.ResourceList{}
	for i := range f.kinds() {
		hard["requests."+corev1.ResourceName(resourceName(i))] = *resource.NewQuantity(1_000_000, resource.DecimalSI)
	}
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "gpus"}, Spec: corev1.ResourceQuotaSpec{Hard: hard}}
	if err := f.client.Create(ctx, quota); err != nil || name == root {
		return err
	}
	parent := fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, v1alpha1.LabelParent, root)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	return f.client.Patch(ctx, namespace, client.RawPatch(types.MergePatchType, []byte(parent)))
}

// ledger makes a ledger as an earlier leader leaves it: who finds none has to write all
// devices once.
func (f *filler) ledger(ctx context.Context) error {
	text, err := v1alpha1.EncodeLedger(v1alpha1.Ledger{Term: 1, Holder: "bench", DecidedAt: metav1.NewMicroTime(f.now.Time)})
	if err != nil {
		return err
	}
	m := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: fleet.Namespace, Name: v1alpha1.LedgerName},
		Data:       map[string]string{v1alpha1.LedgerKey: text},
	}
	if err := f.client.Create(ctx, m); err != nil {
		return err
	}
	m.Annotations = map[string]string{v1alpha1.AnnotationLedger: string(m.UID)}
	return f.client.Update(ctx, m)
}

// device makes an order that has its unit.
func (f *filler) device(ctx context.Context, i int) error {
	node := i / gpusOfNode
	d := &v1alpha1.GPUDevice{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenantName(i), Name: deviceName(i), Finalizers: []string{v1alpha1.FinalizerUnits}},
		Spec:       v1alpha1.GPUDeviceSpec{ClassName: className(node), Count: 1},
	}
	if err := f.client.Create(ctx, d); err != nil {
		return err
	}
	place(d, fleet.NodeName(node), string(resourceName(node)), f.now)
	return f.client.Status().Update(ctx, d)
}

func deviceName(i int) string { return fmt.Sprintf("order-%05d", i) }

// place writes into a device's status what the binder does when it gives an order one
// unit.
func place(d *v1alpha1.GPUDevice, node, name string, at metav1.Time) {
	d.Status.Origin = &v1alpha1.Origin{Kind: v1alpha1.OriginOrder}
	d.Status.Placement = &v1alpha1.Placement{Node: node, ResourceName: name, Units: 1, Since: metav1.NewMicroTime(at.Time)}
	d.Status.State = d.Status.Derive()
	d.Status.Conditions = []metav1.Condition{d.Status.Held("", ""), d.Status.Attached()}
	for i := range d.Status.Conditions {
		d.Status.Conditions[i].LastTransitionTime = at
	}
}
