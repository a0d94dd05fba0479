package main

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/test/bench/fleet"
)

// beat is something that each node says again and again.
type beat struct {
	what  string
	every time.Duration
	say   func(ctx context.Context, node string) error
}

// keepAlive has the nodes say that they live, as often as real ones do, until ctx
// ends; one that cannot ends it.
func keepAlive(ctx context.Context, cancel context.CancelCauseFunc, config *rest.Config, nodes int) error {
	client, err := clientset(config)
	if err != nil {
		return err
	}
	err = fleet.InParallel(ctx, nodes, func(ctx context.Context, i int) error {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: fleet.NodeName(i)}}
		_, err := client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Create(ctx, lease, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return err
	}
	for _, b := range beats(client) {
		go func() {
			if err := b.keep(ctx, nodes); err != nil {
				cancel(err)
			}
		}()
	}
	return nil
}

func beats(client kubernetes.Interface) []beat {
	lease := func(namespace string, name func(node string) string) func(context.Context, string) error {
		return func(ctx context.Context, node string) error {
			patch := fmt.Sprintf(`{"spec":{"holderIdentity":%q,"renewTime":%q}}`, node, fleet.Now())
			_, err := client.CoordinationV1().Leases(namespace).Patch(ctx, name(node), types.MergePatchType, []byte(patch), metav1.PatchOptions{})
			return err
		}
	}
	node := func(format string, subresources ...string) func(context.Context, string) error {
		return func(ctx context.Context, name string) error {
			patch := fmt.Sprintf(format, time.Now().UTC().Format(time.RFC3339))
			_, err := client.CoreV1().Nodes().Patch(ctx, name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
			return err
		}
	}
	return []beat{
		{"kubelet's Lease", 10 * time.Second, lease(corev1.NamespaceNodeLease, func(node string) string { return node })},
		{"kubelet's status", 5 * time.Minute, node(`{"status":{"conditions":[{"type":"Ready","lastHeartbeatTime":%q}]}}`, "status")},
		{"virt-handler's heartbeat", time.Minute, node(`{"metadata":{"annotations":{"kubevirt.io/heartbeat":%q}}}`)},
		{"the agent's Lease", 30 * time.Second, lease(fleet.Namespace, v1alpha1.AgentLease)},
	}
}

// keep says it for one node after the other, evenly.
func (b beat) keep(ctx context.Context, nodes int) error {
	tick := time.NewTicker(b.every / time.Duration(nodes))
	defer tick.Stop()
	for i := 0; ; i = (i + 1) % nodes {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := b.say(ctx, fleet.NodeName(i)); err != nil && ctx.Err() == nil {
			return fmt.Errorf("renew %s of %s: %w", b.what, fleet.NodeName(i), err)
		}
	}
}
