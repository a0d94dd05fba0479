package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// HyperConverged's upgrade serves another version in place of the one that is watched.
func TestHyperConvergedServesAnotherVersion(t *testing.T) {
	s := newStage(t)
	s.node("worker-1", 8, "vfio-pci", 8)
	hco := hyperConverged(t, s.Cluster, "testdata/hyperconverged-upgrade.yaml", "v1beta1", "{}")
	s.installController()
	wired := func(version string, table ...string) func(context.Context) error {
		return func(ctx context.Context) error {
			hco.SetAPIVersion("hco.kubevirt.io/" + version)
			got, err := s.Resource(hco).Get(ctx, "hco", metav1.GetOptions{})
			if err != nil {
				return err
			}
			if list, _, _ := unstructured.NestedSlice(got.Object, table...); len(list) != 1 || list[0].(map[string]any)["resourceName"] != h200 {
				return errorf("the table is %v", list)
			}
			return nil
		}
	}
	s.Eventually(repair, "it is wired in v1beta1", wired("v1beta1", "spec", "permittedHostDevices", "pciHostDevices"))
	var upgrade []string
	for i, is := range []bool{false, true} { // of v1beta1 and v1
		for _, field := range []string{"served", "storage"} {
			upgrade = append(upgrade, fmt.Sprintf(`{"op":"replace","path":"/spec/versions/%d/%s","value":%t}`, i, field, is))
		}
	}
	crd := s.Decode("{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: hyperconvergeds.hco.kubevirt.io}}")
	if _, err := s.Resource(crd).Patch(t.Context(), crd.GetName(), types.JSONPatchType, []byte("["+strings.Join(upgrade, ",")+"]"), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	table := []string{"spec", "virtualization", "permittedHostDevices", "pciHostDevices"}
	s.Eventually(3*repair, "it is wired in v1", wired("v1", table...))
	for range 2 { // and followed there
		if _, err := s.Resource(hco).Patch(t.Context(), "hco", types.MergePatchType, []byte(`{"spec":{"virtualization":null}}`), metav1.PatchOptions{FieldManager: "olm"}); err != nil {
			t.Fatal(err)
		}
		s.Eventually(repair, "it is repaired in v1", wired("v1", table...))
	}
}
