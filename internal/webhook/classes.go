package webhook

import (
	"context"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/internal/gpu"
)

// Classes judges an order by its class alone, read live: it must exist and stay, allow
// so many units, and be for this tenant. It does not look at budgets and at what is
// free, nor for entitlements above the tenant's own namespace.
type Classes struct{ Reader Reader }

// Reader reads what the class of an order is judged by.
type Reader interface {
	// GPUClass returns nil when there is no class of this name.
	GPUClass(ctx context.Context, name string) (*v1alpha1.GPUClass, error)
	NamespaceLabels(ctx context.Context, name string) (map[string]string, error)
}

// Admit refuses what the class does not allow.
func (c Classes) Admit(ctx context.Context, o Order) error {
	class, err := c.Reader.GPUClass(ctx, o.Class)
	if err != nil {
		return err
	}
	switch {
	case class == nil:
		return diagnose.NoClass(o.String(), o.Class)
	case class.DeletionTimestamp != nil:
		return diagnose.ClassDeleted(o.String(), o.Class)
	case o.Count > class.Spec.MaxCount:
		return diagnose.CountTooLarge(o.String(), o.Class, o.Count, class.Spec.MaxCount)
	case class.Spec.Entitlement == "":
		if gpu.ResourceName(class.Spec.ResourceName).IsVGPU() {
			return diagnose.ClassUnlicensed(o.String(), o.Class, class.Spec.ResourceName)
		}
		return nil
	}
	labels, err := c.Reader.NamespaceLabels(ctx, o.Namespace)
	if err != nil {
		return err
	}
	if labels[v1alpha1.LabelEntitlement(class.Spec.Entitlement)] != "true" {
		return diagnose.NotEntitled(o.String(), o.Namespace, o.Class, class.Spec.Entitlement)
	}
	return nil
}
