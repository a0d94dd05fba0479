package e2e

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

// A pool asks for the old name, of a kind that came after the controller: it counts.
func TestKindComesLater(t *testing.T) {
	const hexName = "nvidia.com/2335"
	s := newStage(t)
	s.AddNode(gpuNode("worker-1", hexName, 2))
	s.installController("controller.staleAfter=2s", "controller.resync=2s")
	s.Eventually(repair, "it is wired", s.permits(hexName))
	crd := s.Decode("{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: virtualmachinepools.pool.kubevirt.io}}")
	s.definedAnew(crd)
	pool := s.Decode(`{apiVersion: pool.kubevirt.io/v1beta1, kind: VirtualMachinePool, metadata: {name: waiting, namespace: default}, spec: {
		replicas: 0, selector: {matchLabels: {pool: waiting}}, virtualMachineTemplate: {metadata: {labels: {pool: waiting}}, spec: {runStrategy: Halted, template: {metadata: {labels: {pool: waiting}}, spec: {
			domain: {resources: {requests: {memory: 64Mi}}, devices: {gpus: [{name: gpu, deviceName: ` + hexName + `}]}}}}}}}}`)
	s.Eventually(soon, "the pool is taken", func(ctx context.Context) error {
		_, err := s.Resource(pool).Create(ctx, pool, metav1.CreateOptions{})
		return err
	})
	t.Cleanup(func() { deleteAnyway(t, s.Cluster, pool) })
	s.SetAllocatable("worker-1", hexName, 0)
	s.SetAllocatable("worker-1", h200, 2)
	s.Eventually(repair, "the new name is permitted", s.permits(hexName, h200))
	s.Always(8*time.Second, "the pool uses the old name", s.permits(hexName, h200))
	deleteAnyway(t, s.Cluster, pool)
	s.Eventually(soon, "the old name goes with its last user", s.permits(h200))
}

// definedAnew deletes a CRD and creates it again.
func (s *stage) definedAnew(crd *unstructured.Unstructured) {
	s.t.Helper()
	was, err := s.Resource(crd).Get(s.t.Context(), crd.GetName(), metav1.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	delete(was.Object, "status")
	for _, field := range []string{"resourceVersion", "uid", "creationTimestamp", "generation", "managedFields"} {
		unstructured.RemoveNestedField(was.Object, "metadata", field)
	}
	back := sync.OnceFunc(func() {
		s.Eventually(soon, "the CRD is back", func(ctx context.Context) error {
			_, err := s.Resource(crd).Create(ctx, was, metav1.CreateOptions{})
			return err
		})
	})
	s.t.Cleanup(back)
	deleteAnyway(s.t, s.Cluster, crd)
	s.Eventually(soon, "the CRD is gone", func(ctx context.Context) error {
		_, err := s.Resource(crd).Get(ctx, crd.GetName(), metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return errorf("it is there: %v", err)
		}
		return nil
	})
	time.Sleep(2 * time.Second) // the API server serves it for a moment more
	back()
}
