package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
)

// webhookPort is the chart's.
const webhookPort = "9443"

// names of what the chart makes for the webhooks.
func (s *stage) webhookService() string { return s.release + "-webhook" }
func (s *stage) webhookSecret() string  { return s.release + "-webhook-cert" }
func (s *stage) webhookConfiguration() string {
	return "virtualmachines." + s.release + "." + s.namespace + ".gpuctl.dev"
}

// order returns a GPUDevice.
func (s *stage) order(namespace, name, class string, count int) *unstructured.Unstructured {
	return s.Decode(fmt.Sprintf("{apiVersion: gpuctl.dev/v1alpha1, kind: GPUDevice, metadata: {name: %s, namespace: %s}, spec: {className: %s, count: %d}}", name, namespace, class, count))
}

// place creates an order, without storing it in a dry run.
func (s *stage) place(ctx context.Context, order *unstructured.Unstructured, dry bool) error {
	var options metav1.CreateOptions
	if dry {
		options.DryRun = []string{metav1.DryRunAll}
	}
	_, err := s.Dynamic().Resource(gpuDevices).Namespace(order.GetNamespace()).Create(ctx, order, options)
	return err
}

// Orders are judged by whichever replica is asked, with a certificate that is changed
// without anybody noticing; without any replica new orders are refused, and nothing else.
func TestOrdersAreJudged(t *testing.T) {
	s := newStage(t)
	s.node("worker-1", 8, "vfio-pci", 8)
	began := time.Now()
	s.installController("orders.enabled=true")
	t.Logf("installed after %s", time.Since(began).Round(time.Millisecond))
	proxy := s.serve(s.webhookService(), webhookPort)
	s.allowsAtOnce()
	s.class("vgpu", "{resourceName: nvidia.com/GRID_T4-16Q}")
	s.class("licensed", "{resourceName: "+h200+", entitlement: vgpu}")
	going := s.class("going", "{resourceName: "+h200+"}")
	s.finalize(gpuClasses, going)

	s.judgesOrders()
	s.attempt(s.deedsOfCertificates())
	s.rotatesCertificates(proxy)
	s.keepsCertificates()
	pod, _ := s.leader()
	s.KillPod(pod, syscall.SIGKILL)
	s.Eventually(2*time.Second, "one replica is killed, the other one answers", func(ctx context.Context) error {
		return s.place(ctx, s.order("default", "still", "h200", 1), true)
	})
	s.survivesOutage()
}

// allowsAtOnce has orders allowed right after their class, or their namespace, was made.
func (s *stage) allowsAtOnce() {
	s.t.Helper()
	s.class("h200", "{resourceName: "+h200+", maxCount: 4}")
	if err := s.place(s.t.Context(), s.order("default", "first", "h200", 1), true); err != nil {
		s.t.Errorf("an order right after the first class: %v", err)
	}
	for n := range 5 {
		class := fmt.Sprintf("new-%d", n)
		s.class(class, "{resourceName: "+h200+"}")
		if err := s.place(s.t.Context(), s.order("default", "first", class, 1), true); err != nil {
			s.t.Errorf("an order right after its class: %v", err)
		}
		if err := s.place(s.t.Context(), s.order(s.Namespace(), "first", class, 1), true); err != nil {
			s.t.Errorf("an order right after its namespace: %v", err)
		}
	}
}

// finalize deletes a cluster-wide object that does not go until the test ends.
func (s *stage) finalize(kind interface{ String() string }, u *unstructured.Unstructured) {
	s.t.Helper()
	patch := func(finalizers string) error {
		_, err := s.Resource(u).Patch(context.Background(), u.GetName(), types.MergePatchType, []byte(`{"metadata":{"finalizers":`+finalizers+`}}`), metav1.PatchOptions{})
		return err
	}
	err := patch(`["example.com/test"]`)
	if err = errors.Join(err, s.Resource(u).Delete(s.t.Context(), u.GetName(), metav1.DeleteOptions{})); err != nil {
		s.t.Fatalf("%s %s: %v", kind, u.GetName(), err)
	}
	s.t.Cleanup(func() {
		if err := patch("null"); err != nil && !apierrors.IsNotFound(err) {
			s.t.Error(err)
		}
	})
}

// judgesOrders has orders refused by their codes, and allowed.
func (s *stage) judgesOrders() {
	t := s.t
	t.Helper()
	ns := s.tenant()
	for name, tc := range map[string]struct {
		class  string
		count  int
		dry    bool
		code   string
		reason metav1.StatusReason
	}{
		"unknown class":          {"nothing", 1, false, "GPU0620: there is no class nothing", metav1.StatusReasonForbidden},
		"unknown class, dry run": {"nothing", 1, true, "GPU0620: there is no class nothing", metav1.StatusReasonForbidden},
		"class that goes":        {"going", 1, false, "GPU0621: class going is being deleted", metav1.StatusReasonForbidden},
		"too many":               {"h200", 5, false, "GPU0623: a device of class h200 may have 4 units at most, and 5 are asked for", metav1.StatusReasonForbidden},
		"unlicensed vGPU":        {"vgpu", 1, false, "GPU0622: class vgpu is not open for orders", metav1.StatusReasonForbidden},
		"not entitled":           {"licensed", 1, false, "GPU0612: class licensed needs the entitlement vgpu", metav1.StatusReasonForbidden},
		"allowed, dry run":       {"h200", 4, true, "", ""},
	} {
		err := s.place(t.Context(), s.order(ns, "train", tc.class, tc.count), tc.dry)
		switch {
		case tc.code == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case tc.code == "":
		case err == nil || !strings.Contains(err.Error(), `"gpudevices.gpuctl.dev" denied the request: `+tc.code) || apierrors.ReasonForError(err) != tc.reason:
			t.Errorf("%s: %v (%s), want %s", name, err, apierrors.ReasonForError(err), tc.code)
		}
		if _, err := s.Dynamic().Resource(gpuDevices).Namespace(ns).Get(t.Context(), "train", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("%s: a device is left: %v", name, err)
		}
	}
	if _, err := s.Clientset().CoreV1().Namespaces().Patch(t.Context(), ns, types.MergePatchType, []byte(`{"metadata":{"labels":{"gpuctl.dev/entitlement.vgpu":"true"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	s.Eventually(soon, "it is entitled", func(ctx context.Context) error { return s.place(ctx, s.order(ns, "licensed", "licensed", 1), true) })
	for name, order := range map[string]*unstructured.Unstructured{
		"allowed":  s.order(ns, "train", "h200", 4),
		"entitled": s.order(ns, "licensed", "licensed", 1),
		"excluded": s.order(s.namespace, "unjudged", "nothing", 1), // gpuctl's own namespace
	} {
		if err := s.place(t.Context(), order, false); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// keepsCertificates has an upgrade leave the Secret's data and the caBundle.
func (s *stage) keepsCertificates() {
	t := s.t
	t.Helper()
	kept := func() (map[string][]byte, []byte) {
		secret, err1 := s.Clientset().CoreV1().Secrets(s.namespace).Get(t.Context(), s.webhookSecret(), metav1.GetOptions{})
		bundle, err2 := s.trusted(t.Context())
		if err := errors.Join(err1, err2); err != nil || len(secret.Data) != 4 || len(bundle) == 0 {
			t.Fatalf("%d keys, %d bytes trusted: %v", len(secret.Data), len(bundle), err)
		}
		return secret.Data, bundle
	}
	data, bundle := kept()
	if code, _, _ := s.gpuctl("upgrade"); code != 0 {
		t.Fatalf("upgrade: exit %d", code)
	}
	if after, trusted := kept(); !maps.EqualFunc(after, data, bytes.Equal) || !bytes.Equal(trusted, bundle) {
		t.Error("the upgrade changes certificates")
	}
}

// survivesOutage has everything but new orders go on without any replica.
func (s *stage) survivesOutage() {
	t := s.t
	t.Helper()
	ns := s.tenant()
	if err := s.place(t.Context(), s.order(ns, "before", "h200", 1), false); err != nil {
		t.Fatal(err)
	}
	_, err := s.Clientset().AppsV1().Deployments(s.namespace).Patch(t.Context(), s.release+"-controller", types.MergePatchType, []byte(`{"spec":{"replicas":0}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.Eventually(soon, "no replica is left", func(ctx context.Context) error {
		list, err := s.Clientset().CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=controller"})
		if err == nil && len(list.Items) > 0 {
			err = errorf("%d are left", len(list.Items))
		}
		return err
	})
	status, _ := errors.AsType[*apierrors.StatusError](s.place(t.Context(), s.order(ns, "during", "h200", 1), false))
	if status == nil || status.ErrStatus.Code != http.StatusInternalServerError || !strings.Contains(status.ErrStatus.Message, `failed calling webhook "gpudevices.gpuctl.dev"`) {
		t.Errorf("a new order is answered with %v", status)
	}
	devices := s.Dynamic().Resource(gpuDevices).Namespace(ns)
	_, err = devices.Patch(t.Context(), "before", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{})
	if err = errors.Join(err, devices.Delete(t.Context(), "before", metav1.DeleteOptions{})); err != nil {
		t.Errorf("a device is held: %v", err)
	}
	s.class("another", "{resourceName: "+h200+"}")
	s.Create(machine(s.Cluster, ns, "goes-on", entries("gpus", h200, 1)))
	s.Eventually(soon, "KubeVirt makes its launcher", pods(s.Cluster, vmi(s.Cluster, ns, "goes-on", "gpus", h200), 1))
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "goes-on"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "x"}}}}
	if _, err := s.Clientset().CoreV1().Pods(ns).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
	s.refusesReferences(ns)
}

// refusesReferences has nobody judge an instance that names devices, and the policies hold.
func (s *stage) refusesReferences(ns string) {
	t := s.t
	t.Helper()
	create := func(labels, annotations map[string]string) error {
		u := vmi(s.Cluster, ns, "refers", "gpus", h200)
		u.SetLabels(labels)
		u.SetAnnotations(annotations)
		_, err := s.Resource(u).Create(t.Context(), u, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	label, names := map[string]string{v1alpha1.LabelDeviceReference: v1alpha1.ValueTrue}, map[string]string{v1alpha1.AnnotationDevices: `{"devices":["train-a"]}`}
	if err := create(label, names); !apierrors.IsInternalError(err) || !strings.Contains(err.Error(), `failed calling webhook "virtualmachineinstances.gpuctl.dev"`) {
		t.Errorf("an instance that names devices: %v", err)
	}
	if err := create(nil, names); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "belong together: set both in metadata") {
		t.Errorf("an instance without the label: %v", err)
	}
	yes := true
	forged := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "forged", Labels: map[string]string{"kubevirt.io": "virt-launcher"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "kubevirt.io/v1", Kind: "VirtualMachineInstance", Name: "goes-on", UID: "1", Controller: &yes}},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "x"}}},
	}
	if _, err := s.Clientset().CoreV1().Pods(ns).Create(t.Context(), forged, metav1.CreateOptions{}); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "made by KubeVirt only") {
		t.Errorf("a launcher of somebody: %v", err)
	}
}

// deedsOfCertificates are what the controller may do for its certificate, and may not.
func (s *stage) deedsOfCertificates() map[string]deed {
	own := s.account("controller", nil)
	secrets, hooks := own.core.CoreV1().Secrets(s.namespace), own.core.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	dry := metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}}
	made := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	merge := metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}
	updateSecret := func(ctx context.Context) error {
		got, err := secrets.Get(ctx, s.webhookSecret(), metav1.GetOptions{})
		if err == nil {
			_, err = secrets.Update(ctx, got, dry)
		}
		return err
	}
	updateHooks := func(ctx context.Context) error {
		got, err := hooks.Get(ctx, s.webhookConfiguration(), metav1.GetOptions{})
		if err == nil {
			_, err = hooks.Update(ctx, got, dry)
		}
		return err
	}
	last := func(_ any, err error) error { return err }
	return map[string]deed{
		"its Secret":        {updateSecret, ""},
		"its configuration": {updateHooks, ""},
		"another Secret":    {func(ctx context.Context) error { return last(secrets.Get(ctx, "other", metav1.GetOptions{})) }, "cannot get"},
		"its Secret's name elsewhere": {func(ctx context.Context) error {
			return last(own.core.CoreV1().Secrets("default").Get(ctx, s.webhookSecret(), metav1.GetOptions{}))
		}, "cannot get"},
		"all Secrets": {func(ctx context.Context) error { return last(secrets.List(ctx, metav1.ListOptions{})) }, "cannot list"},
		"watching its Secret": {func(ctx context.Context) error {
			return last(secrets.Watch(ctx, metav1.SingleObject(metav1.ObjectMeta{Name: s.webhookSecret()})))
		}, "cannot watch"},
		"a new Secret": {func(ctx context.Context) error {
			return last(secrets.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}, made))
		}, "cannot create"},
		"deleting its Secret": {func(ctx context.Context) error { return secrets.Delete(ctx, s.webhookSecret(), metav1.DeleteOptions{}) }, "cannot delete"},
		"patching its Secret": {func(ctx context.Context) error {
			return last(secrets.Patch(ctx, s.webhookSecret(), types.MergePatchType, []byte("{}"), merge))
		}, "cannot patch"},
		"another configuration": {func(ctx context.Context) error {
			return last(hooks.Get(ctx, "virt-api-validator", metav1.GetOptions{}))
		}, "cannot get"},
		"all configurations": {func(ctx context.Context) error { return last(hooks.List(ctx, metav1.ListOptions{})) }, "cannot list"},
		"a new configuration": {func(ctx context.Context) error {
			return last(hooks.Create(ctx, &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}, made))
		}, "cannot create"},
		"deleting its configuration": {func(ctx context.Context) error {
			return hooks.Delete(ctx, s.webhookConfiguration(), metav1.DeleteOptions{})
		}, "cannot delete"},
		"its mutating configuration": {func(ctx context.Context) error {
			mutating := own.core.AdmissionregistrationV1().MutatingWebhookConfigurations()
			got, err := mutating.Get(ctx, s.webhookConfiguration(), metav1.GetOptions{})
			if err == nil {
				_, err = mutating.Update(ctx, got, dry)
			}
			return err
		}, ""},
		"KubeVirt's mutating configuration": {func(ctx context.Context) error {
			return last(own.core.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, "virt-api-mutator", metav1.GetOptions{}))
		}, "cannot get"},
		"a class": {func(ctx context.Context) error {
			return own.objects.Resource(gpuClasses).Delete(ctx, "h200", metav1.DeleteOptions{})
		}, "cannot delete"},
	}
}
