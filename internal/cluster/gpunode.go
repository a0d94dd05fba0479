package cluster

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
)

var gpuNodes = v1alpha1.GroupVersion.WithResource("gpunodes")

// GPUNode reads the inventory of a node; nil when none was reported yet.
func (c *Client) GPUNode(ctx context.Context, name string) (*v1alpha1.GPUNode, error) {
	var node v1alpha1.GPUNode
	if found, err := c.own(ctx, gpuNodes, name, &node); err != nil || !found {
		return nil, wrap(err, "read GPUNode %s", name)
	}
	return &node, nil
}

// own reads an object of one of gpuctl's cluster-wide kinds.
func (c *Client) own(ctx context.Context, kind schema.GroupVersionResource, name string, into any) (found bool, err error) {
	u, err := c.dynamic.Resource(kind).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, into)
}

// wrap says what failed, if something did.
func wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
}

// ReportGPUNode makes the inventory of a node what it should be, and says whether
// that took a write. A GPUNode belongs to its Node, and goes with it.
func (c *Client) ReportGPUNode(ctx context.Context, name string, spec *v1alpha1.GPUNodeSpec) (written bool, err error) {
	have, err := c.GPUNode(ctx, name)
	if err != nil {
		return false, err
	}
	if have != nil && equality.Semantic.DeepEqual(&have.Spec, spec) {
		return false, nil
	}
	want := have
	if want == nil {
		node, err := c.core.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, fmt.Errorf("read Node %s: %w", name, err)
		}
		want = &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{
			Name:            name,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: name, UID: node.UID}},
		}}
	}
	want.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("GPUNode"))
	want.Spec = *spec
	obj, err := runtime.DefaultUnstructuredConverter.ToUnstructured(want)
	if err != nil {
		return false, fmt.Errorf("encode GPUNode %s: %w", name, err)
	}
	u := &unstructured.Unstructured{Object: obj}
	if have == nil {
		_, err = c.dynamic.Resource(gpuNodes).Create(ctx, u, metav1.CreateOptions{FieldManager: "gpuctl-agent"})
	} else {
		_, err = c.dynamic.Resource(gpuNodes).Update(ctx, u, metav1.UpdateOptions{FieldManager: "gpuctl-agent"})
	}
	if err != nil {
		return false, fmt.Errorf("write GPUNode %s: %w", name, err)
	}
	return true, nil
}

// RenewAgentLease says that a node's agent lives, for as long as given.
func (c *Client) RenewAgentLease(ctx context.Context, namespace, node string, now time.Time, lasts time.Duration) error {
	leases := c.core.CoordinationV1().Leases(namespace)
	name, seconds, renewed := v1alpha1.AgentLease(node), int32(lasts/time.Second), metav1.NewMicroTime(now)
	spec := coordinationv1.LeaseSpec{HolderIdentity: &node, LeaseDurationSeconds: &seconds, RenewTime: &renewed}
	lease, err := leases.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_, err = leases.Create(ctx, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
				v1alpha1.LabelPartOf: v1alpha1.PartOf, v1alpha1.LabelComponent: v1alpha1.ComponentAgent,
			}},
			Spec: spec,
		}, metav1.CreateOptions{FieldManager: "gpuctl-agent"})
	case err == nil:
		lease.Spec = spec
		_, err = leases.Update(ctx, lease, metav1.UpdateOptions{FieldManager: "gpuctl-agent"})
	}
	if err != nil {
		return fmt.Errorf("renew Lease %s/%s: %w", namespace, name, err)
	}
	return nil
}
