package e2e

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/gpuctl/gpuctl/test/cluster"
)

// What the hook finds never fails a release that is not strict, and is said.
func TestHookWithoutGPUNode(t *testing.T) {
	s := newStage(t)
	began := time.Now()
	s.install("--set", "hook.wait=2m,hook.firstNode=2s", "--set", "hook.strict=true")
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("it took %s, the first node has 2 s", took)
	}
	if _, message := s.hook("wire"); !strings.Contains(message, "GPU0106") {
		t.Errorf("the hook says\n%s", message)
	}
}

func TestHookWithASilentNode(t *testing.T) {
	s := newStage(t)
	for _, node := range []string{"worker-1", "worker-2", "worker-3"} {
		s.node(node, 4, "vfio-pci", 4)
	}
	// On worker-3 the agent's pod is made and never starts.
	s.SetAllocatable("worker-3", corev1.ResourcePods, 0)
	s.install("--set", "hook.wait=6s")
	_, message := s.hook("wire")
	for _, want := range []string{"GPU0105", "worker-1: 4 of 4 GPUs usable", "worker-3: 4 usable; agent does not report (GPU0105)", "not scheduled"} {
		if !strings.Contains(message, want) {
			t.Errorf("the hook does not say %q:\n%s", want, message)
		}
	}
	if got := permitted(kubeVirt(t, s.Cluster)); !slices.Equal(got, []string{h200}) {
		t.Errorf("permitted %v", got)
	}
	if reasons, _ := s.events(); !slices.Contains(reasons, "Wired") {
		t.Errorf("Events %v", reasons)
	}
}

func TestHookAndThePlugin(t *testing.T) {
	t.Run("not in time", func(t *testing.T) {
		s := newStage(t)
		s.node("worker-1", 8, "vfio-pci", 0)
		s.install("--set", "hook.wait=5s")
		if _, message := s.hook("wire"); !strings.Contains(message, "GPU0102") {
			t.Errorf("the hook says\n%s", message)
		}
	})
	t.Run("not in time, and that matters", func(t *testing.T) {
		s := newStage(t)
		s.node("worker-1", 8, "vfio-pci", 0)
		code, _, stderr := s.gpuctl("install", "--set", "hook.wait=5s,hook.strict=true,controller.enabled=false")
		if code != 1 {
			t.Errorf("install: exit %d", code)
		}
		for _, want := range []string{"gpu-operator-hooks-wire", "waited 5s", "GPU0102", "kubectl -n " + s.namespace + " logs job/gpu-operator-hooks-wire"} {
			if !strings.Contains(stderr, want) {
				t.Errorf("the error lacks %q:\n%s", want, stderr)
			}
		}
		if reasons, _ := s.events(); !slices.Contains(reasons, "WiringTimedOut") {
			t.Errorf("Events %v", reasons)
		}
		// Its rights are gone, its Job is there to be read.
		roles, err := s.Clientset().RbacV1().ClusterRoles().List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=hook"})
		if err != nil || len(roles.Items) != 0 {
			t.Errorf("%d roles of the hook are left: %v", len(roles.Items), err)
		}
		pods, err := s.Clientset().CoreV1().Pods(s.namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=hook"})
		if err != nil || len(pods.Items) != 1 || pods.Items[0].Status.ContainerStatuses[0].State.Terminated.ExitCode != 124 {
			t.Errorf("a timeout was tried again: %d pods, %v", len(pods.Items), err)
		}
	})
	t.Run("in time", func(t *testing.T) {
		s := newStage(t)
		s.node("worker-1", 8, "vfio-pci", 0)
		s.node("mislabelled", 0, "", 0) // is not waited for
		began := time.Now()
		var later sync.WaitGroup
		later.Go(func() {
			time.Sleep(8 * time.Second)
			s.SetAllocatable("worker-1", h200, 8)
		})
		defer later.Wait()
		s.install("--set", "hook.wait=60s,hook.strict=true")
		if took := time.Since(began); took > 40*time.Second {
			t.Errorf("it took %s, the plugin 8 s", took)
		}
		if got := permitted(kubeVirt(t, s.Cluster)); !slices.Equal(got, []string{h200}) {
			t.Errorf("permitted %v", got)
		}
	})
}

// The first entry would break a VM that uses something else.
func TestHookHoldsTheFirstEntryBack(t *testing.T) {
	s := newStage(t)
	s.node("worker-1", 8, "vfio-pci", 8)
	s.AddNode(cluster.Node{Name: "other", Resources: map[corev1.ResourceName]int64{"intel.com/qat": 1}})
	ns := s.Namespace()
	vm := s.Create(s.Decode(`{apiVersion: kubevirt.io/v1, kind: VirtualMachine, metadata: {name: crypto, namespace: ` + ns + `}, spec: {runStrategy: Halted, template: {spec: {domain: {
  resources: {requests: {memory: 64Mi}}, devices: {gpus: [{name: q, deviceName: intel.com/qat}]}}}}}}`))
	defer deleteAnyway(t, s.Cluster, vm)
	same := untouched(t, s.Cluster)
	s.install()
	same()
	if reasons, _ := s.events(); !slices.Contains(reasons, "WiringHeldBack") {
		t.Errorf("Events %v", reasons)
	}
	code, _, stderr := s.gpuctl("upgrade", "--set", "hook.strict=true")
	if code != 1 || !strings.Contains(stderr, "GPU0319") || !strings.Contains(stderr, ns+"/crypto") {
		t.Errorf("strict: exit %d\n%s", code, stderr)
	}
	same()
	// It is permitted as well, and then nothing is held back.
	code, _, stderr = s.gpuctl("upgrade", "--set-string", "gpu.permittedHostDevices.pciHostDevices[0].pciVendorSelector=8086:37c8",
		"--set", "gpu.permittedHostDevices.pciHostDevices[0].resourceName=intel.com/qat")
	if got := permitted(kubeVirt(t, s.Cluster)); code != 0 || !slices.Equal(got, []string{h200, "intel.com/qat"}) {
		t.Errorf("exit %d, permitted %v\n%s", code, got, stderr)
	}
}

// Without KubeVirt there is nothing to wire, and nothing to take away.
func TestHookWithoutKubeVirt(t *testing.T) {
	s := newStage(t)
	s.node("worker-1", 8, "vfio-pci", 8)
	s.withoutKubeVirt()
	s.install("--set", "hook.wait=4s")
	if _, message := s.hook("wire"); !strings.Contains(message, "GPU0101") {
		t.Errorf("the hook says\n%s", message)
	}
	if code, _, stderr := s.gpuctl("uninstall"); code != 0 {
		t.Errorf("uninstall: exit %d\n%s", code, stderr)
	}
	if _, message := s.hook("unwire"); !strings.Contains(message, "KubeVirt is gone") {
		t.Errorf("the hook says\n%s", message)
	}
}

// withoutKubeVirt deletes the KubeVirt CR. It comes back when the test ends, or calls
// the returned function.
func (s *stage) withoutKubeVirt() (restore func()) {
	t := s.t
	kv := kubeVirt(t, s.Cluster)
	restore = sync.OnceFunc(func() { createAgain(s.Cluster, kv) })
	if _, err := s.Resource(kv).Patch(t.Context(), kv.GetName(), types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	deleteAnyway(t, s.Cluster, kv)
	t.Cleanup(restore)
	return restore
}

// Two releases wire at the same time; both succeed, and nothing is there twice.
func TestTwoReleasesAtOnce(t *testing.T) {
	s := newStage(t)
	s.node("worker-1", 8, "vfio-pci", 8)
	other := *s
	other.namespace, other.release = s.namespace+"-b", "second-gpu-operator-hooks"
	t.Cleanup(func() {
		_, _, _ = gpuctl(s.Cluster, "uninstall", "-n", other.namespace, "--release-name", other.release)
		_ = s.Clientset().CoreV1().Namespaces().Delete(context.Background(), other.namespace, metav1.DeleteOptions{})
	})
	var both sync.WaitGroup
	both.Go(func() { s.gpuctl("install") })
	both.Go(func() { other.gpuctl("install", "--set", "crds.enabled=false,agent.enabled=false") })
	both.Wait()
	if got := permitted(kubeVirt(t, s.Cluster)); !slices.Equal(got, []string{h200}) {
		t.Errorf("permitted %v", got)
	}
	for _, r := range []*stage{s, &other} {
		if _, message := r.hook("wire"); !strings.Contains(message, "worker-1: 8") {
			t.Errorf("release %s says\n%s", r.release, message)
		}
	}
	// A third one that wants the CRDs is told whose they are.
	third := *s
	third.namespace, third.release = s.namespace+"-c", "third"
	if code, _, stderr := third.gpuctl("install"); code != 1 || !strings.Contains(stderr, "GPU0128") || !strings.Contains(stderr, s.namespace+"/"+s.release) {
		t.Errorf("exit %d\n%s", code, stderr)
	}
}

// A pod of the hook that is killed while it writes is followed by another one, and
// what is written is whole.
func TestHookKilledMidPatch(t *testing.T) {
	s := newStage(t)
	s.node("worker-1", 8, "vfio-pci", 8)
	held, release := s.holdUpdates()
	var installing sync.WaitGroup
	installing.Go(func() { s.gpuctl("install", "--set", "hook.wait=60s,controller.enabled=false") })
	select {
	case <-held:
	case <-time.After(soon):
		t.Fatal("the hook has not written within", soon)
	}
	pods, err := s.Clientset().CoreV1().Pods(s.namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=hook"})
	if err != nil || len(pods.Items) != 1 {
		t.Fatalf("%d pods: %v", len(pods.Items), err)
	}
	s.KillPod(&pods.Items[0], syscall.SIGKILL)
	release()
	installing.Wait()
	if got := permitted(kubeVirt(t, s.Cluster)); !slices.Equal(got, []string{h200}) {
		t.Errorf("permitted %v", got)
	}
	after, err := s.Clientset().CoreV1().Pods(s.namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=hook"})
	if err != nil || len(after.Items) != 2 {
		t.Errorf("the hook has %d pods: %v", len(after.Items), err)
	}
	if code, _, stderr := s.gpuctl("uninstall"); code != 0 {
		t.Errorf("uninstall: exit %d\n%s", code, stderr)
	}
	if got := permitted(kubeVirt(t, s.Cluster)); len(got) != 0 {
		t.Errorf("permitted %v after the uninstall", got)
	}
}

// holdUpdates has the API server wait with updates of the KubeVirt CR until release
// is called; held is closed when the first one has come.
func (s *stage) holdUpdates() (held <-chan struct{}, release func()) {
	s.t.Helper()
	ns := s.Namespace()
	came, free := make(chan struct{}), make(chan struct{})
	var first, last sync.Once
	var asked atomic.Bool
	release = func() { last.Do(func() { close(free) }) }
	s.t.Cleanup(release)
	ca, certificate := cluster.ServerCertificate(s.t, "webhook."+ns+".svc")
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if review.Request.DryRun == nil || !*review.Request.DryRun { // a dry run only asks whether this is called
			first.Do(func() { close(came) })
			<-free
		}
		asked.Store(true)
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		_ = json.NewEncoder(w).Encode(review)
	}))
	server.TLS = certificate
	server.StartTLS()
	s.t.Cleanup(server.Close)
	s.Create(s.Decode(`{apiVersion: v1, kind: Service, metadata: {name: webhook, namespace: ` + ns + `}, spec: {selector: {app: webhook}, ports: [{port: 443}]}}`))
	s.Expose(ns+"/webhook", strings.TrimPrefix(server.URL, "https://"))
	configuration := s.Create(s.Decode(fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: %[1]s}
webhooks:
- name: hold.gpuctl.example
  clientConfig: {service: {namespace: %[1]s, name: webhook}, caBundle: %[2]s}
  rules: [{apiGroups: [kubevirt.io], apiVersions: ["*"], operations: [UPDATE], resources: [kubevirts]}]
  sideEffects: None
  timeoutSeconds: 30
  admissionReviewVersions: [v1]`, ns, base64.StdEncoding.EncodeToString(ca))))
	s.t.Cleanup(func() { release(); deleteAnyway(s.t, s.Cluster, configuration) })
	s.Eventually(soon, "the API server asks the webhook", func(ctx context.Context) error {
		if err := s.dryUpdate(ctx, s.Dynamic()); err != nil || !asked.Load() {
			return fmt.Errorf("it was asked: %t, %w", asked.Load(), err)
		}
		return nil
	})
	return came, release
}

// dryUpdate updates the KubeVirt CR in a dry run.
func (s *stage) dryUpdate(ctx context.Context, client dynamic.Interface) error {
	kv := kubeVirt(s.t, s.Cluster)
	kv.SetLabels(map[string]string{"touched": "true"})
	gvr := schema.GroupVersionResource{Group: "kubevirt.io", Version: "v1", Resource: "kubevirts"}
	_, err := client.Resource(gvr).Namespace(kv.GetNamespace()).Update(ctx, kv, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

// Where HyperConverged manages KubeVirt the hook wires the HyperConverged.
func TestHookWithHyperConverged(t *testing.T) {
	s := newStage(t)
	s.node("worker-1", 8, "vfio-pci", 8)
	hco := hyperConverged(t, s.Cluster, "testdata/hyperconverged-v1beta1.yaml", "v1beta1", "{}")
	same := untouched(t, s.Cluster)
	code, _, stderr := s.gpuctl("install", "--set", "controller.enabled=false")
	if code != 0 {
		t.Fatalf("exit %d\n%s", code, stderr)
	}
	same() // the KubeVirt CR is HyperConverged's business
	table := func() []any {
		got, err := s.Resource(hco).Get(t.Context(), hco.GetName(), metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		list, _, _ := unstructured.NestedSlice(got.Object, "spec", "permittedHostDevices", "pciHostDevices")
		return list
	}
	if got := table(); len(got) != 1 || got[0].(map[string]any)["resourceName"] != h200 {
		t.Errorf("HyperConverged permits %v", got)
	}
	if code, _, stderr := s.gpuctl("uninstall"); code != 0 || len(table()) != 0 {
		t.Errorf("uninstall: exit %d, HyperConverged permits %v\n%s", code, table(), stderr)
	}
}

// The container variant touches nothing.
func TestContainerVariantTouchesNothing(t *testing.T) {
	s := newStage(t)
	s.node("worker-1", 8, "nvidia", 0)
	same := untouched(t, s.Cluster)
	s.install("--set", "gpu.variant=container")
	same()
	for _, kind := range []string{"{apiVersion: apps/v1, kind: DaemonSet}", "{apiVersion: apps/v1, kind: Deployment}", "{apiVersion: batch/v1, kind: Job}", "{apiVersion: v1, kind: ConfigMap}", "{apiVersion: rbac.authorization.k8s.io/v1, kind: Role}"} {
		u := s.Decode(kind)
		u.SetNamespace(s.namespace)
		list, err := s.Resource(u).List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/part-of=gpuctl"})
		if err != nil || len(list.Items) != 0 {
			t.Errorf("%d of %s: %v", len(list.Items), kind, err)
		}
	}
}

// An uninstall takes away what nobody uses, says what it leaves, and is not kept
// from going on.
func TestUninstallIsNotBlocked(t *testing.T) {
	t.Run("entries in use", func(t *testing.T) {
		s := newStage(t)
		s.node("worker-1", 8, "vfio-pci", 8)
		s.install()
		ns := s.Namespace()
		u := vmi(s.Cluster, ns, "user", "gpus", h200)
		u.Object["spec"].(map[string]any)["tolerations"] = []any{map[string]any{"operator": "Exists"}}
		u = s.Create(u)
		s.RunVMI(ns, "user")
		if code, _, stderr := s.gpuctl("uninstall"); code != 0 {
			t.Errorf("exit %d\n%s", code, stderr)
		}
		if _, message := s.hook("unwire"); !strings.Contains(message, "GPU0326") {
			t.Errorf("the hook says\n%s", message)
		}
		if got := permitted(kubeVirt(t, s.Cluster)); !slices.Equal(got, []string{h200}) {
			t.Errorf("permitted %v while it is in use", got)
		}
		s.install()
		if code, _, stderr := s.gpuctl("uninstall", "--force"); code != 0 {
			t.Errorf("--force: exit %d\n%s", code, stderr)
		}
		if got := permitted(kubeVirt(t, s.Cluster)); len(got) != 0 {
			t.Errorf("permitted %v after --force", got)
		}
		deleteAnyway(t, s.Cluster, u)
	})
	t.Run("updates refused", func(t *testing.T) {
		s := newStage(t)
		s.node("worker-1", 8, "vfio-pci", 8)
		s.install()
		policy := s.Create(s.Decode(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: refuse-all}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [kubevirt.io], apiVersions: ["*"], operations: [UPDATE], resources: [kubevirts]}]}
  validations: [{expression: "request.userInfo.username == 'admin'", message: frozen}]`))
		binding := s.Create(s.Decode(`{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicyBinding, metadata: {name: refuse-all}, spec: {policyName: refuse-all, validationActions: [Deny]}}`))
		defer deleteAnyway(t, s.Cluster, policy)
		defer deleteAnyway(t, s.Cluster, binding)
		probe, err := dynamic.NewForConfig(s.User("probe", rbacv1.PolicyRule{APIGroups: []string{"kubevirt.io"}, Resources: []string{"kubevirts"}, Verbs: []string{"update"}}))
		if err != nil {
			t.Fatal(err)
		}
		s.Eventually(soon, "the policy acts", func(ctx context.Context) error {
			if err := s.dryUpdate(ctx, probe); err == nil || !strings.Contains(err.Error(), "frozen") {
				return fmt.Errorf("an update is answered with %w", err)
			}
			return nil
		})
		if code, _, stderr := s.gpuctl("uninstall"); code != 0 {
			t.Errorf("exit %d\n%s", code, stderr)
		}
		if _, message := s.hook("unwire"); !strings.Contains(message, "GPU0107") || !strings.Contains(message, "frozen") {
			t.Errorf("the hook says\n%s", message)
		}
	})
}

// vfio-manager takes the drivers away and binds them again; the GPUNode stays.
func TestAgentHoldsADriverlessWindow(t *testing.T) {
	s := newStage(t)
	s.node("worker-1", 2, "vfio-pci", 2)
	s.install("--wait", "--set", "agent.interval=1s,agent.hold=6s")
	get := func() *unstructured.Unstructured {
		u, err := s.Dynamic().Resource(gpuNodes).Get(t.Context(), "worker-1", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	before := get()
	s.bind("worker-1", "")
	s.Always(3*time.Second, "the GPUNode is as it was", func(context.Context) error {
		if now := get(); now.GetGeneration() != before.GetGeneration() {
			return fmt.Errorf("it is %v", now.Object["spec"])
		}
		return nil
	})
	s.bind("worker-1", "vfio-pci")
	s.Always(5*time.Second, "the GPUNode is as it was", func(context.Context) error {
		if now := get(); now.GetGeneration() != before.GetGeneration() {
			return fmt.Errorf("it is %v", now.Object["spec"])
		}
		return nil
	})
	s.bind("worker-1", "")
	s.Eventually(soon, "a driver that stays away is reported", func(context.Context) error {
		if n, _, _ := unstructured.NestedInt64(get().Object, "spec", "onVFIO"); n != 0 {
			return fmt.Errorf("%d are on vfio", n)
		}
		return nil
	})
}
