package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	v1 "kubevirt.io/api/core/v1"
)

// ErrGateClosed is returned when virt-api still refuses hostDevices.
var ErrGateClosed = errors.New("virt-api refuses hostDevices: the HostDevices gate is not live")

// gateClosed is what virt-api's admitter says without the gate
// (vmi-create-admitter.go).
const gateClosed = "Host Devices feature gate is not enabled"

// VerifyGate proves that virt-api lets VMs have host devices, by a server-side
// dry run of an instance with one. virt-api learns of a changed KubeVirt CR from
// its own watch, so it is asked again for up to patience. The error is
// [ErrGateClosed] when it still refuses then; any other error means that the
// answer says nothing about the gate.
func (c *Client) VerifyGate(parent context.Context, namespace, device string, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(parent, patience)
	defer cancel()
	var last error
	err := wait.PollUntilContextCancel(ctx, 200*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		_, err := c.kubevirt.KubevirtV1().VirtualMachineInstances(namespace).Create(ctx, probe(device), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		answered := new(apierrors.StatusError)
		if err == nil || last == nil || errors.As(err, &answered) && ctx.Err() == nil { // what is cut short says nothing new
			last = err
		}
		if final := apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsNotFound(err); final && !strings.Contains(err.Error(), gateClosed) {
			return false, err // asking again changes nothing
		}
		return err == nil, nil
	})
	switch {
	case err == nil:
		return nil
	case parent.Err() != nil:
		return parent.Err()
	case last == nil:
		return fmt.Errorf("dry-run an instance in namespace %s: no answer within %s", namespace, patience)
	case strings.Contains(last.Error(), gateClosed):
		return ErrGateClosed
	}
	return fmt.Errorf("dry-run an instance in namespace %s: %w", namespace, last)
}

// probe is the smallest instance with a host device.
func probe(device string) *v1.VirtualMachineInstance {
	vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{GenerateName: "gpuctl-verify-"}}
	vmi.Spec.Domain.Resources.Requests = map[corev1.ResourceName]resource.Quantity{corev1.ResourceMemory: resource.MustParse("64Mi")}
	vmi.Spec.Domain.Devices.HostDevices = []v1.HostDevice{{Name: "gpu", DeviceName: device}}
	return vmi
}
