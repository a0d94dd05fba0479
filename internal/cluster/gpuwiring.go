package cluster

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
)

var gpuWirings = v1alpha1.GroupVersion.WithResource("gpuwirings")

// GPUWiring reads what the controller says about the wiring; nil when there is none,
// or the cluster does not know the kind.
func (c *Client) GPUWiring(ctx context.Context) (*v1alpha1.GPUWiring, error) {
	var w v1alpha1.GPUWiring
	if found, err := c.own(ctx, gpuWirings, v1alpha1.WiringName, &w); err != nil || !found {
		return nil, wrap(err, "read GPUWiring %s", v1alpha1.WiringName)
	}
	return &w, nil
}

// WriteGPUWiring makes the status of the GPUWiring what it should be, and returns it as
// it was stored: with times in whole seconds. It makes the object when there is none, and
// writes nothing when nothing changes.
func (c *Client) WriteGPUWiring(ctx context.Context, status *v1alpha1.GPUWiringStatus) (*v1alpha1.GPUWiringStatus, error) {
	have, err := c.GPUWiring(ctx)
	if err != nil {
		return nil, err
	}
	if have != nil && equality.Semantic.DeepEqual(&have.Status, status) {
		return status, nil
	}
	want := have
	if want == nil {
		want = &v1alpha1.GPUWiring{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.WiringName}}
	}
	want.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("GPUWiring"))
	want.Status = *status
	u := &unstructured.Unstructured{}
	if u.Object, err = runtime.DefaultUnstructuredConverter.ToUnstructured(want); err != nil {
		return nil, fmt.Errorf("encode GPUWiring %s: %w", v1alpha1.WiringName, err)
	}
	if have == nil {
		made, err := c.dynamic.Resource(gpuWirings).Create(ctx, u, metav1.CreateOptions{FieldManager: c.manager})
		if err != nil {
			return nil, fmt.Errorf("make GPUWiring %s: %w", v1alpha1.WiringName, err)
		}
		u.SetResourceVersion(made.GetResourceVersion())
		u.SetUID(made.GetUID())
	}
	if u, err = c.dynamic.Resource(gpuWirings).UpdateStatus(ctx, u, metav1.UpdateOptions{FieldManager: c.manager}); err != nil {
		return nil, fmt.Errorf("write the status of GPUWiring %s: %w", v1alpha1.WiringName, err)
	}
	var stored v1alpha1.GPUWiring
	return &stored.Status, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &stored)
}

// Answers asks the API server whether it is ready to serve.
func (c *Client) Answers(ctx context.Context) error {
	return c.core.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
}
