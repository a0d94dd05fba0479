package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// WokenKey is the annotation that Wake writes. Any change of the instance makes
// virt-controller try again at once instead of waiting out its back-off.
const WokenKey = "gpuctl.dev/woken-at"

// notPermitted is how virt-controller says that the table lacks a name.
const notPermitted = "is not permitted in permittedHostDevices configuration"

// WakeAll wakes until nobody is left who could start: virt-controller may learn of
// the new table a moment after the first touch, and refuse once more. Instances
// are named "namespace/name"; failed says of some why they could not be touched,
// which stops nobody else from being woken.
func (c *Client) WakeAll(ctx context.Context, permitted func(gpu.ResourceName) bool) (woken []string, failed map[string]error, err error) {
	all := map[string]bool{}
	failed = map[string]error{}
	for range 6 {
		touched, err := c.wake(ctx, permitted, failed)
		for _, name := range touched {
			all[name] = true
		}
		if err != nil || len(touched) == 0 {
			return slices.Sorted(maps.Keys(all)), failed, err
		}
		select {
		case <-ctx.Done():
			return slices.Sorted(maps.Keys(all)), failed, ctx.Err()
		case <-time.After(400 * time.Millisecond):
		}
	}
	return slices.Sorted(maps.Keys(all)), failed, nil
}

// wake touches, once, the instances that KubeVirt refused for device names which
// are permitted now, but for those that could not be touched before. An instance
// that went away meanwhile is left out.
func (c *Client) wake(ctx context.Context, permitted func(gpu.ResourceName) bool, failed map[string]error) ([]string, error) {
	var woken []string
	opts := metav1.ListOptions{Limit: pageSize}
	for {
		page, err := c.kubevirt.KubevirtV1().VirtualMachineInstances(metav1.NamespaceAll).List(ctx, opts)
		if err != nil {
			return woken, fmt.Errorf("list instances to wake: %w", err)
		}
		for i := range page.Items {
			vmi := &page.Items[i]
			name := vmi.Namespace + "/" + vmi.Name
			if failed[name] != nil || !refused(vmi) || !allPermitted(vmi, permitted) {
				continue
			}
			switch err := c.touch(ctx, vmi); {
			case err == nil:
				woken = append(woken, name)
			case !apierrors.IsNotFound(err):
				failed[name] = err
			}
		}
		if opts.Continue = page.Continue; opts.Continue == "" {
			return woken, nil
		}
	}
}

// refused reports an instance whose launcher KubeVirt would not render. The
// condition's text is that of the first error and may name another device.
func refused(vmi *v1.VirtualMachineInstance) bool {
	if vmi.DeletionTimestamp != nil || vmi.Status.Phase != v1.Pending && vmi.Status.Phase != v1.VmPhaseUnset {
		return false
	}
	for _, c := range vmi.Status.Conditions {
		if c.Type == v1.VirtualMachineInstanceSynchronized && c.Reason == "FailedCreate" && strings.Contains(c.Message, notPermitted) {
			return true
		}
	}
	return false
}

func allPermitted(vmi *v1.VirtualMachineInstance, permitted func(gpu.ResourceName) bool) bool {
	for _, d := range vmi.Spec.Domain.Devices.GPUs {
		if !permitted(gpu.ResourceName(d.DeviceName)) {
			return false
		}
	}
	for _, d := range vmi.Spec.Domain.Devices.HostDevices {
		if !permitted(gpu.ResourceName(d.DeviceName)) {
			return false
		}
	}
	return true
}

func (c *Client) touch(ctx context.Context, vmi *v1.VirtualMachineInstance) error {
	note := map[string]string{WokenKey: time.Now().UTC().Format(time.RFC3339Nano)}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": note}})
	if err != nil {
		return err
	}
	_, err = c.kubevirt.KubevirtV1().VirtualMachineInstances(vmi.Namespace).Patch(ctx, vmi.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: c.manager})
	return err
}
