package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/test/bench/fleet"
	"github.com/gpuctl/gpuctl/test/cluster"
)

// awaitSettled waits until a replica leads, says that the cluster is wired, and has
// written nothing for a while.
func (o *options) awaitSettled(ctx context.Context, c cluster.Running, all replicas) error {
	client, err := dynamic.NewForConfig(quietly(c.Nodes))
	if err != nil {
		return err
	}
	began := time.Now()
	for {
		err := errors.Join(isLed(ctx, client), isWired(ctx, client))
		if err == nil {
			err = o.isQuiet(c, all, began)
		}
		if err == nil {
			return nil
		}
		if time.Since(began) > o.settle {
			return fmt.Errorf("wait until the wiring is settled: gave up after %s: %w", o.settle, err)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(2 * time.Second):
		}
	}
}

func isLed(ctx context.Context, client dynamic.Interface) error {
	leases := client.Resource(coordinationv1.SchemeGroupVersion.WithResource("leases")).Namespace(fleet.Namespace)
	lease, err := leases.Get(ctx, v1alpha1.ControllerLease, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if holder, _, _ := unstructured.NestedString(lease.Object, "spec", "holderIdentity"); holder == "" {
		return errors.New("nobody leads")
	}
	return nil
}

func isWired(ctx context.Context, client dynamic.Interface) error {
	wiring, err := client.Resource(v1alpha1.GroupVersion.WithResource("gpuwirings")).Get(ctx, v1alpha1.WiringName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	conditions, _, _ := unstructured.NestedSlice(wiring.Object, "status", "conditions")
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["type"] == "Wired" && c["status"] == "True" {
			return nil
		}
	}
	return fmt.Errorf("the GPUWiring does not say Wired: %v", conditions)
}

// isQuiet checks that nothing but Leases was written for a while.
func (o *options) isQuiet(c cluster.Running, all replicas, began time.Time) error {
	if time.Since(began) < o.quiet {
		return errors.New("too early")
	}
	requests, err := c.Requests(time.Now().Add(-o.quiet), func(user string) bool { return all.nameOf(user) != "" })
	if err != nil {
		return err
	}
	for _, r := range requests {
		if kindOf(r) == other {
			return fmt.Errorf("%s wrote in the last %s: %s", all.nameOf(r.User), o.quiet, describe(r))
		}
	}
	return nil
}
