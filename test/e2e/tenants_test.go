package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
)

var (
	gpuClasses = v1alpha1.GroupVersion.WithResource("gpuclasses")
	gpuDevices = v1alpha1.GroupVersion.WithResource("gpudevices")
)

// member returns a user who has one of Kubernetes' own roles in a namespace, and nothing
// else.
func (s *stage) member(namespace, role string) *rest.Config {
	s.t.Helper()
	name := role + "-of-" + namespace
	_, err := s.Clientset().RbacV1().RoleBindings(namespace).Create(s.t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
	}, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return s.User(name)
}

// orderer tries what has to do with orders, as a user.
type orderer struct {
	objects   dynamic.Interface
	namespace string
}

func (s *stage) orderer(user *rest.Config, namespace string) orderer {
	s.t.Helper()
	objects, err := dynamic.NewForConfig(user)
	if err != nil {
		s.t.Fatal(err)
	}
	return orderer{objects, namespace}
}

func (o orderer) device(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "gpuctl.dev/v1alpha1", "kind": "GPUDevice",
		"metadata": map[string]any{"name": name, "namespace": o.namespace},
		"spec":     map[string]any{"className": "h200", "count": int64(4)},
		"status":   map[string]any{"state": "Pending"},
	}}
}

func (o orderer) in(namespace string) dynamic.ResourceInterface {
	return o.objects.Resource(gpuDevices).Namespace(namespace)
}

func (o orderer) lists(ctx context.Context) error {
	_, err := o.in(o.namespace).List(ctx, metav1.ListOptions{})
	return err
}

func (o orderer) orders(namespace string) func(context.Context) error {
	return func(ctx context.Context) error {
		other := orderer{o.objects, namespace}
		_, err := o.in(namespace).Create(ctx, other.device("tried"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
}

func (o orderer) deletes(name string) func(context.Context) error {
	return func(ctx context.Context) error {
		return o.in(o.namespace).Delete(ctx, name, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
	}
}

func (o orderer) deletesAll(ctx context.Context) error {
	return o.in(o.namespace).DeleteCollection(ctx, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}, metav1.ListOptions{})
}

func (o orderer) patches(patch string, subresources ...string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := o.in(o.namespace).Patch(ctx, "train-a", types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
		return err
	}
}

// updates writes the device back with a change.
func (o orderer) updates(change func(*unstructured.Unstructured), subresources ...string) func(context.Context) error {
	return func(ctx context.Context) error {
		u, err := o.in(o.namespace).Get(ctx, "train-a", metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(u)
		_, err = o.in(o.namespace).Update(ctx, u, metav1.UpdateOptions{}, subresources...)
		return err
	}
}

func (o orderer) listsClasses(ctx context.Context) error {
	_, err := o.objects.Resource(gpuClasses).List(ctx, metav1.ListOptions{})
	return err
}

// deedsOfAMember are what whoever has a role in a namespace may do, and may not: order
// and delete if the role is not view alone.
func (o orderer) deedsOfAMember(other string, changes bool) map[string]deed {
	denied := func(verb string) string {
		if changes {
			return ""
		}
		return "cannot " + verb
	}
	finalizer := func(u *unstructured.Unstructured) { u.SetFinalizers([]string{v1alpha1.FinalizerUnits}) }
	status := func(u *unstructured.Unstructured) { u.Object["status"] = map[string]any{"state": "Pending"} }
	return map[string]deed{
		"classes": {o.listsClasses, ""},
		"a class of its own": {func(ctx context.Context) error {
			u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "gpuctl.dev/v1alpha1", "kind": "GPUClass", "metadata": map[string]any{"name": "mine"}}}
			_, err := o.objects.Resource(gpuClasses).Create(ctx, u, metav1.CreateOptions{})
			return err
		}, "cannot create"},
		"deleting a class": {func(ctx context.Context) error {
			return o.objects.Resource(gpuClasses).Delete(ctx, "h200", metav1.DeleteOptions{})
		}, "cannot delete"},
		"devices":             {o.lists, ""},
		"ordering":            {o.orders(o.namespace), denied("create")},
		"deleting":            {o.deletes("train-a"), denied("delete")},
		"deleting all":        {o.deletesAll, denied("deletecollection")},
		"another order":       {o.updates(func(*unstructured.Unstructured) {}), "cannot update"},
		"a label":             {o.patches(`{"metadata":{"labels":{"a":"b"}}}`), "cannot patch"},
		"its finalizers":      {o.patches(`{"metadata":{"finalizers":["gpuctl.dev/units"]}}`), "cannot patch"},
		"finalizers, updated": {o.updates(finalizer), "cannot update"},
		"its status":          {o.patches(`{"status":{"state":"Pending"}}`, "status"), `cannot patch resource "gpudevices/status"`},
		"status, updated":     {o.updates(status, "status"), `cannot update resource "gpudevices/status"`},
		"elsewhere's devices": {orderer{o.objects, other}.lists, "cannot list"},
		"ordering elsewhere":  {o.orders(other), "cannot create"},
		"deleting elsewhere":  {orderer{o.objects, other}.deletes("render"), "cannot delete"},
		"all devices":         {orderer{o.objects, ""}.lists, "at the cluster scope"},
	}
}

// Tenants order, see and delete by the roles that Kubernetes has anyway, and can do
// nothing else to a device.
func TestTenants(t *testing.T) {
	s := newStage(t)
	s.AddNode(gpuNode("worker-1", h200, 32))
	s.installController("orders.enabled=true")
	s.serve(s.webhookService(), webhookPort)
	ns, other := s.Namespace(), s.Namespace()
	s.Create(s.Decode("{apiVersion: gpuctl.dev/v1alpha1, kind: GPUClass, metadata: {name: h200}, spec: {resourceName: " + h200 + "}}"))
	s.Eventually(soon, "an administrator's order", func(ctx context.Context) error {
		_, err := s.orderer(s.Config(), other).in(other).Create(ctx, orderer{namespace: other}.device("render"), metav1.CreateOptions{})
		return err
	})
	editor := s.member(ns, "edit")
	edit := s.orderer(editor, ns)
	s.Eventually(soon, "an order", func(ctx context.Context) error {
		got, err := edit.in(ns).Create(ctx, edit.device("train-a"), metav1.CreateOptions{})
		if err == nil && got.Object["status"] != nil {
			t.Errorf("a status that comes with the order is kept: %v", got.Object["status"])
		}
		return err
	})
	t.Run("edit", func(*testing.T) { s.attempt(edit.deedsOfAMember(other, true)) })
	t.Run("admin", func(*testing.T) { s.attempt(s.orderer(s.member(ns, "admin"), ns).deedsOfAMember(other, true)) })
	t.Run("view", func(*testing.T) { s.attempt(s.orderer(s.member(ns, "view"), ns).deedsOfAMember(other, false)) })
	stranger := s.orderer(s.User("stranger"), ns)
	t.Run("stranger", func(*testing.T) {
		s.attempt(map[string]deed{
			"classes": {stranger.listsClasses, ""}, "devices": {stranger.lists, "cannot list"}, "ordering": {stranger.orders(ns), "cannot create"},
		})
	})
	t.Run("by gpuctl", func(t *testing.T) { s.ordersByGPUCtl(t, editor, edit) })
	for _, enabled := range []string{"false", "true"} {
		if code, _, _ := s.gpuctl("upgrade", "--set", "orders.enabled="+enabled); code != 0 {
			t.Errorf("upgrade with orders.enabled=%s: exit %d", enabled, code)
		}
		want := map[string]string{"false": "cannot list", "true": ""}[enabled]
		s.attempt(map[string]deed{"devices, orders.enabled=" + enabled: {edit.lists, want}})
	}
	code, _, stderr := s.gpuctl("uninstall")
	if want := "GPUDevices, of which there are 2, stay as well: kubectl get gpudevices -A"; code != 0 || !strings.Contains(stderr, want) {
		t.Errorf("uninstall: exit %d, want %q", code, want)
	}
	if err := s.orderer(s.Config(), ns).lists(t.Context()); err != nil {
		t.Errorf("orders do not outlive the release: %v", err)
	}
}

// appliesTwice orders by kubectl apply, which changes nothing the second time, and deletes
// the order.
func (s *stage) appliesTwice(t *testing.T, config string, o orderer) {
	t.Helper()
	order := fmt.Sprintf("{apiVersion: gpuctl.dev/v1alpha1, kind: GPUDevice, metadata: {name: applied, namespace: %s}, spec: {className: h200}}", o.namespace)
	for _, want := range []string{"created", "unchanged"} {
		cmd := exec.CommandContext(t.Context(), s.Binary("kubectl"), "--kubeconfig", config, "apply", "-f", "-")
		cmd.Stdin = strings.NewReader(order)
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), want) {
			t.Errorf("kubectl apply: %v, want %q in %s", err, want, out)
		}
	}
	if err := o.in(o.namespace).Delete(t.Context(), "applied", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}

// ordersByGPUCtl is what a tenant sees of its orders, until they are deleted.
func (s *stage) ordersByGPUCtl(t *testing.T, user *rest.Config, o orderer) {
	t.Helper()
	config := s.KubeconfigFor(user)
	for name, tc := range map[string]struct {
		args []string
		want string // a part of it
	}{
		"classes":         {[]string{"classes"}, "h200   " + h200},
		"devices":         {[]string{"devices", "-n", o.namespace}, "train-a   h200    4"},
		"a class, by tab": {[]string{"__complete", "classes", "--kubeconfig", config, ""}, "h200\n"},
		"an order":        {[]string{"__complete", "devices", "--kubeconfig", config, "-n", o.namespace, ""}, "train-a\n:4\n"},
		"no order twice":  {[]string{"__complete", "devices", "--kubeconfig", config, "-n", o.namespace, "train-a", ""}, ":4\n"},
	} {
		args := tc.args
		if args[0] != "__complete" {
			args = append(args, "--kubeconfig", config)
		}
		code, stdout, stderr := run(args...)
		if code != 0 || !strings.Contains(stdout, tc.want) || name == "no order twice" && strings.Contains(stdout, "train-a") {
			t.Errorf("%s: exit %d, want %q in\n%s%s", name, code, tc.want, stdout, stderr)
		}
	}
	code, stdout, stderr := gpuctlAs(config, "devices", "-A")
	if code != 1 || stdout != "" || !strings.Contains(stderr, "docs/orders.md says which role shows devices") {
		t.Errorf("devices -A: exit %d\n%s%s", code, stdout, stderr)
	}
	s.appliesTwice(t, config, o)
	w := watch(t, config, "devices", "-n", o.namespace, "--watch")
	s.Eventually(soon, "what is there", w.shows("train-a "))
	if _, err := o.in(o.namespace).Create(t.Context(), o.device("another"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.Eventually(soon, "what is ordered", w.shows("another "))
	if err := o.in(o.namespace).Delete(t.Context(), "train-a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.Eventually(soon, "what is deleted", w.shows("train-a "))
	if err := w.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	<-w.done
	if err := w.cmd.Wait(); err != nil {
		t.Errorf("a watch that is stopped ends with %v", err)
	}
	if n := len(w.lines); n < 4 || !slices.Equal(strings.Fields(w.lines[0]), []string{"NAME", "CLASS", "COUNT", "STATE", "NODE", "VM", "AGE"}) {
		t.Errorf("%d lines: %q", n, w.lines)
	}
}
