package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
)

// account is what a ServiceAccount of the chart can do.
type account struct {
	core    kubernetes.Interface
	objects dynamic.Interface
}

// account returns a client with a token of an account, bound to a pod if one is
// given.
func (s *stage) account(name string, pod *corev1.Pod) account {
	s.t.Helper()
	request := &authenticationv1.TokenRequest{}
	if pod != nil {
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}
	}
	token, err := s.Clientset().CoreV1().ServiceAccounts(s.namespace).CreateToken(s.t.Context(), s.release+"-"+name, request, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	config := &rest.Config{QPS: -1, Host: s.Config().Host, BearerToken: token.Status.Token, TLSClientConfig: rest.TLSClientConfig{CAData: s.Config().CAData}}
	core, err1 := kubernetes.NewForConfig(config)
	objects, err2 := dynamic.NewForConfig(config)
	if err := errors.Join(err1, err2); err != nil {
		s.t.Fatal(err)
	}
	return account{core, objects}
}

// deed is something that an account tries.
type deed struct {
	try  func(context.Context) error
	want string // what the refusal says; "" when it is allowed
}

// attempt tries deeds. A policy takes a moment to act, so that a refusal is waited
// for; what is allowed has to succeed.
func (s *stage) attempt(deeds map[string]deed) {
	s.t.Helper()
	for name, d := range deeds {
		s.Eventually(soon, name, func(ctx context.Context) error {
			err := d.try(ctx)
			switch {
			case d.want == "":
				return err
			case err == nil:
				return errors.New("it is allowed")
			case !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), d.want):
				return fmt.Errorf("the refusal is %w, want %q", err, d.want)
			}
			return nil
		})
	}
}

// An agent writes what is its own node's, and nothing else.
func TestAgentAccount(t *testing.T) {
	s := newStage(t)
	s.node("worker-1", 1, "vfio-pci", 1)
	s.node("worker-2", 1, "vfio-pci", 1)
	s.install("--wait")
	pods, err := s.Clientset().CoreV1().Pods(s.namespace).List(t.Context(), metav1.ListOptions{
		LabelSelector: "app.kubernetes.io/component=agent", FieldSelector: "spec.nodeName=worker-1",
	})
	if err != nil || len(pods.Items) != 1 {
		t.Fatalf("%d agents on worker-1: %v", len(pods.Items), err)
	}
	bound, free := s.account("agent", &pods.Items[0]), s.account("agent", nil)
	touch := func(a account, node string) func(context.Context) error {
		return func(ctx context.Context) error {
			u, err := s.Dynamic().Resource(gpuNodes).Get(ctx, node, metav1.GetOptions{})
			if err != nil {
				return err
			}
			u.SetLabels(map[string]string{"touched": "true"})
			_, err = a.objects.Resource(gpuNodes).Update(ctx, u, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		}
	}
	lease := func(node string) func(context.Context) error {
		return func(ctx context.Context) error {
			l, err := s.Clientset().CoordinationV1().Leases(s.namespace).Get(ctx, "gpuctl-agent-"+node, metav1.GetOptions{})
			if err != nil {
				return err
			}
			_, err = bound.core.CoordinationV1().Leases(s.namespace).Update(ctx, l, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		}
	}
	patch := func(get func(context.Context, []byte) error) func(context.Context) error {
		return func(ctx context.Context) error { return get(ctx, []byte(`{"metadata":{"labels":{"touched":"true"}}}`)) }
	}
	s.attempt(map[string]deed{
		"its own GPUNode":      {touch(bound, "worker-1"), ""},
		"its own Lease":        {lease("worker-1"), ""},
		"another GPUNode":      {touch(bound, "worker-2"), "may write worker-1 only"},
		"another Lease":        {lease("worker-2"), "may write gpuctl-agent-worker-1 only"},
		"a token without node": {touch(free, "worker-1"), "bound to its pod"},
		"a GPUNode of no node": {func(ctx context.Context) error {
			u, err := s.Dynamic().Resource(gpuNodes).Get(ctx, "worker-1", metav1.GetOptions{})
			if err != nil {
				return err
			}
			u.SetName("worker-9")
			u.SetUID("")
			u.SetResourceVersion("")
			_, err = bound.objects.Resource(gpuNodes).Create(ctx, u, metav1.CreateOptions{})
			return err
		}, "may write worker-1 only"},
		"a Lease of somebody else": {func(ctx context.Context) error {
			_, err := bound.core.CoordinationV1().Leases(s.namespace).Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "leader"}}, metav1.CreateOptions{})
			return err
		}, "may write gpuctl-agent-worker-1 only"},
		"deleting its GPUNode": {func(ctx context.Context) error {
			return bound.objects.Resource(gpuNodes).Delete(ctx, "worker-1", metav1.DeleteOptions{})
		}, "cannot delete"},
		"secrets": {func(ctx context.Context) error {
			_, err := bound.core.CoreV1().Secrets(s.namespace).List(ctx, metav1.ListOptions{})
			return err
		}, "cannot list"},
		"its Node": {patch(func(ctx context.Context, data []byte) error {
			_, err := bound.core.CoreV1().Nodes().Patch(ctx, "worker-1", types.MergePatchType, data, metav1.PatchOptions{})
			return err
		}), "cannot patch"},
		"KubeVirt": {patch(func(ctx context.Context, data []byte) error {
			kv := kubeVirtRef(s.Cluster)
			gvr := gpuNodes.GroupVersion().WithResource("kubevirts")
			gvr.Group, gvr.Version = "kubevirt.io", "v1"
			_, err := bound.objects.Resource(gvr).Namespace(kv.GetNamespace()).Patch(ctx, kv.GetName(), types.MergePatchType, data, metav1.PatchOptions{})
			return err
		}), "cannot patch"},
	})
}

// waitingHook installs a release whose hook waits for the device plugin until the
// test ends, and returns the hook's account, which is there while it runs.
func (s *stage) waitingHook() account {
	s.t.Helper()
	s.node("worker-1", 1, "vfio-pci", 0)
	var installing sync.WaitGroup
	installing.Go(func() { s.gpuctl("install", "--set", "hook.wait=90s") })
	s.t.Cleanup(func() {
		s.SetAllocatable("worker-1", h200, 1)
		installing.Wait()
	})
	s.Eventually(soon, "the hook runs", func(ctx context.Context) error {
		pods, err := s.Clientset().CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=hook"})
		if err != nil || len(pods.Items) != 1 || pods.Items[0].Status.Phase != corev1.PodRunning {
			return fmt.Errorf("%d pods: %w", len(pods.Items), err)
		}
		return nil
	})
	return s.account("hook", nil)
}

// The hook writes of the KubeVirt CR what wiring is about, and no instance. Its
// account is there while it runs.
func TestHookAccount(t *testing.T) {
	s := newStage(t)
	hook := s.waitingHook()
	s.attempt(s.deedsOfWiring(hook))
	s.attempt(map[string]deed{
		"another Job than its own": {func(ctx context.Context) error {
			_, err := hook.core.BatchV1().Jobs(s.namespace).Get(ctx, "other", metav1.GetOptions{})
			return err
		}, "cannot get"},
	})
}

// The controller may do what the hook may, and say how it stands.
func TestControllerAccount(t *testing.T) {
	s := newStage(t)
	s.node("worker-1", 1, "vfio-pci", 1)
	s.installController()
	controller := s.account("controller", nil)
	s.attempt(s.deedsOfWiring(controller))
	wirings := v1alpha1.GroupVersion.WithResource("gpuwirings")
	dry := []string{metav1.DryRunAll}
	lease := func(name string) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := controller.core.CoordinationV1().Leases(s.namespace).Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{DryRun: dry})
			if apierrors.IsAlreadyExists(err) {
				return nil
			}
			return err
		}
	}
	s.attempt(map[string]deed{
		"its Lease":     {lease(v1alpha1.ControllerLease), ""},
		"another Lease": {lease("gpuctl-agent-worker-1"), v1alpha1.ControllerLease},
		"another GPUWiring": {func(ctx context.Context) error {
			u := s.Decode("{apiVersion: gpuctl.dev/v1alpha1, kind: GPUWiring, metadata: {name: mine}}")
			_, err := controller.objects.Resource(wirings).Create(ctx, u, metav1.CreateOptions{DryRun: dry})
			return err
		}, "cluster"},
		"deleting the GPUWiring": {func(ctx context.Context) error {
			return controller.objects.Resource(wirings).Delete(ctx, v1alpha1.WiringName, metav1.DeleteOptions{})
		}, "cannot delete"},
		"vGPUs that KubeVirt makes": {func(ctx context.Context) error {
			u := kubeVirt(t, s.Cluster)
			if err := unstructured.SetNestedStringSlice(u.Object, []string{"nvidia-222"}, "spec", "configuration", "mediatedDevicesConfiguration", "mediatedDeviceTypes"); err != nil {
				return err
			}
			gvr := schema.GroupVersionResource{Group: "kubevirt.io", Version: "v1", Resource: "kubevirts"}
			_, err := controller.objects.Resource(gvr).Namespace("kubevirt").Update(ctx, u, metav1.UpdateOptions{DryRun: dry})
			return err
		}, "permittedHostDevices and featureGates only"},
	})
}

// deedsOfWiring are what an account that wires may do, and may not.
func (s *stage) deedsOfWiring(hook account) map[string]deed {
	t := s.t
	ns := s.Namespace()
	kubevirts := gpuNodes.GroupVersion().WithResource("kubevirts")
	kubevirts.Group, kubevirts.Version = "kubevirt.io", "v1"
	instances := kubevirts.GroupVersion().WithResource("virtualmachineinstances")
	dry := []string{metav1.DryRunAll}
	edit := func(field string, value any) func(context.Context) error {
		return func(ctx context.Context) error {
			u := kubeVirt(t, s.Cluster).DeepCopy()
			at := u.Object
			path := strings.Split(field, ".")
			for _, key := range path[:len(path)-1] {
				if _, ok := at[key].(map[string]any); !ok {
					at[key] = map[string]any{}
				}
				at = at[key].(map[string]any)
			}
			at[path[len(path)-1]] = value
			_, err := hook.objects.Resource(kubevirts).Namespace("kubevirt").Update(ctx, u, metav1.UpdateOptions{DryRun: dry})
			return err
		}
	}
	create := func(name string, options metav1.CreateOptions) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := hook.objects.Resource(instances).Namespace(ns).Create(ctx, vmi(s.Cluster, ns, name, "gpus", h200), options)
			return err
		}
	}
	u := s.Create(vmi(s.Cluster, ns, "waiting", "gpus", h200))
	t.Cleanup(func() { deleteAnyway(t, s.Cluster, u) })
	wake := func(patch string) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := hook.objects.Resource(instances).Namespace(ns).Patch(ctx, "waiting", types.MergePatchType, []byte(patch), metav1.PatchOptions{DryRun: dry})
			return err
		}
	}
	entry := map[string]any{"pciHostDevices": []any{map[string]any{"pciVendorSelector": "10DE:2335", "resourceName": h200, "externalResourceProvider": true}}}
	return map[string]deed{
		"the table":                {edit("spec.configuration.permittedHostDevices", entry), ""},
		"the gates":                {edit("spec.configuration.developerConfiguration.featureGates", []any{"LiveMigration", "HostDevices"}), ""},
		"its record":               {edit("metadata.annotations", map[string]any{"gpuctl.dev/wired": "{}"}), ""},
		"another field":            {edit("spec.imagePullPolicy", "Never"), "permittedHostDevices and featureGates only"},
		"another configuration":    {edit("spec.configuration.emulatedMachines", []any{"q35*"}), "permittedHostDevices and featureGates only"},
		"another developer's":      {edit("spec.configuration.developerConfiguration.useEmulation", true), "permittedHostDevices and featureGates only"},
		"another annotation":       {edit("metadata.annotations", map[string]any{"example.com/mine": "1"}), "its own annotations only"},
		"a label":                  {edit("metadata.labels", map[string]any{"mine": "1"}), "its own annotations only"},
		"a finalizer":              {edit("metadata.finalizers", []any{"example.com/mine"}), "its own annotations only"},
		"waking":                   {wake(`{"metadata":{"annotations":{"gpuctl.dev/woken-at":"now"}}}`), ""},
		"an instance's annotation": {wake(`{"metadata":{"annotations":{"example.com/mine":"1"}}}`), "its own annotations only"},
		"an instance's label":      {wake(`{"metadata":{"labels":{"mine":"1"}}}`), "its own annotations only"},
		"an instance's finalizer":  {wake(`{"metadata":{"finalizers":["example.com/mine"]}}`), "its own annotations only"},
		"an instance's spec":       {wake(`{"spec":{"terminationGracePeriodSeconds":9}}`), "restricted"},
		"an instance in a dry run": {create("dry", metav1.CreateOptions{DryRun: dry}), ""},
		"an instance":              {create("mine", metav1.CreateOptions{}), "in a dry run only"},
		"the ConfigMap of somebody": {func(ctx context.Context) error {
			_, err := hook.core.CoreV1().ConfigMaps("kube-system").List(ctx, metav1.ListOptions{})
			return err
		}, "cannot list"},
		"secrets": {func(ctx context.Context) error {
			_, err := hook.core.CoreV1().Secrets(s.namespace).List(ctx, metav1.ListOptions{})
			return err
		}, "cannot list"},
		"a pod": {func(ctx context.Context) error {
			_, err := hook.core.CoreV1().Pods(s.namespace).Create(ctx, &corev1.Pod{}, metav1.CreateOptions{})
			return err
		}, "cannot create"},
		"a GPUNode": {func(ctx context.Context) error {
			return hook.objects.Resource(gpuNodes).Delete(ctx, "worker-1", metav1.DeleteOptions{})
		}, "cannot delete"},
		"its own role": {func(ctx context.Context) error {
			_, err := hook.core.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{}, metav1.CreateOptions{})
			return err
		}, "cannot create"},
		"a node": {func(ctx context.Context) error {
			return hook.core.CoreV1().Nodes().Delete(ctx, "worker-1", metav1.DeleteOptions{})
		}, "cannot delete"},
		"deleting the KubeVirt": {func(ctx context.Context) error {
			return hook.objects.Resource(kubevirts).Namespace("kubevirt").Delete(ctx, "kubevirt", metav1.DeleteOptions{})
		}, "cannot delete"},
	}
}

// Of a HyperConverged the hook writes the table, wherever its version has it.
func TestHookAccountAndHyperConverged(t *testing.T) {
	s := newStage(t)
	hco := hyperConverged(t, s.Cluster, "testdata/hyperconverged-v1.yaml", "v1", "{virtualization: {evictionStrategy: None}}")
	hook := s.waitingHook()
	hyperconvergeds := gpuNodes.GroupVersion().WithResource("hyperconvergeds")
	hyperconvergeds.Group, hyperconvergeds.Version = "hco.kubevirt.io", "v1"
	edit := func(change func(*unstructured.Unstructured) error) func(context.Context) error {
		return func(ctx context.Context) error {
			u, err := s.Resource(hco).Get(ctx, hco.GetName(), metav1.GetOptions{})
			if err != nil {
				return err
			}
			if err := change(u); err != nil {
				return err
			}
			_, err = hook.objects.Resource(hyperconvergeds).Namespace(u.GetNamespace()).Update(ctx, u, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		}
	}
	s.attempt(map[string]deed{
		"the table": {edit(func(u *unstructured.Unstructured) error {
			entry := map[string]any{"pciDeviceSelector": "10DE:2335", "resourceName": h200, "externalResourceProvider": true}
			return unstructured.SetNestedSlice(u.Object, []any{entry}, "spec", "virtualization", "permittedHostDevices", "pciHostDevices")
		}), ""},
		"what is beside the table": {edit(func(u *unstructured.Unstructured) error {
			return unstructured.SetNestedField(u.Object, "LiveMigrate", "spec", "virtualization", "evictionStrategy")
		}), "of a HyperConverged the gpuctl hook may change permittedHostDevices only"},
		"all that is beside the table": {edit(func(u *unstructured.Unstructured) error {
			unstructured.RemoveNestedField(u.Object, "spec", "virtualization")
			return nil
		}), "of a HyperConverged the gpuctl hook may change permittedHostDevices only"},
		"a label": {edit(func(u *unstructured.Unstructured) error {
			u.SetLabels(map[string]string{"mine": "1"})
			return nil
		}), "its own annotations only"},
	})
}

// A pod that is not restricted is refused where the chart's pods run: the namespace
// of every release in these tests enforces the standard.
func TestStageIsRestricted(t *testing.T) {
	s := newStage(t)
	_, err := s.Clientset().CoreV1().Pods(s.namespace).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "loose"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "x"}}},
	}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `violates PodSecurity "restricted:latest"`) {
		t.Errorf("a loose pod is answered with %v", err)
	}
}
