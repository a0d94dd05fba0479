package cluster_test

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuctl/gpuctl/test/cluster"
)

func TestOperatorGuardsKubeVirt(t *testing.T) {
	if testing.Short() {
		t.Skip("takes most of a minute")
	}
	t.Parallel()
	const gpu = "nvidia.com/WITH_OPERATOR"
	c := cluster.Start(t, cluster.WithOperator())
	kv := c.Decode("{apiVersion: kubevirt.io/v1, kind: KubeVirt, metadata: {name: kubevirt, namespace: kubevirt}}")
	patch := func(ctx context.Context, configuration string) error {
		data := []byte(`{"spec":{"configuration":` + configuration + `}}`)
		_, err := c.Resource(kv).Patch(ctx, "kubevirt", types.MergePatchType, data, metav1.PatchOptions{})
		return err
	}

	const twice = `{"developerConfiguration":{"featureGates":["HostDevices"],"disabledFeatureGates":["HostDevices"]}}`
	err := patch(t.Context(), twice)
	if err == nil || !strings.Contains(err.Error(), "kubevirt-update-validator.kubevirt.io") {
		t.Errorf("a gate that is on and off: got %v", err)
	}

	c.Stop(cluster.VirtOperator)
	const once = `{"developerConfiguration":{"featureGates":["HostDevices"]}}`
	if err := patch(t.Context(), once); err == nil || !strings.Contains(err.Error(), "failed calling webhook") {
		t.Errorf("without virt-operator: got %v", err)
	}
	c.Start(cluster.VirtOperator)
	c.Eventually(soon, "the CR can be changed", func(ctx context.Context) error { return patch(ctx, once) })

	c.AddNode(cluster.Node{Name: "operator-gpu", Resources: map[corev1.ResourceName]int64{gpu: 1}})
	ns := c.Namespace()
	c.Create(vmi(c, ns, "runs", "hostDevices", gpu))
	if node := c.RunVMI(ns, "runs"); node != "operator-gpu" {
		t.Errorf("the VMI runs on %q", node)
	}
	if err := says(c, kv, "Deployed", phase)(t.Context()); err != nil {
		t.Error(err)
	}
}
