package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuctl/gpuctl/internal/cli"
	"github.com/gpuctl/gpuctl/test/cluster"
)

// shared is the cluster of all tests that do not break theirs. They share one
// KubeVirt CR, so they do not run in parallel.
var shared = cluster.NewShared()

func TestMain(m *testing.M) {
	code := shared.Main(m)
	if dir, err := binaryDir(); err == nil {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

const (
	h200 = "nvidia.com/GH100_H200_SXM_141GB"
	soon = 30 * time.Second
)

// gpuctl runs a command against a cluster, as its administrator.
func gpuctl(c *cluster.Cluster, args ...string) (code int, stdout, stderr string) {
	return gpuctlAs(c.Kubeconfig(), args...)
}

func gpuctlAs(kubeconfig string, args ...string) (code int, stdout, stderr string) {
	return run(append(args, "--kubeconfig", kubeconfig)...)
}

// run runs gpuctl without a cluster.
func run(args ...string) (code int, stdout, stderr string) {
	var out, err bytes.Buffer
	code = cli.Main("gpuctl", args, strings.NewReader(""), &out, &err)
	return code, out.String(), err.String()
}

// succeed runs gpuctl and fails the test when it fails.
func succeed(t *testing.T, c *cluster.Cluster, args ...string) (stdout, stderr string) {
	t.Helper()
	began := time.Now()
	code, stdout, stderr := gpuctl(c, args...)
	t.Logf("gpuctl %s took %s", strings.Join(args, " "), time.Since(began).Round(time.Millisecond))
	if code != 0 {
		t.Fatalf("gpuctl %s: exit %d\n%s", strings.Join(args, " "), code, stderr)
	}
	return stdout, stderr
}

// kubeVirt returns the KubeVirt CR as it is.
func kubeVirt(t *testing.T, c *cluster.Cluster) *unstructured.Unstructured {
	t.Helper()
	got, err := c.Resource(kubeVirtRef(c)).Get(t.Context(), "kubevirt", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func kubeVirtRef(c *cluster.Cluster) *unstructured.Unstructured {
	return c.Decode("{apiVersion: kubevirt.io/v1, kind: KubeVirt, metadata: {name: kubevirt, namespace: kubevirt}}")
}

// untouched fails the test when the KubeVirt CR changes until the test calls the
// returned function.
func untouched(t *testing.T, c *cluster.Cluster) func() {
	t.Helper()
	before := kubeVirt(t, c)
	return func() {
		t.Helper()
		if after := kubeVirt(t, c); after.GetGeneration() != before.GetGeneration() || fmt.Sprint(after.GetAnnotations()) != fmt.Sprint(before.GetAnnotations()) {
			t.Errorf("the KubeVirt CR changed: %v\n%v", before.Object["spec"], after.Object["spec"])
		}
	}
}

// permitted returns the names in the KubeVirt CR's table of PCI devices.
func permitted(u *unstructured.Unstructured) []string {
	list, _, _ := unstructured.NestedSlice(u.Object, "spec", "configuration", "permittedHostDevices", "pciHostDevices")
	var out []string
	for _, e := range list {
		out = append(out, fmt.Sprint(e.(map[string]any)["resourceName"]))
	}
	return out
}

func vmi(c *cluster.Cluster, namespace, name, field, device string) *unstructured.Unstructured {
	return c.Decode(fmt.Sprintf(`
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: %s, namespace: %s}
spec:
  terminationGracePeriodSeconds: 0
  domain:
    resources: {requests: {memory: 64Mi}}
    devices: {%s: [{name: dev0, deviceName: %q}]}
`, name, namespace, field, device))
}

// hangs returns a check that KubeVirt refuses an instance for its device.
func hangs(c *cluster.Cluster, u *unstructured.Unstructured) func(context.Context) error {
	return func(ctx context.Context) error {
		got, err := c.Resource(u).Get(ctx, u.GetName(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		conditions, _, _ := unstructured.NestedSlice(got.Object, "status", "conditions")
		for _, x := range conditions {
			if m := x.(map[string]any); m["type"] == "Synchronized" && strings.Contains(fmt.Sprint(m["message"]), "is not permitted in permittedHostDevices") {
				return nil
			}
		}
		return fmt.Errorf("%s is not refused: %v", u.GetName(), conditions)
	}
}

// pods returns a check that an instance has so many launcher pods.
func pods(c *cluster.Cluster, u *unstructured.Unstructured, want int) func(context.Context) error {
	return func(ctx context.Context) error {
		list, err := c.Clientset().CoreV1().Pods(u.GetNamespace()).List(ctx, metav1.ListOptions{LabelSelector: "kubevirt.io=virt-launcher"})
		if err != nil {
			return err
		}
		have := 0
		for _, p := range list.Items {
			if strings.HasPrefix(p.Name, "virt-launcher-"+u.GetName()+"-") {
				have++
			}
		}
		if have != want {
			return fmt.Errorf("%s has %d launcher pods, want %d", u.GetName(), have, want)
		}
		return nil
	}
}

// deleteAnyway deletes an object that may be gone already.
func deleteAnyway(t *testing.T, c *cluster.Cluster, u *unstructured.Unstructured) {
	t.Helper()
	if err := c.Resource(u).Delete(context.Background(), u.GetName(), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		t.Error(err)
	}
}

// createAgain creates an object that was deleted, with the status it had.
func createAgain(c *cluster.Cluster, was *unstructured.Unstructured) {
	c.Eventually(soon, was.GetName()+" is back", func(ctx context.Context) error {
		u := was.DeepCopy()
		u.SetResourceVersion("")
		if _, err := c.Resource(u).Create(ctx, u, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
		status, err := json.Marshal(map[string]any{"status": was.Object["status"]})
		if err != nil {
			return err
		}
		back, err := c.Resource(u).Patch(ctx, u.GetName(), types.MergePatchType, status, metav1.PatchOptions{}, "status")
		if err == nil && back.GetUID() == was.GetUID() {
			return errorf("%s is not gone yet", was.GetName())
		}
		return err
	})
}

// noInstances waits until the instances of earlier tests are gone: what they use
// would not be removed.
func noInstances(c *cluster.Cluster) { noneLeft(c, "VirtualMachineInstance") }

// noneLeft waits until no object of one of KubeVirt's kinds is left.
func noneLeft(c *cluster.Cluster, kind string) {
	list := c.Decode("{apiVersion: kubevirt.io/v1, kind: " + kind + ", metadata: {name: any}}")
	c.Eventually(soon, "no "+kind+" is left", func(ctx context.Context) error {
		got, err := c.Resource(list).List(ctx, metav1.ListOptions{})
		if err == nil && len(got.Items) > 0 {
			return errorf("%d of kind %s are left", len(got.Items), kind)
		}
		return err
	})
}

// unwired makes the KubeVirt CR forget its table and its gates, and puts it back
// when the test ends.
func unwired(c *cluster.Cluster) {
	c.PatchKubeVirt(`{"metadata":{"annotations":{"gpuctl.dev/wired":null}},"spec":{"configuration":{"permittedHostDevices":null,"developerConfiguration":{"featureGates":["LiveMigration"]}}}}`)
}

func errorf(format string, args ...any) error { return fmt.Errorf(format, args...) }
