package e2e

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
)

// stoppedVM lacks its namespace.
const stoppedVM = "{apiVersion: kubevirt.io/v1, kind: VirtualMachine, metadata: {name: stopped, namespace: %s}, spec: {runStrategy: Halted, template: {spec: {domain: {resources: {requests: {memory: 64Mi}}, devices: {}}}}}}"

// deedsOfOrders are what the controller's account may do to device train-a, and to what
// else has to do with orders, and may not.
func (m *market) deedsOfOrders() map[string]deed {
	own := m.account("controller", nil)
	devices, classes := own.objects.Resource(gpuDevices).Namespace(m.acme), own.objects.Resource(gpuClasses)
	maps, elsewhere := own.core.CoreV1().ConfigMaps(m.namespace), own.core.CoreV1().ConfigMaps("default")
	dry := metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}}
	made := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	change := func(change func(*unstructured.Unstructured), subresources ...string) func(context.Context) error {
		return func(ctx context.Context) error {
			u, err := devices.Get(ctx, "train-a", metav1.GetOptions{})
			if err != nil {
				return err
			}
			change(u)
			_, err = devices.Update(ctx, u, dry, subresources...)
			return err
		}
	}
	annotate := func(key, value string) func(*unstructured.Unstructured) {
		return func(u *unstructured.Unstructured) { u.SetAnnotations(map[string]string{key: value}) }
	}
	update := func(name string) func(context.Context) error {
		return func(ctx context.Context) error {
			found, err := maps.Get(ctx, name, metav1.GetOptions{})
			if err == nil {
				_, err = maps.Update(ctx, found, dry)
			}
			return err
		}
	}
	create := func(name string) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, made)
			if apierrors.IsAlreadyExists(err) {
				return nil
			}
			return err
		}
	}
	last := func(_ any, err error) error { return err }
	missing := func(_ any, err error) error {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
	vms, patched := own.objects.Resource(schema.GroupVersionResource{Group: "kubevirt.io", Version: "v1", Resource: "virtualmachines"}).Namespace(m.acme), metav1.PatchOptions{DryRun: dry.DryRun}
	vm := m.Create(m.Decode(fmt.Sprintf(stoppedVM, m.acme)))
	m.t.Cleanup(func() { deleteAnyway(m.t, m.Cluster, vm) })
	const only = "its own finalizer and annotation only"
	return map[string]deed{
		"no finalizer":   {change(func(u *unstructured.Unstructured) { u.SetFinalizers(nil) }), ""},
		"its annotation": {change(annotate(v1alpha1.AnnotationLedger, "1")), ""},
		"its status":     {change(func(*unstructured.Unstructured) {}, "status"), ""},
		"another finalizer": {change(func(u *unstructured.Unstructured) {
			u.SetFinalizers([]string{v1alpha1.FinalizerUnits, "example.com/mine"})
		}), only},
		"another annotation": {change(annotate("example.com/mine", "1")), only},
		"a label":            {change(func(u *unstructured.Unstructured) { u.SetLabels(map[string]string{"mine": "1"}) }), only},
		"an owner": {change(func(u *unstructured.Unstructured) {
			u.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "mine", UID: "1"}})
		}), only},
		"the order": {change(func(u *unstructured.Unstructured) {
			_ = unstructured.SetNestedField(u.Object, int64(1), "spec", "count")
		}), "spec"},
		"an order": {func(ctx context.Context) error {
			return last(devices.Create(ctx, m.order(m.acme, "mine", "h200", 1), made))
		}, "may create a GPUDevice of a template only"},
		"a template device": {func(ctx context.Context) error {
			u := m.order(m.acme, "mine", "nothing", 1) // the webhook does not judge it
			u.SetLabels(map[string]string{v1alpha1.LabelTemplateDevice: v1alpha1.ValueTrue})
			u.SetFinalizers([]string{v1alpha1.FinalizerUnits})
			u.SetAnnotations(map[string]string{v1alpha1.AnnotationRequestID: "0123456789abcdef0123456789abcdef"})
			return last(devices.Create(ctx, u, made))
		}, ""},
		"deleting an order": {func(ctx context.Context) error { return devices.Delete(ctx, "train-a", metav1.DeleteOptions{}) }, "may delete a GPUDevice of a template only"},
		"a VM's spec": {func(ctx context.Context) error {
			return last(vms.Patch(ctx, "stopped", types.MergePatchType, []byte(`{"spec":{"runStrategy":"Always"}}`), patched))
		}, "may change annotation gpuctl.dev/nudged only"},
		"nudging a VM": {func(ctx context.Context) error {
			return last(vms.Patch(ctx, "stopped", types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+v1alpha1.AnnotationNudged+`":"now"}}}`), patched))
		}, ""},
		"a VM read live": {func(ctx context.Context) error { return last(vms.Get(ctx, "stopped", metav1.GetOptions{})) }, ""},
		"deleting a VM":  {func(ctx context.Context) error { return vms.Delete(ctx, "stopped", metav1.DeleteOptions{}) }, "cannot delete"},
		"a claim of space": {func(ctx context.Context) error {
			return missing(own.core.CoreV1().PersistentVolumeClaims(m.acme).Get(ctx, "none", metav1.GetOptions{}))
		}, ""},
		"a volume": {func(ctx context.Context) error {
			return missing(own.core.CoreV1().PersistentVolumes().Get(ctx, "none", metav1.GetOptions{}))
		}, ""},
		"all volumes": {func(ctx context.Context) error {
			return last(own.core.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{}))
		}, "cannot list"},
		"a class read live": {func(ctx context.Context) error { return last(classes.Get(ctx, "h200", metav1.GetOptions{})) }, ""},
		"a namespace read live": {func(ctx context.Context) error {
			return last(own.core.CoreV1().Namespaces().Get(ctx, m.acme, metav1.GetOptions{}))
		}, ""},
		"patching an order": {func(ctx context.Context) error {
			return last(devices.Patch(ctx, "train-a", types.MergePatchType, []byte("{}"), metav1.PatchOptions{}))
		}, "cannot patch"},
		"a class": {func(ctx context.Context) error {
			return last(classes.Create(ctx, m.Decode("{apiVersion: gpuctl.dev/v1alpha1, kind: GPUClass, metadata: {name: mine}}"), made))
		}, "cannot create"},
		"a class's spec": {func(ctx context.Context) error {
			return last(classes.Update(ctx, m.Decode("{apiVersion: gpuctl.dev/v1alpha1, kind: GPUClass, metadata: {name: h200}}"), dry))
		}, "cannot update"},
		"its ledger":          {update(v1alpha1.LedgerName), ""},
		"making its ledger":   {create(v1alpha1.LedgerName), ""},
		"the settings":        {update(v1alpha1.SettingsName), ""},
		"another ConfigMap":   {create("mine"), "may write gpuctl-ledger only"},
		"another one's data":  {update(m.release + "-controller"), "cannot get"},
		"all ConfigMaps":      {func(ctx context.Context) error { return last(maps.List(ctx, metav1.ListOptions{})) }, "cannot list"},
		"deleting its ledger": {func(ctx context.Context) error { return maps.Delete(ctx, v1alpha1.LedgerName, metav1.DeleteOptions{}) }, "cannot delete"},
		"its ledger somewhere": {func(ctx context.Context) error {
			return last(elsewhere.Get(ctx, v1alpha1.LedgerName, metav1.GetOptions{}))
		}, "cannot get"},
		"its ledger made anywhere": {func(ctx context.Context) error {
			return last(elsewhere.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.LedgerName}}, made))
		}, "cannot create"},
		"a namespace's labels": {func(ctx context.Context) error {
			return last(own.core.CoreV1().Namespaces().Patch(ctx, m.acme, types.MergePatchType, []byte("{}"), metav1.PatchOptions{}))
		}, "cannot patch"},
		"a budget": {func(ctx context.Context) error {
			return last(own.core.CoreV1().ResourceQuotas(m.acme).Create(ctx, &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}, made))
		}, "cannot create"},
	}
}
