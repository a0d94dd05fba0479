package cluster_test

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpuctl/gpuctl/test/cluster"
)

func TestAPIOnly(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.APIOnly())
	c.AddNode(cluster.Node{
		Name: "node", Resources: map[corev1.ResourceName]int64{"nvidia.com/API_ONLY": 1},
		Taints: []corev1.Taint{{Key: "gpu", Value: "only", Effect: corev1.TaintEffectNoSchedule}},
	})
	ns := c.Namespace()
	u := c.Create(vmi(c, ns, "alone", "gpus", "nvidia.com/API_ONLY"))
	c.Always(time.Second, "nothing happens to a VMI", func(ctx context.Context) error {
		if says(c, u, "Pending", phase)(ctx) == nil {
			return errors.New("it is Pending")
		}
		return nil
	})
	c.SetVMIPhase(ns, "alone", "Running")
	if err := says(c, u, "Running", phase)(t.Context()); err != nil {
		t.Error(err)
	}
}
