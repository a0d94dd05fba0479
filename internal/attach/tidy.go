package attach

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/internal/cluster"
)

// tidy deletes a device that was made from a template and that nobody uses, unless the
// VM is about to start with it again.
func (c *Collector) tidy(ctx context.Context, d *v1alpha1.GPUDevice) error {
	keep, err := c.wanted(ctx, d)
	if err != nil || keep {
		return err
	}
	return c.remove(ctx, d)
}

// wanted reports that the VM of a device is set to run, still has the template, and has
// not been without a VMI for long.
func (c *Collector) wanted(ctx context.Context, d *v1alpha1.GPUDevice) (bool, error) {
	vm := d.Status.Origin.VM
	if vm == nil || c.Now().Sub(unusedSince(d)) >= keepMade {
		return false, nil
	}
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kubevirt.VirtualMachineGroupVersionKind)
	err := c.Live.Get(ctx, client.ObjectKey{Namespace: d.Namespace, Name: vm.Name}, u)
	if cluster.Absent(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return u.GetUID() == vm.UID && u.GetDeletionTimestamp() == nil && runs(u) && asksFor(u, d), nil
}

// unusedSince is when the last VMI gave a device back.
func unusedSince(d *v1alpha1.GPUDevice) time.Time {
	if c := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.ConditionAttached); c != nil {
		return c.LastTransitionTime.Time
	}
	return d.CreationTimestamp.Time
}

// runs reports a VM that KubeVirt makes a VMI for (virt-controller,
// watch/vm/vm.go: syncRunStrategy): one that is asked to be started, or that is started
// again when it ends.
func runs(vm *unstructured.Unstructured) bool {
	requests, _, _ := unstructured.NestedSlice(vm.Object, "status", "stateChangeRequests")
	for _, r := range requests {
		if one, _ := r.(map[string]any); one["action"] == string(kubevirt.StartRequest) {
			return true
		}
	}
	if on, has, _ := unstructured.NestedBool(vm.Object, "spec", "running"); has {
		return on
	}
	strategy, _, _ := unstructured.NestedString(vm.Object, "spec", "runStrategy")
	return slices.Contains([]string{string(kubevirt.RunStrategyAlways), string(kubevirt.RunStrategyRerunOnFailure)}, strategy)
}

// asksFor reports a VM whose template has one that the device could be made from.
func asksFor(vm *unstructured.Unstructured, d *v1alpha1.GPUDevice) bool {
	text, _, _ := unstructured.NestedString(vm.Object, "spec", "template", "metadata", "annotations", v1alpha1.AnnotationDevices)
	references, err := v1alpha1.DecodeReferences(text)
	return err == nil && slices.ContainsFunc(references.Templates, func(t v1alpha1.Template) bool { return t.Makes(d.Spec) })
}
