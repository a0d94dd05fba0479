package e2e

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/retry"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/test/cluster"
)

// What a controller would write back is not taken away beside it.
func TestRemoveBesideTheController(t *testing.T) {
	s := newStage(t)
	s.node("worker-1", 8, "vfio-pci", 8)
	s.installController()
	s.Eventually(repair, "it is wired", s.permits(h200))
	name := s.namespace + "/" + s.release + "-controller"

	check := untouched(t, s.Cluster)
	code, _, stderr := gpuctl(s.Cluster, "wire", "--remove")
	if code != 1 || !strings.Contains(stderr, "GPU0110") || !strings.Contains(stderr, "--stop-controller "+name) {
		t.Errorf("exit %d\n%s", code, stderr)
	}
	check()

	// Somebody who may not stop it learns that it will be written back; and so it is.
	who := s.User("wirer", rbacv1.PolicyRule{APIGroups: []string{"kubevirt.io", "pool.kubevirt.io", "instancetype.kubevirt.io", ""}, Resources: []string{"*"}, Verbs: []string{"get", "list", "update"}})
	code, _, stderr = gpuctlAs(s.KubeconfigFor(who), "wire", "--remove", "--stop-controller", name)
	if code != 0 || !strings.Contains(stderr, "GPU0109") || !strings.Contains(stderr, "cannot") {
		t.Errorf("exit %d\n%s", code, stderr)
	}
	s.Eventually(repair, "it is written back", s.permits(h200))
	s.Eventually(repair, "and it is said who took it away", func(ctx context.Context) error {
		w, err := s.wiring(ctx)
		if err == nil && (len(w.Status.Reverts) != 1 || w.Status.Reverts[0].Manager != "gpuctl") {
			return errorf("reverts are %+v", w.Status.Reverts)
		}
		return err
	})

	code, _, stderr = gpuctl(s.Cluster, "wire", "--remove", "--stop-controller", name)
	if code != 0 || strings.Contains(stderr, "GPU0109") {
		t.Errorf("exit %d\n%s", code, stderr)
	}
	s.Always(repair, "it stays away", func(context.Context) error {
		if got := permitted(kubeVirt(t, s.Cluster)); len(got) > 0 {
			return errorf("permitted are %v", got)
		}
		return nil
	})
}

// An uninstall takes the wiring away for good: the hook stops the controller first.
func TestUninstallStopsTheController(t *testing.T) {
	for _, args := range [][]string{{"uninstall", "--wait"}, {"uninstall", "--wait", "--force"}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			s := newStage(t)
			before := kubeVirt(t, s.Cluster)
			s.node("worker-1", 8, "vfio-pci", 8)
			s.installController("hook.enabled=true", "hook.wait=10s")
			s.Eventually(repair, "it is wired", s.permits(h200))
			if code, _, stderr := s.gpuctl(args...); code != 0 || strings.Contains(stderr, "GPU010") {
				t.Errorf("exit %d\n%s", code, stderr)
			}
			after := kubeVirt(t, s.Cluster)
			if fmt.Sprint(before.Object["spec"]) != fmt.Sprint(after.Object["spec"]) || fmt.Sprint(before.GetAnnotations()) != fmt.Sprint(after.GetAnnotations()) {
				t.Errorf("the KubeVirt CR was %v, is %v", before.Object, after.Object)
			}
		})
	}
}

// A HyperConverged that comes while the controller runs is wired in place of the
// KubeVirt CR, and what somebody takes out of it is put back.
func TestControllerAndHyperConverged(t *testing.T) {
	s := newStage(t)
	s.node("worker-1", 8, "vfio-pci", 8)
	s.installController()
	s.Eventually(repair, "the KubeVirt CR is wired", s.permits(h200))
	hco := hyperConverged(t, s.Cluster, "testdata/hyperconverged-v1.yaml", "v1", "{virtualization: {evictionStrategy: None}}")
	table := []string{"spec", "virtualization", "permittedHostDevices", "pciHostDevices"}
	wired := func(ctx context.Context) error {
		got, err := s.Resource(hco).Get(ctx, "hco", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if list, _, _ := unstructured.NestedSlice(got.Object, table...); len(list) != 1 || list[0].(map[string]any)["resourceName"] != h200 {
			return errorf("the table is %v", list)
		}
		return nil
	}
	s.PatchOnce(`{"spec":{"configuration":{"permittedHostDevices":{"pciHostDevices":[]}}}}`)
	s.Eventually(2*repair, "the HyperConverged is wired", wired)
	if w, err := s.wiring(t.Context()); err != nil || len(w.Status.Reverts) > 0 {
		t.Errorf("that is no revert: %+v, %v", w.Status.Reverts, err)
	}
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		got, err := s.Resource(hco).Get(t.Context(), "hco", metav1.GetOptions{})
		if err != nil {
			return err
		}
		unstructured.RemoveNestedField(got.Object, "spec", "virtualization", "permittedHostDevices")
		_, err = s.Resource(hco).Update(t.Context(), got, metav1.UpdateOptions{FieldManager: "olm"})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Eventually(repair, "it is repaired", wired)
	s.Eventually(repair, "the target is named", func(ctx context.Context) error {
		w, err := s.wiring(ctx)
		if err == nil && w.Status.Target != "HyperConverged kubevirt/hco" {
			return errorf("the target is %q", w.Status.Target)
		}
		return err
	})

	// Its operator, played here, copies the table late.
	s.Eventually(15*time.Second, "it is said that KubeVirt lacks it", s.says(v1alpha1.ConditionWired, v1alpha1.ReasonNotPassedOn, "GPU0327"))
	<-passOn(s.Cluster, hco)
	s.Eventually(15*time.Second, "and that it has it", s.says(v1alpha1.ConditionWired, v1alpha1.ReasonWired))

	// When it goes, KubeVirt's own is the target again; its CRD goes with the test.
	deleteAnyway(t, s.Cluster, hco)
	s.PatchOnce(`{"spec":{"configuration":{"permittedHostDevices":{"pciHostDevices":[]}}}}`)
	s.Eventually(2*repair, "the KubeVirt CR is wired again", s.permits(h200))
}

// Without KubeVirt there is nothing to wire, and that is said; when it comes, it is
// wired.
func TestKubeVirtComesLater(t *testing.T) {
	s := newStage(t)
	s.node("worker-1", 8, "vfio-pci", 8)
	restore := s.withoutKubeVirt()
	s.installController()
	s.Eventually(repair, "it is said that there is none", s.says(v1alpha1.ConditionWired, v1alpha1.ReasonNoKubeVirt))
	restore()
	s.Eventually(repair, "it is wired", s.permits(h200))
	s.Eventually(repair, "and that is said", s.says(v1alpha1.ConditionWired, v1alpha1.ReasonWired))
}

// get asks a replica of the controller, with a token unless it is "".
func get(ctx context.Context, url, token string) (code int, body string, err error) {
	return ask(ctx, http.MethodGet, url, token)
}

func ask(ctx context.Context, method, url, token string) (code int, body string, err error) {
	request, err := http.NewRequestWithContext(ctx, method, url, http.NoBody)
	if err != nil {
		return 0, "", err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}} //nolint:gosec // it has made its certificate itself
	answer, err := client.Do(request)
	if err != nil {
		return 0, "", err
	}
	text, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(text), errors.Join(err, answer.Body.Close())
}

// Metrics are for those who may read them.
func TestMetricsAreGuarded(t *testing.T) {
	s := newStage(t)
	s.node("worker-1", 8, "vfio-pci", 8)
	s.installController()
	s.Eventually(repair, "it is wired", s.says(v1alpha1.ConditionWired, v1alpha1.ReasonWired))
	pod, _ := s.leader()
	url := "https://" + pod.Status.PodIP + ":8443/metrics"
	reads := rbacv1.PolicyRule{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}
	tests := map[string]struct {
		token string
		want  int
	}{
		"nobody":            {"", http.StatusUnauthorized},
		"a made-up token":   {"made-up", http.StatusUnauthorized},
		"who may not":       {s.ServiceAccount("default", "stranger").BearerToken, http.StatusForbidden},
		"who may read them": {s.ServiceAccount("default", "prometheus", reads).BearerToken, http.StatusOK},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			code, body, err := get(t.Context(), url, tc.token)
			if err != nil || code != tc.want {
				t.Fatalf("answer %d, %v: %s", code, err, body)
			}
			for _, want := range []string{"gpuctl_wiring_wired 1", "gpuctl_wiring_contested 0", "gpuctl_wiring_writes_total 1", "gpuctl_wiring_reverts_total 0"} {
				if tc.want == http.StatusOK && !strings.Contains(body, "\n"+want+"\n") {
					t.Errorf("there is no %s", want)
				}
			}
		})
	}
	for path, want := range map[string]int{"/healthz": http.StatusOK, "/readyz": http.StatusOK, "/metrics": http.StatusNotFound} {
		if code, body, err := get(t.Context(), "http://"+pod.Status.PodIP+":8081"+path, ""); err != nil || code != want {
			t.Errorf("%s: answer %d, %v: %s", path, code, err, body)
		}
	}
}

// Whoever reaches the port can have made-up tokens reviewed; those who were let in before
// get their answer all the same.
func TestMetricsWhileStrangersAsk(t *testing.T) {
	s := newStage(t)
	s.installController("controller.replicas=1")
	pod, _ := s.leader()
	url := "https://" + pod.Status.PodIP + ":8443/metrics"
	reads := rbacv1.PolicyRule{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get", "head"}}
	var tokens []string
	for i := range 5 {
		token := s.ServiceAccount("default", fmt.Sprintf("prometheus-%d", i), reads).BearerToken
		if code, body, err := get(t.Context(), url, token); err != nil || code != http.StatusOK {
			t.Fatalf("answer %d, %v: %s", code, err, body)
		}
		tokens = append(tokens, token)
	}

	ctx, stop := context.WithCancel(t.Context())
	var strangers sync.WaitGroup
	var asked atomic.Int64
	for i := range 60 {
		strangers.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				code, body, err := get(ctx, url, fmt.Sprintf("made-up-%d-%d", i, n))
				if ctx.Err() == nil && (err != nil || code != http.StatusUnauthorized && code != http.StatusServiceUnavailable) {
					t.Errorf("a stranger's answer is %d, %v: %s", code, err, body)
					return
				}
				asked.Add(1)
			}
		})
	}
	time.Sleep(2 * time.Second)
	for i, token := range tokens { // by a method for which there is no verdict yet
		if code, body, err := ask(t.Context(), http.MethodHead, url, token); err != nil || code != http.StatusOK {
			t.Errorf("read %d among %d of strangers: answer %d, %v: %s", i, asked.Load(), code, err, body)
		}
	}
	stop()
	strangers.Wait()
	if code, _, err := ask(t.Context(), http.MethodPost, url, tokens[0]); err != nil || code != http.StatusMethodNotAllowed {
		t.Errorf("a write is answered with %d, %v", code, err)
	}
}

// An API server that is away ends nothing: when it is back, so is the controller.
func TestControllerOutlivesTheAPIServer(t *testing.T) {
	s := newStage(t)
	s.node("worker-1", 8, "vfio-pci", 8)
	s.installController()
	s.Eventually(repair, "it is wired", s.permits(h200))
	s.Stop(cluster.APIServer)
	time.Sleep(8 * time.Second) // longer than the leader may go without its Lease
	s.Start(cluster.APIServer)
	s.PatchOnce(`{"spec":{"configuration":{"permittedHostDevices":{"pciHostDevices":[]}}}}`)
	// client-go waits up to 26 s to watch again after so long an outage.
	s.Eventually(45*time.Second, "it is repaired", s.permits(h200))
	pods, err := s.Clientset().CoreV1().Pods(s.namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=controller"})
	if err != nil {
		t.Fatal(err)
	}
	for _, pod := range pods.Items {
		for _, status := range pod.Status.ContainerStatuses {
			if status.RestartCount > 1 {
				t.Errorf("%s was restarted %d times, want once at most: the leader that lost its Lease", pod.Name, status.RestartCount)
			}
		}
	}
}

// A stock CR that is applied while VMs use another device takes the table away for all.
// Then a first entry would break them, and is held back; the gate is not, and who did it
// is named.
func TestControllerHoldsTheFirstEntryBack(t *testing.T) {
	s := newStage(t)
	s.node("worker-1", 8, "vfio-pci", 8)
	s.AddNode(gpuNode("storage", "devices.kubevirt.io/nvme", 2))
	s.kubectlApply(kubeVirtOf(fmt.Sprintf(othersIs, true)))
	s.installController()
	s.Eventually(repair, "it is wired", s.permits("devices.kubevirt.io/nvme", h200))
	vm := machine(s.Cluster, "default", "archive", entries("hostDevices", "devices.kubevirt.io/nvme", 1))
	if err := unstructured.SetNestedField(vm.Object, "Halted", "spec", "runStrategy"); err != nil {
		t.Fatal(err)
	}
	s.Create(vm)
	t.Cleanup(func() { deleteAnyway(t, s.Cluster, vm) })

	s.kubectlApply(kubeVirtOf(stock))
	s.Eventually(repair, "the gate is back, and no entry", s.permits())
	s.Eventually(repair, "it is said why", s.says(v1alpha1.ConditionWired, v1alpha1.ReasonHeldBack, "GPU0319", "VirtualMachine default/archive"))
	s.Always(2*repair, "one revert is counted, and who it was", func(ctx context.Context) error {
		w, err := s.wiring(ctx)
		if err == nil && (len(w.Status.Reverts) != 1 || w.Status.Reverts[0].Manager != "kubectl-client-side-apply") {
			return errorf("reverts are %+v", w.Status.Reverts)
		}
		return err
	})
}
