package cluster

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/retry"
)

// AddNode adds a node and waits until pods can be scheduled there. It is kept
// alive until the test ends. Pods run there as RunImage and Script say; those that
// are deleted go away, and VMIs that are deleted there stop.
func (c *Cluster) AddNode(n Node) {
	c.t.Helper()
	c.must("add node "+n.Name, func(ctx context.Context) error { return c.stack.addNode(ctx, n) })
	c.t.Cleanup(func() { c.RemoveNode(n.Name) })
}

// RemoveNode deletes a node, if it is still there.
func (c *Cluster) RemoveNode(name string) {
	c.t.Helper()
	c.must("remove node "+name, func(ctx context.Context) error { return c.stack.removeNode(ctx, name) })
}

// SetAllocatable sets how much of a resource a node offers, as a device plugin
// does. The node's capacity does not shrink, as it does not when devices fail.
func (c *Cluster) SetAllocatable(node string, resource corev1.ResourceName, amount int64) {
	c.t.Helper()
	c.must(fmt.Sprintf("set %s of node %s", resource, node), func(ctx context.Context) error {
		return c.stack.setAllocatable(ctx, node, resource, amount)
	})
}

// Namespace makes a namespace, which is deleted when the test ends.
func (c *Cluster) Namespace() string {
	c.t.Helper()
	namespaces := c.stack.clientset.CoreV1().Namespaces()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	c.must("create a namespace", func(ctx context.Context) (err error) {
		ns, err = namespaces.Create(ctx, ns, metav1.CreateOptions{})
		return err
	})
	c.t.Cleanup(func() {
		c.must("delete namespace "+ns.Name, func(ctx context.Context) error {
			return namespaces.Delete(ctx, ns.Name, metav1.DeleteOptions{})
		})
	})
	return ns.Name
}

// Decode reads one object from YAML or JSON.
func (c *Cluster) Decode(text string) *unstructured.Unstructured {
	c.t.Helper()
	u, err := decode(text)
	if err != nil {
		c.t.Fatal(err)
	}
	return u
}

// Resource returns an administrator's client for objects of the kind of u, in
// the namespace of u if it has one.
func (c *Cluster) Resource(u *unstructured.Unstructured) dynamic.ResourceInterface {
	return clientFor(c.stack.dynamic, u)
}

// Create creates an object and returns what was stored. It stays when the test
// ends unless its namespace goes.
func (c *Cluster) Create(u *unstructured.Unstructured) *unstructured.Unstructured {
	c.t.Helper()
	c.must("create "+u.GetKind()+" "+u.GetName(), func(ctx context.Context) (err error) {
		u, err = c.Resource(u).Create(ctx, u, metav1.CreateOptions{})
		return err
	})
	return u
}

// PatchKubeVirt merges a JSON patch into the KubeVirt CR. The CR's spec is as
// before when the test has ended. KubeVirt notices a moment later.
func (c *Cluster) PatchKubeVirt(patch string) {
	c.t.Helper()
	kubeVirts := c.stack.kubeVirts()
	var before *unstructured.Unstructured
	c.must("patch KubeVirt", func(ctx context.Context) (err error) {
		if before, err = kubeVirts.Get(ctx, KubeVirtNamespace, metav1.GetOptions{}); err != nil {
			return err
		}
		_, err = kubeVirts.Patch(ctx, KubeVirtNamespace, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	})
	c.t.Cleanup(func() {
		c.must("restore KubeVirt", func(ctx context.Context) error {
			return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
				kv, err := kubeVirts.Get(ctx, KubeVirtNamespace, metav1.GetOptions{})
				if err != nil {
					return err
				}
				kv.Object["spec"] = before.Object["spec"]
				_, err = kubeVirts.Update(ctx, kv, metav1.UpdateOptions{})
				return err
			})
		})
	})
}

// SetVMIPhase sets the phase of a VMI as the virt-handler of its node would,
// with virt-handler's ServiceAccount.
func (c *Cluster) SetVMIPhase(namespace, name, phase string) {
	c.t.Helper()
	c.must("set the phase of VMI "+name, func(ctx context.Context) error {
		return c.stack.setVMIPhase(ctx, namespace, name, phase)
	})
}

// RunVMI waits until the launcher pod of a VMI is on a node, and has it run
// there: pod and VMI become Running. It returns the name of the node.
func (c *Cluster) RunVMI(namespace, name string) (node string) {
	c.t.Helper()
	c.must("run VMI "+name, func(ctx context.Context) (err error) {
		node, err = c.stack.runVMI(ctx, namespace, name)
		return err
	})
	return node
}

// LauncherPod waits until a VMI has a launcher pod that is on a node.
func (c *Cluster) LauncherPod(namespace, vmi string) (pod *corev1.Pod) {
	c.t.Helper()
	c.must("find the launcher pod of VMI "+vmi, func(ctx context.Context) (err error) {
		pod, err = c.stack.launcherPod(ctx, namespace, vmi)
		return err
	})
	return pod
}

// SetPodPhase sets the phase of a pod as the kubelet of its node would, with
// the conditions and container states that go with it.
func (c *Cluster) SetPodPhase(pod *corev1.Pod, phase corev1.PodPhase) {
	c.t.Helper()
	c.must("set the phase of pod "+pod.Name, func(ctx context.Context) error { return c.stack.setPodPhase(ctx, pod, phase) })
}

// Eventually calls check until it returns nil, and fails the test with its last
// error when that takes longer than limit.
func (c *Cluster) Eventually(limit time.Duration, what string, check func(context.Context) error) {
	c.t.Helper()
	ctx, cancel := context.WithTimeoutCause(context.Background(), limit, fmt.Errorf("not within %v", limit))
	defer cancel()
	if err := poll(ctx, check); err != nil {
		c.t.Fatalf("wait until %s: %v", what, err)
	}
}

// Always fails the test when check returns an error at any time within period.
func (c *Cluster) Always(period time.Duration, what string, check func(context.Context) error) {
	c.t.Helper()
	for end := time.Now().Add(period); time.Now().Before(end); time.Sleep(interval) {
		if err := check(context.Background()); err != nil {
			c.t.Fatalf("expect that always %s: %v", what, err)
		}
	}
}
