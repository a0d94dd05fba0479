package attach

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/internal/cluster"
	"github.com/gpuctl/gpuctl/internal/diagnose"
)

// Claim hands the set of a VMI that is stored to it, before its launcher is, and returns
// the node that the launcher has to run on. It may be called again, and for more than
// one pod of the VMI. What it has claimed it never gives back: the VMI's end does.
func (s *Starter) Claim(ctx context.Context, namespace, name string, uid types.UID, dry bool) (node string, err error) {
	launcher := "the launcher of VirtualMachineInstance " + namespace + "/" + name
	found, err := instance(ctx, s.Live, namespace, name)
	if err != nil {
		return "", err
	}
	if !found.is(uid) {
		return "", diagnose.NoBinding(launcher, "there is no such VMI any more")
	}
	if err := cluster.CheckQuantities(launcher, found.Object); err != nil {
		return "", err
	}
	object := &kubevirt.VirtualMachineInstance{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(found.Object, object); err != nil {
		return "", fmt.Errorf("read VMI %s/%s: %w", namespace, name, err)
	}
	if object.Labels[v1alpha1.LabelDeviceReference] != v1alpha1.ValueTrue {
		return "", diagnose.NoBinding(launcher, "the VMI has no label "+v1alpha1.LabelDeviceReference)
	}
	v, err := read(object)
	if err != nil {
		return "", err
	}
	reads := reading(s.device)
	if !dry { // what has changed since it was seen the claim finds out, for it writes what it read
		reads = s.seen(v.requestID, func(*v1alpha1.GPUDevice) bool { return true })
	}
	members, err := s.taken(ctx, v, reads)
	if err != nil {
		return "", err
	}
	if members == nil || v.requestID == "" {
		return "", diagnose.NoBinding(launcher, "the VMI has not the devices that it references")
	}
	for _, m := range byUID(members) {
		if a := m.device.Status.Attachment; a != nil && a.VMIName != name {
			return "", diagnose.NoBinding(launcher, "GPUDevice "+m.name+" is taken for VMI "+a.VMIName)
		}
		switch err := s.claim(ctx, m, v.requestID, uid, dry); {
		case errors.Is(err, errNotTaken):
			return "", diagnose.NoBinding(launcher, "GPUDevice "+m.name+" is not taken for the VMI")
		case err != nil:
			return "", err
		}
	}
	return nodeOf(launcher, namespace, members)
}

// nodeOf returns the node of a set.
func nodeOf(launcher, namespace string, members []*member) (node string, err error) {
	for _, m := range members {
		p := m.device.Status.Placement
		switch {
		case p == nil:
			return "", diagnose.NoBinding(launcher, "GPUDevice "+m.name+" has no units")
		case p.LostSince != nil:
			return "", diagnose.UnitsLost(launcher, namespace, m.name, p.Node, p.ResourceName)
		case node != "" && p.Node != node:
			return "", diagnose.NoBinding(launcher, "its devices are not on one node")
		}
		node = p.Node
	}
	return node, nil
}

// errNotTaken says that a device is not the start's any more.
var errNotTaken = errors.New("the device is not taken for the VMI")

// claim writes the VMI's UID into a device that its start has.
func (o *Options) claim(ctx context.Context, m *member, id string, uid types.UID, dry bool) error {
	for {
		a := m.device.Status.Attachment
		switch {
		case a == nil || a.RequestID != id || a.VMIUID != "" && a.VMIUID != uid:
			return errNotTaken
		case a.VMIUID == uid || dry:
			return nil
		}
		next := m.device.DeepCopy()
		next.Status.Attachment.VMIUID = uid
		settle(next, o.Now())
		err := o.Client.Status().Update(ctx, next)
		if err == nil {
			m.device = next
			o.Feed.Assume(next)
			return nil
		}
		if ctx.Err() != nil || apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
			return fmt.Errorf("claim GPUDevice %s/%s: %w", next.Namespace, next.Name, err)
		}
		live, failed := o.device(ctx, next.Namespace, next.Name)
		if failed != nil {
			return failed
		}
		if live == nil || live.UID != m.device.UID {
			return errNotTaken
		}
		m.device = live
		if !apierrors.IsConflict(err) {
			sleep(ctx, retryFirst)
		}
	}
}
