package cluster_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuctl/gpuctl/test/cluster"
)

func TestStoppedControllerDoesNothing(t *testing.T) {
	c := shared.For(t)
	ns := c.Namespace()
	c.Stop(cluster.VirtController)
	u := c.Create(vm(c, ns, "waits", "Always", "nvidia.com/STOPPED"))
	c.Always(time.Second, "the VM has no status", func(ctx context.Context) error {
		got, err := c.Resource(u).Get(ctx, "waits", metav1.GetOptions{})
		if err == nil && printable(got) != "" {
			err = fmt.Errorf("it is %q", printable(got))
		}
		return err
	})
	c.Start(cluster.VirtController)
	instance := vmi(c, ns, "waits", "gpus", "nvidia.com/STOPPED")
	c.Eventually(soon, "the VMI exists", says(c, instance, "Schedul", phase))
}

func TestControlPlaneComesBack(t *testing.T) {
	c := shared.For(t)
	ns := c.Namespace()
	components := []string{cluster.Etcd, cluster.APIServer, cluster.VirtAPI, cluster.ControllerManager, cluster.Scheduler}
	for _, name := range components {
		c.Stop(name)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := c.Clientset().CoreV1().Namespaces().Get(ctx, ns, metav1.GetOptions{}); err == nil {
		t.Error("the API server serves without being there")
	}
	for _, name := range components {
		c.Start(name)
	}
	if _, err := c.Clientset().CoreV1().Namespaces().Get(t.Context(), ns, metav1.GetOptions{}); err != nil {
		t.Errorf("the namespace from before: %v", err)
	}
	c.Eventually(soon, "a VMI is admitted", func(ctx context.Context) error {
		u := vmi(c, ns, "afterwards", "gpus", "nvidia.com/AFTERWARDS")
		_, err := c.Resource(u).Create(ctx, u, metav1.CreateOptions{})
		return err
	})
}
