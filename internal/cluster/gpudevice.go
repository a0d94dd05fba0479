package cluster

import (
	"context"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/retry"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/internal/manifest"
)

// Devices lists the GPUDevices of all namespaces; none where the kind is not there.
func (c *Client) Devices(ctx context.Context) ([]v1alpha1.GPUDevice, error) {
	list, err := c.dynamic.Resource(v1alpha1.GroupVersion.WithResource("gpudevices")).List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, wrap(err, "list GPUDevices")
	}
	out := make([]v1alpha1.GPUDevice, len(list.Items))
	for i := range list.Items {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, &out[i]); err != nil {
			return nil, wrap(err, "read GPUDevice %s/%s", list.Items[i].GetNamespace(), list.Items[i].GetName())
		}
	}
	return out, nil
}

// readDevice reads what became of an order.
func readDevice(f *Facts, d *manifest.Document) error {
	var device v1alpha1.GPUDevice
	if err := typed(d, &device); err != nil {
		return err
	}
	f.Devices = append(f.Devices, diagnose.Device{Namespace: device.Namespace, Name: device.Name, State: string(device.Status.State)})
	return nil
}

// ReleaseDevice takes gpuctl's finalizer of a device away, whatever the device holds:
// when it is deleted it is gone at once. One that is gone already is none to release.
func (c *Client) ReleaseDevice(ctx context.Context, namespace, name string) error {
	devices := c.dynamic.Resource(v1alpha1.GroupVersion.WithResource("gpudevices")).Namespace(namespace)
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		u, err := devices.Get(ctx, name, metav1.GetOptions{})
		if err != nil || !slices.Contains(u.GetFinalizers(), v1alpha1.FinalizerUnits) {
			return err
		}
		u.SetFinalizers(slices.DeleteFunc(u.GetFinalizers(), func(f string) bool { return f == v1alpha1.FinalizerUnits }))
		_, err = devices.Update(ctx, u, metav1.UpdateOptions{FieldManager: c.manager})
		return err
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return wrap(err, "release GPUDevice %s/%s", namespace, name)
}
