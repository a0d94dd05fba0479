package e2e

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuctl/gpuctl/test/cluster"
)

func gpuNode(name, resource string, n int64) cluster.Node {
	return cluster.Node{
		Name: name, Labels: map[string]string{"nvidia.com/gpu.workload.config": "vm-passthrough"},
		Resources: map[corev1.ResourceName]int64{corev1.ResourceName(resource): n},
	}
}

// A cluster as gpu-operator leaves it is wired, again without any change, and
// unwired: spec, labels and annotations are then what they were.
func TestWireAndRemove(t *testing.T) {
	c := shared.For(t)
	noInstances(c)
	unwired(c)
	c.AddNode(gpuNode("worker-1", h200, 8))
	before := kubeVirt(t, c)

	_, stderr := succeed(t, c, "wire")
	for _, want := range []string{"+ feature gate HostDevices", "+ 10DE:2335 as " + h200, "served by worker-1 (allocatable 8)"} {
		if !strings.Contains(stderr, want) {
			t.Errorf("stderr lacks %q:\n%s", want, stderr)
		}
	}
	wired := kubeVirt(t, c)
	if got := permitted(wired); !slices.Equal(got, []string{h200}) {
		t.Errorf("permitted %v", got)
	}

	stdout, stderr := succeed(t, c, "wire")
	if again := kubeVirt(t, c); again.GetResourceVersion() != wired.GetResourceVersion() || stdout != "" {
		t.Errorf("a second run changes the CR: %s\n%s", stdout, stderr)
	}

	succeed(t, c, "wire", "--remove")
	after := kubeVirt(t, c)
	for _, field := range []string{"spec", "metadata.labels", "metadata.annotations"} {
		path := strings.Split(field, ".")
		var a, b any = before.Object, after.Object
		for _, key := range path {
			a, b = a.(map[string]any)[key], b.(map[string]any)[key]
		}
		if diff := cmp.Diff(a, b); diff != "" {
			t.Errorf("%s after wire --remove (-before +after):\n%s", field, diff)
		}
	}
}

func TestDryRunWritesNothing(t *testing.T) {
	c := shared.For(t)
	unwired(c)
	c.AddNode(gpuNode("worker-1", h200, 8))
	check := untouched(t, c)
	stdout, _ := succeed(t, c, "wire", "--dry-run")
	if !regexp.MustCompile(`(?m)^\+ .*resourceName: ` + regexp.QuoteMeta(h200) + `$`).MatchString(stdout) {
		t.Errorf("no diff:\n%s", stdout)
	}
	check()
}

// The plan of the live cluster and the plan of its dump are one function.
func TestFilesAndClusterGiveOnePlan(t *testing.T) {
	c := shared.For(t)
	unwired(c)
	c.AddNode(gpuNode("worker-1", h200, 8))
	c.AddNode(gpuNode("worker-2", "nvidia.com/GA100_A100_PCIE_40GB", 2))
	c.AddNode(cluster.Node{Name: "plain"})
	ns := c.Namespace()
	c.Create(vmi(c, ns, "waiting", "gpus", "nvidia.com/NOBODY"))

	live, _ := succeed(t, c, "wire", "--dry-run", "-o", "json")
	dump := filepath.Join(t.TempDir(), "cluster.yaml")
	out, err := exec.Command(c.Binary("kubectl"), "--kubeconfig", c.Kubeconfig(), "get", "kubevirt,nodes,vm,vmi", "-A", "-o", "yaml").Output()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dump, out, 0o600); err != nil {
		t.Fatal(err)
	}
	code, files, stderr := run("wire", "-f", dump, "-o", "json")
	if code != 0 {
		t.Fatalf("exit %d\n%s", code, stderr)
	}
	a, b := planOf(t, live), planOf(t, files)
	if diff := cmp.Diff(a, b); diff != "" {
		t.Errorf("plans differ (-cluster +files):\n%s", diff)
	}
	if changes, _ := a["changes"].([]any); len(changes) != 2 {
		t.Errorf("%d changes, want gate and entry: %v", len(changes), changes)
	}
}

// planOf reads a plan without what the API server alone writes: of a live object
// it is not shown.
func planOf(t *testing.T, text string) map[string]any {
	t.Helper()
	var plan map[string]any
	if err := json.Unmarshal([]byte(text), &plan); err != nil {
		t.Fatal(err)
	}
	object := plan["object"].(map[string]any)
	delete(object, "status")
	for _, key := range []string{"resourceVersion", "uid", "creationTimestamp", "generation", "managedFields"} {
		delete(object["metadata"].(map[string]any), key)
	}
	return plan
}

// hostDevices are refused before the gate and admitted after it.
func TestGateIsLive(t *testing.T) {
	c := shared.For(t)
	unwired(c)
	c.AddNode(gpuNode("worker-1", h200, 8))
	ns := c.Namespace()
	u := vmi(c, ns, "host-device", "hostDevices", h200)
	dryRun := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	c.Eventually(soon, "virt-api refuses host devices", func(ctx context.Context) error {
		_, err := c.Resource(u).Create(ctx, u, dryRun)
		if err == nil || !strings.Contains(err.Error(), "Host Devices feature gate is not enabled") {
			return errorf("dry run: %v", err)
		}
		return nil
	})
	succeed(t, c, "wire")
	if _, err := c.Resource(u).Create(t.Context(), u, dryRun); err != nil {
		t.Errorf("refused right after gpuctl said that the gate is live: %v", err)
	}
}

// An instance that KubeVirt refused a minute ago waits out its back-off, unless
// it is woken.
func TestWake(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t)
	c.PatchKubeVirt(`{"spec":{"configuration":{"permittedHostDevices":{}}}}`)
	c.AddNode(gpuNode("worker-1", h200, 8))
	ns := c.Namespace()
	u := c.Create(vmi(c, ns, "stuck", "gpus", h200))
	c.Eventually(soon, "the instance is refused", hangs(c, u))
	time.Sleep(time.Minute)

	succeed(t, c, "wire", "--no-wake")
	c.Always(20*time.Second, "the instance has no pod", pods(c, u, 0))

	// Taken back and wired anew, the same instance is woken by the wiring itself.
	succeed(t, c, "wire", "--remove", "--force")
	c.Always(time.Second, "the instance still has no pod", pods(c, u, 0))
	_, stderr := succeed(t, c, "wire")
	if want := "GPU0103"; !strings.Contains(stderr, want) || !strings.Contains(stderr, ns+"/stuck") {
		t.Errorf("stderr lacks %s and the instance's name:\n%s", want, stderr)
	}
	c.Eventually(2*time.Second, "the instance has its pod", pods(c, u, 1))
	if node := c.RunVMI(ns, "stuck"); node != "worker-1" {
		t.Errorf("the instance runs on %q", node)
	}
}

// With the table unset a foreign device works; the first entry would break it.
func TestFirstEntryStop(t *testing.T) {
	c := shared.For(t)
	c.AddNode(cluster.Node{Name: "worker-1", Resources: map[corev1.ResourceName]int64{h200: 8, "intel.com/qat": 4}})
	ns := c.Namespace()
	// What the stop is for: a table without the foreign name breaks it.
	c.PatchKubeVirt(`{"spec":{"configuration":{"permittedHostDevices":{"pciHostDevices":[{"pciVendorSelector":"10DE:2335","resourceName":"` + h200 + `","externalResourceProvider":true}]}}}}`)
	broken := c.Create(vmi(c, ns, "broken", "gpus", "intel.com/qat"))
	c.Eventually(soon, "the foreign device is refused", hangs(c, broken))
	deleteAnyway(t, c, broken)
	unwired(c)
	vm := c.Create(c.Decode(`
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: crypto, namespace: ` + ns + `}
spec:
  runStrategy: Halted
  template: {spec: {domain: {resources: {requests: {memory: 64Mi}}, devices: {gpus: [{name: q, deviceName: intel.com/qat}]}}}}
`))
	check := untouched(t, c)
	code, stdout, stderr := gpuctl(c, "wire")
	if code != 1 || stdout != "" || !strings.Contains(stderr, "GPU0319") || !strings.Contains(stderr, "VirtualMachine "+ns+"/crypto") {
		t.Fatalf("exit %d, stdout %q\n%s", code, stdout, stderr)
	}
	code, _, stderr = gpuctl(c, "wire", "--strict=false")
	if code != 0 || !strings.Contains(stderr, "GPU0319") {
		t.Errorf("without strict: exit %d\n%s", code, stderr)
	}
	check()
	// It starts as long as nothing is wired …
	first := c.Create(vmi(c, ns, "first", "gpus", "intel.com/qat"))
	c.Eventually(soon, "the foreign device works", pods(c, first, 1))
	// … and with its name permitted both do.
	succeed(t, c, "wire", "--permit", "8086:37c8=intel.com/qat")
	if got := permitted(kubeVirt(t, c)); !slices.Equal(got, []string{h200, "intel.com/qat"}) {
		t.Errorf("permitted %v", got)
	}
	second := c.Create(vmi(c, ns, "second", "gpus", "intel.com/qat"))
	third := c.Create(vmi(c, ns, "third", "hostDevices", h200))
	c.Eventually(soon, "the foreign device still works", pods(c, second, 1))
	c.Eventually(soon, "the GPU works", pods(c, third, 1))
	deleteAnyway(t, c, vm)
}

// An entry stays as long as an instance uses it.
func TestRemoveKeepsWhatIsInUse(t *testing.T) {
	c := shared.For(t)
	noInstances(c)
	unwired(c)
	c.AddNode(gpuNode("worker-1", h200, 8))
	succeed(t, c, "wire")
	ns := c.Namespace()
	u := c.Create(vmi(c, ns, "user", "gpus", h200))
	c.RunVMI(ns, "user")
	_, stderr := succeed(t, c, "wire", "--remove")
	if got := permitted(kubeVirt(t, c)); !slices.Equal(got, []string{h200}) || !strings.Contains(stderr, "GPU0326") {
		t.Errorf("permitted %v\n%s", got, stderr)
	}
	succeed(t, c, "wire", "--remove", "--force")
	if got := permitted(kubeVirt(t, c)); len(got) != 0 {
		t.Errorf("permitted %v after --force", got)
	}
	deleteAnyway(t, c, u)
}

// wire --wait gives the device plugin its time.
func TestWait(t *testing.T) {
	c := shared.For(t)
	unwired(c)
	c.AddNode(gpuNode("worker-1", h200, 0))
	check := untouched(t, c)
	// The gate is ensured whatever the nodes serve, so the CR is wired for it once.
	asked := time.Now()
	code, _, stderr := gpuctl(c, "wire", "--wait", "1m", "--dry-run")
	if code != 0 || time.Since(asked) > 30*time.Second {
		t.Errorf("a dry run does not wait: exit %d after %s\n%s", code, time.Since(asked), stderr)
	}
	check()
	code, _, stderr = gpuctl(c, "wire", "--wait", "3s")
	if code != 124 || !strings.Contains(stderr, "GPU0102") {
		t.Errorf("strict: exit %d, want 124\n%s", code, stderr)
	}
	code, _, stderr = gpuctl(c, "wire", "--wait", "1s", "--strict=false")
	if code != 0 || !strings.Contains(stderr, "GPU0102") {
		t.Errorf("not strict: exit %d, want 0\n%s", code, stderr)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		time.Sleep(3 * time.Second)
		c.SetAllocatable("worker-1", h200, 8)
	}()
	began := time.Now()
	_, stderr = succeed(t, c, "wire", "--wait", "1m")
	<-served
	if took := time.Since(began); took < 2*time.Second || took > 20*time.Second || !slices.Equal(permitted(kubeVirt(t, c)), []string{h200}) {
		t.Errorf("wired %v after %s\n%s", permitted(kubeVirt(t, c)), took, stderr)
	}
}
