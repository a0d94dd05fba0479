package attach

import (
	"context"

	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/internal/books"
	"github.com/gpuctl/gpuctl/internal/diagnose"
)

// Wants returns what a VMI would ask the books for if it were created, for who shows
// what would become of it: nothing is written. live has the devices, under the UIDs that
// the books know them by; made are those that were made for its VM before. The error is
// what a start is refused for, whether there is room or not: [diagnose.Refused]
// understands it.
func Wants(ctx context.Context, live client.Reader, b *books.Books, made []*v1alpha1.GPUDevice, object *kubevirt.VirtualMachineInstance) (books.Set, error) {
	_, label := object.Labels[v1alpha1.LabelDeviceReference]
	if _, annotation := object.Annotations[v1alpha1.AnnotationDevices]; annotation && !label {
		return books.Set{}, diagnose.BadReferences(Named(object), v1alpha1.ErrNoLabel)
	}
	v, err := read(object)
	if err != nil {
		return books.Set{}, err
	}
	st, s := &start{vmi: v}, &Starter{Options: Options{Live: live}}
	if err := s.devices(ctx, st, made); err != nil {
		return books.Set{}, err
	}
	if err := st.usable(b); err != nil {
		return books.Set{}, err
	}
	return st.ask(b), nil
}
