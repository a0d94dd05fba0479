package e2e

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuctl/gpuctl/test/cluster"
)

// virt-operator's validator sees every change of the KubeVirt CR.
func TestVirtOperator(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.WithOperator())
	c.AddNode(gpuNode("worker-1", h200, 8))

	t.Run("a gate in both lists", func(t *testing.T) {
		kv := kubeVirt(t, c)
		gates := []string{"spec", "configuration", "developerConfiguration"}
		if err := unstructured.SetNestedStringSlice(kv.Object, []string{"HostDevices"}, append(gates, "disabledFeatureGates")...); err != nil {
			t.Fatal(err)
		}
		if err := unstructured.SetNestedStringSlice(kv.Object, []string{"HostDevices"}, append(gates, "featureGates")...); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Resource(kv).Update(t.Context(), kv, metav1.UpdateOptions{}); err == nil || !strings.Contains(err.Error(), "HostDevices") {
			t.Errorf("the validator's answer to a gate in both lists: %v", err)
		}
		c.PatchKubeVirt(`{"spec":{"configuration":{"developerConfiguration":{"featureGates":null,"disabledFeatureGates":["HostDevices"]}}}}`)
		check := untouched(t, c)
		code, stdout, stderr := gpuctl(c, "wire")
		if code != 1 || stdout != "" || !strings.Contains(stderr, "GPU0314") {
			t.Errorf("exit %d, stdout %q\n%s", code, stdout, stderr)
		}
		check()
	})

	t.Run("down, then back", func(t *testing.T) {
		c.PatchKubeVirt(`{"spec":{"configuration":{"permittedHostDevices":null,"developerConfiguration":null}}}`)
		c.Stop("virt-operator")
		type result struct {
			code   int
			stderr string
		}
		done := make(chan result, 1)
		began := time.Now()
		go func() {
			code, _, stderr := gpuctl(c, "wire", "--no-wake")
			done <- result{code, stderr}
		}()
		time.Sleep(3 * time.Second)
		if got := permitted(kubeVirt(t, c)); len(got) != 0 {
			t.Errorf("permitted %v while the validator is down", got)
		}
		c.Start("virt-operator")
		r := <-done
		if got := permitted(kubeVirt(t, c)); r.code != 0 || !slices.Equal(got, []string{h200}) {
			t.Errorf("exit %d after %s, permitted %v\n%s", r.code, time.Since(began), got, r.stderr)
		}
	})

	t.Run("down, then back, under a hook", func(t *testing.T) {
		s := stageOn(t, c)
		c.PatchKubeVirt(`{"metadata":{"annotations":{"gpuctl.dev/wired":null}},"spec":{"configuration":{"permittedHostDevices":null,"developerConfiguration":null}}}`)
		c.Stop("virt-operator")
		done := make(chan int, 1)
		go func() {
			code, _, _ := gpuctl(c, "install", "-n", s.namespace, "--set", "hook.wait=90s")
			done <- code
		}()
		time.Sleep(10 * time.Second)
		c.Start("virt-operator")
		if code := <-done; code != 0 || !slices.Equal(permitted(kubeVirt(t, c)), []string{h200}) {
			t.Errorf("exit %d, permitted %v", code, permitted(kubeVirt(t, c)))
		}
	})

	t.Run("down for good", func(t *testing.T) {
		c.PatchKubeVirt(`{"metadata":{"annotations":{"gpuctl.dev/wired":null}},"spec":{"configuration":{"permittedHostDevices":null}}}`)
		c.Stop("virt-operator")
		check := untouched(t, c)
		code, stdout, stderr := gpuctl(c, "wire", "--no-wake")
		if code != 1 || stdout != "" || !strings.Contains(stderr, "kubevirt-update-validator") || !strings.Contains(stderr, "virt-operator") {
			t.Errorf("exit %d, stdout %q\n%s", code, stdout, stderr)
		}
		check()
		c.Start("virt-operator")
	})
}
