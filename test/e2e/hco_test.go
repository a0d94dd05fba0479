package e2e

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuctl/gpuctl/test/cluster"
)

// installCRD installs the CRD of a file; it goes when the test ends.
func installCRD(t *testing.T, c *cluster.Cluster, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	crd := c.Create(c.Decode(string(text)))
	t.Cleanup(func() {
		deleteAnyway(t, c, crd)
		c.Eventually(soon, "the CRD is gone", func(ctx context.Context) error {
			if _, err := c.Resource(crd).Get(ctx, crd.GetName(), metav1.GetOptions{}); err == nil {
				return errorf("CRD %s is still there", crd.GetName())
			}
			return nil
		})
	})
}

// hyperConverged installs a CRD of testdata and one object that manages the
// cluster's KubeVirt; both go when the test ends.
func hyperConverged(t *testing.T, c *cluster.Cluster, crdFile, version, spec string) *unstructured.Unstructured {
	t.Helper()
	installCRD(t, c, crdFile)
	hco := c.Decode("{apiVersion: hco.kubevirt.io/" + version + ", kind: HyperConverged, metadata: {name: hco, namespace: kubevirt}, spec: " + spec + "}")
	c.Eventually(soon, "the CRD is served", func(ctx context.Context) error {
		_, err := c.Resource(hco).Create(ctx, hco, metav1.CreateOptions{})
		return err
	})
	return hco
}

func TestHyperConverged(t *testing.T) {
	foreign := map[string]any{"pciDeviceSelector": "8086:6F54", "resourceName": "intel.com/qat", "externalResourceProvider": true}
	ours := map[string]any{"pciDeviceSelector": "10DE:2335", "resourceName": h200, "externalResourceProvider": true}
	const entry = `{pciHostDevices: [{pciDeviceSelector: "8086:6F54", resourceName: intel.com/qat, externalResourceProvider: true}]}`
	tests := map[string]struct {
		crd, version, spec string
		table              []string
	}{
		"v1beta1": {"testdata/hyperconverged-v1beta1.yaml", "v1beta1", "{permittedHostDevices: " + entry + "}", []string{"spec", "permittedHostDevices", "pciHostDevices"}},
		"v1":      {"testdata/hyperconverged-v1.yaml", "v1", "{virtualization: {permittedHostDevices: " + entry + "}}", []string{"spec", "virtualization", "permittedHostDevices", "pciHostDevices"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c := shared.For(t)
			unwired(c)
			c.AddNode(gpuNode("worker-1", h200, 8))
			hco := hyperConverged(t, c, tc.crd, tc.version, tc.spec)
			check := untouched(t, c)
			_, stderr := succeed(t, c, "wire", "--no-wake")
			if !strings.Contains(stderr, "GPU0316") {
				t.Errorf("stderr lacks GPU0316:\n%s", stderr)
			}
			check()
			got, err := c.Resource(hco).Get(t.Context(), "hco", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			list, _, _ := unstructured.NestedSlice(got.Object, tc.table...)
			if diff := cmp.Diff([]any{foreign, ours}, list); diff != "" {
				t.Errorf("table (-want +got):\n%s", diff)
			}
			succeed(t, c, "wire", "--no-wake")
			again, err := c.Resource(hco).Get(t.Context(), "hco", metav1.GetOptions{})
			if err != nil || again.GetResourceVersion() != got.GetResourceVersion() {
				t.Errorf("a second run changes the object: %v", err)
			}
			succeed(t, c, "wire", "--remove")
			after, err := c.Resource(hco).Get(t.Context(), "hco", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if list, _, _ := unstructured.NestedSlice(after.Object, tc.table...); len(list) != 1 || len(after.GetAnnotations()) != 0 {
				t.Errorf("after wire --remove: %v, %v", list, after.GetAnnotations())
			}
		})
	}
}

// Nobody copies the table onto the KubeVirt CR here, and gpuctl says so.
func TestHyperConvergedDoesNotPassOn(t *testing.T) {
	c := shared.For(t)
	unwired(c)
	c.AddNode(gpuNode("worker-1", h200, 8))
	hyperConverged(t, c, "testdata/hyperconverged-v1.yaml", "v1", "{}")
	if _, stderr := succeed(t, c, "wire"); !strings.Contains(stderr, "GPU0327") {
		t.Errorf("stderr lacks GPU0327:\n%s", stderr)
	}
}

// passOn plays HyperConverged's operator in version v1: when the H200 is in its table
// it copies the table onto the KubeVirt CR, once.
func passOn(c *cluster.Cluster, hco *unstructured.Unstructured) (copied chan struct{}) {
	copied = make(chan struct{})
	go func() {
		defer close(copied)
		c.Eventually(soon, "the table is there", func(ctx context.Context) error {
			got, err := c.Resource(hco).Get(ctx, "hco", metav1.GetOptions{})
			if err != nil {
				return err
			}
			list, _, _ := unstructured.NestedSlice(got.Object, "spec", "virtualization", "permittedHostDevices", "pciHostDevices")
			if !strings.Contains(fmt.Sprint(list), h200) {
				return errorf("the table is %v", list)
			}
			kv, err := c.Resource(kubeVirtRef(c)).Get(ctx, "kubevirt", metav1.GetOptions{})
			if err != nil {
				return err
			}
			for _, e := range list {
				entry := e.(map[string]any)
				entry["pciVendorSelector"] = entry["pciDeviceSelector"]
				delete(entry, "pciDeviceSelector")
			}
			if err := unstructured.SetNestedSlice(kv.Object, list, "spec", "configuration", "permittedHostDevices", "pciHostDevices"); err != nil {
				return err
			}
			_, err = c.Resource(kv).Update(ctx, kv, metav1.UpdateOptions{})
			return err
		})
	}()
	return copied
}

// HyperConverged's operator, played here, copies the table; then the waiting
// instance is woken.
func TestHyperConvergedPassesOn(t *testing.T) {
	c := shared.For(t)
	unwired(c)
	c.PatchKubeVirt(`{"spec":{"configuration":{"permittedHostDevices":{}}}}`)
	c.AddNode(gpuNode("worker-1", h200, 8))
	ns := c.Namespace()
	u := c.Create(vmi(c, ns, "stuck", "gpus", h200))
	c.Eventually(soon, "the instance is refused", hangs(c, u))
	hco := hyperConverged(t, c, "testdata/hyperconverged-v1.yaml", "v1", "{}")
	copied := passOn(c, hco)
	_, stderr := succeed(t, c, "wire")
	<-copied
	// KubeVirt may have tried again by itself in between.
	if woken := strings.Contains(stderr, "GPU0103"); !woken && pods(c, u, 1)(t.Context()) != nil || strings.Contains(stderr, "GPU0327") {
		t.Errorf("stderr:\n%s", stderr)
	}
	c.Eventually(soon, "the instance has its pod", pods(c, u, 1))
}

// A version without the table prunes the write and reports success.
func TestPrunedWriteIsNoticed(t *testing.T) {
	c := shared.For(t)
	unwired(c)
	c.AddNode(gpuNode("worker-1", h200, 8))
	hyperConverged(t, c, "testdata/hyperconverged-v1-without-table.yaml", "v1", "{virtualization: {evictionStrategy: None}}")
	code, stdout, stderr := gpuctl(c, "wire")
	if code != 1 || stdout != "" || !strings.Contains(stderr, "GPU0325") || !strings.Contains(stderr, "spec.virtualization.permittedHostDevices.pciHostDevices") {
		t.Errorf("exit %d, stdout %q\n%s", code, stdout, stderr)
	}
}
