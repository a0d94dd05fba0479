package cluster

import (
	"context"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
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

// readDevice reads an order, and what became of it.
func readDevice(f *Facts, d *manifest.Document) error {
	var device v1alpha1.GPUDevice
	if err := typed(d, &device); err != nil {
		return err
	}
	f.Devices = append(f.Devices, f.orderOf(&device))
	return nil
}

// orderOf returns what a diagnosis needs of a device.
func (f *Facts) orderOf(d *v1alpha1.GPUDevice) diagnose.Device {
	_, template := d.Labels[v1alpha1.LabelTemplateDevice]
	s := &d.Status
	out := diagnose.Device{
		Namespace: d.Namespace, Name: d.Name, State: string(s.State), Class: d.Spec.ClassName, Count: max(int64(d.Spec.Count), 1),
		Ordered: d.CreationTimestamp.Time, Made: template,
	}
	if s.Origin != nil {
		if out.Made = s.Origin.Kind == v1alpha1.OriginTemplate; s.Origin.VM != nil {
			out.VM = s.Origin.VM.Name
		}
	}
	if d.DeletionTimestamp != nil {
		out.Deleted = d.DeletionTimestamp.Time
	}
	for _, finalizer := range d.Finalizers {
		if finalizer == v1alpha1.FinalizerUnits {
			out.Kept = true
		} else {
			out.Finalizers = append(out.Finalizers, finalizer)
		}
	}
	if p := s.Placement; p != nil {
		out.Node, out.Resource, out.Since = p.Node, p.ResourceName, p.Since.Time
		if p.LostSince != nil {
			out.Lost = p.LostSince.Time
		}
	}
	if a := s.Attachment; a != nil {
		out.VMI, out.VMIUID, out.Taken = a.VMIName, string(a.VMIUID), a.Since.Time
	}
	if q := s.BindRequest; q != nil && q.Answer != nil && q.Answer.Refusal != nil {
		out.Refused = f.scrub(q.Answer.Refusal.Code + ": " + q.Answer.Refusal.Message)
	}
	if c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionHeld); c != nil && c.Status != metav1.ConditionTrue {
		out.Said, out.SaidAt = f.scrub(c.Message), c.LastTransitionTime.Time
	}
	return out
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
