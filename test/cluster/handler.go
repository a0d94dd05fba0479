package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
)

// becomeHandler gets the credentials of virt-handler.
func (s *stack) becomeHandler(ctx context.Context) error {
	config, err := s.serviceAccountConfig(ctx, KubeVirtNamespace, handlerAccount)
	if err != nil {
		return err
	}
	s.handler, err = dynamic.NewForConfig(config)
	return err
}

// startHandlers starts what nodes need of a virt-handler: the end of VMIs that
// were deleted.
func (s *stack) startHandlers() {
	ctx := s.loopContext
	informer := dynamicinformer.NewFilteredDynamicInformer(s.dynamic, vmis, metav1.NamespaceAll, 0, cache.Indexers{}, nil)
	s.loops.Go(func() { informer.Informer().Run(ctx.Done()) })
	s.loop(ctx, tick, "virt-handler", func(ctx context.Context) error { return s.endVMIs(ctx, informer.Lister()) })
}

// endVMIs does what virt-handler does when a VMI on its node was deleted: it
// stops the guest and says so.
func (s *stack) endVMIs(ctx context.Context, lister cache.GenericLister) error {
	list, err := lister.List(labels.Everything())
	if err != nil {
		return err
	}
	var errs []error
	for _, o := range list {
		vmi, ok := o.(*unstructured.Unstructured)
		if !ok || vmi.GetDeletionTimestamp() == nil {
			continue
		}
		node, _, _ := unstructured.NestedString(vmi.Object, "status", "nodeName")
		phase, _, _ := unstructured.NestedString(vmi.Object, "status", "phase")
		if s.nodes.ours(node) && (phase == "Scheduled" || phase == "Running") {
			err := s.setVMIPhase(ctx, vmi.GetNamespace(), vmi.GetName(), "Succeeded")
			if !apierrors.IsNotFound(err) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// setVMIPhase sets a VMI's phase as virt-handler, with its ServiceAccount.
func (s *stack) setVMIPhase(ctx context.Context, namespace, name, phase string) error {
	status := map[string]any{"phase": phase}
	if phase == "Running" {
		status["selinuxContext"] = "none" // or virt-controller does not migrate it
		// Or virt-controller takes the VMI, when it ends, for one that failed to start.
		status["phaseTransitionTimestamps"] = []any{map[string]any{"phase": phase, "phaseTransitionTimestamp": now()}}
	}
	patch, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return fmt.Errorf("encode a phase: %w", err)
	}
	// VMIs have no status subresource.
	_, err = s.handler.Resource(vmis).Namespace(namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}
