package cluster

import (
	"context"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A node's Lease is renewed by whoever adds it and by the heartbeat, perhaps at once.
func TestLeaseIsRenewedAtOnce(t *testing.T) {
	c := Start(t, func(o *options) { o.kind = bare })
	for range 20 {
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				if err := c.stack.renewLease(t.Context(), "busy"); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
	if _, err := c.stack.clientset.CoordinationV1().Leases("kube-node-lease").Get(context.Background(), "busy", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}
