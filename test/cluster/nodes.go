package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// heartbeat is how often nodes say that they live, as often as kubelet does.
const heartbeat = 10 * time.Second

// nodes are the nodes that are kept alive, and those that were: whatever still
// runs there has to end when it is told to.
type nodes struct {
	mu    sync.Mutex
	alive map[string]bool
	roots map[string]string // of their files, where they have one
}

// add adds a node that is kept alive.
func (n *nodes) add(node Node) {
	n.set(node.Name, true)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.roots == nil {
		n.roots = map[string]string{}
	}
	n.roots[node.Name] = node.Root
}

// root returns the folder that plays the root of a node's files, or "".
func (n *nodes) root(name string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.roots[name]
}

func (n *nodes) set(name string, alive bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.alive == nil {
		n.alive = map[string]bool{}
	}
	n.alive[name] = alive
}

// ours reports whether the node is or was kept alive.
func (n *nodes) ours(name string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, ok := n.alive[name]
	return ok
}

func (n *nodes) living() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.DeleteFunc(slices.Sorted(maps.Keys(n.alive)), func(name string) bool { return !n.alive[name] })
}

// addNode adds a node and waits until pods can be scheduled there.
func (s *stack) addNode(ctx context.Context, n Node) error {
	if _, err := s.clientset.CoreV1().Nodes().Create(ctx, n.object(), metav1.CreateOptions{}); err != nil {
		return err
	}
	// Pods of DaemonSets come as soon as it exists.
	s.nodes.add(n)
	if err := s.enliven(ctx, n); err != nil {
		return errors.Join(err, s.removeNode(ctx, n.Name))
	}
	return nil
}

// enliven makes a node that exists one that works.
func (s *stack) enliven(ctx context.Context, n Node) error {
	port := 0
	if s.kubelets != nil {
		port = s.kubelets.port
	}
	if err := s.patchNode(ctx, n.Name, map[string]any{"status": n.status(s.built.versions["controlplane"], port)}, "status"); err != nil {
		return err
	}
	if err := s.renewLease(ctx, n.Name); err != nil {
		return err
	}
	if s.options.kind == apiOnly {
		return s.setTaints(ctx, n) // the one that is awaited below would stay
	}
	return poll(ctx, func(ctx context.Context) error {
		got, err := s.clientset.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		// Every node is tainted until its Ready condition has been noticed.
		if slices.ContainsFunc(got.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeNotReady }) {
			return fmt.Errorf("node %s is tainted as not ready", n.Name)
		}
		return nil
	})
}

// setTaints gives a node the taints that it is described with, and no other.
func (s *stack) setTaints(ctx context.Context, n Node) error {
	data, err := json.Marshal(map[string]any{"spec": map[string]any{"taints": n.Taints}})
	if err != nil {
		return fmt.Errorf("encode the taints of node %s: %w", n.Name, err)
	}
	_, err = s.clientset.CoreV1().Nodes().Patch(ctx, n.Name, types.MergePatchType, data, metav1.PatchOptions{})
	return err
}

func (s *stack) removeNode(ctx context.Context, name string) error {
	s.nodes.set(name, false)
	if s.kubelets != nil {
		s.kubelets.loseNode(name)
	}
	err := s.clientset.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// setAllocatable sets what a node has of a resource. Its capacity stays, as it
// does when devices fail, unless that would be less.
func (s *stack) setAllocatable(ctx context.Context, node string, name corev1.ResourceName, amount int64) error {
	got, err := s.clientset.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	if err != nil {
		return err
	}
	quantity := *resource.NewQuantity(amount, resource.DecimalSI)
	status := map[string]any{"allocatable": corev1.ResourceList{name: quantity}}
	if capacity, ok := got.Status.Capacity[name]; !ok || capacity.Cmp(quantity) < 0 {
		status["capacity"] = corev1.ResourceList{name: quantity}
	}
	return s.patchNode(ctx, node, map[string]any{"status": status}, "status")
}

// beatAll keeps all nodes alive: their leases, Ready conditions and virt-handlers.
func (s *stack) beatAll(ctx context.Context) error {
	var errs []error
	for _, name := range s.nodes.living() {
		conditions := []corev1.NodeCondition{readyCondition()}
		conditions[0].LastTransitionTime = metav1.Time{} // as it is
		errs = append(errs, s.renewLease(ctx, name),
			s.patchNode(ctx, name, map[string]any{"metadata": map[string]any{"annotations": map[string]string{heartbeatAnnotation: now()}}}),
			s.patchNode(ctx, name, map[string]any{"status": map[string]any{"conditions": conditions}}, "status"))
	}
	return errors.Join(errs...)
}

func (s *stack) patchNode(ctx context.Context, name string, patch map[string]any, subresources ...string) error {
	data, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("encode a patch of node %s: %w", name, err)
	}
	_, err = s.asNodes.CoreV1().Nodes().Patch(ctx, name, types.StrategicMergePatchType, data, metav1.PatchOptions{}, subresources...)
	return err
}

// renewLease says that a node lives. The heartbeat may do so at the same time, and
// whoever is first has said it.
func (s *stack) renewLease(ctx context.Context, node string) error {
	leases := s.asNodes.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	seconds, renewed := int32(4*heartbeat/time.Second), metav1.NowMicro()
	spec := coordinationv1.LeaseSpec{HolderIdentity: &node, LeaseDurationSeconds: &seconds, RenewTime: &renewed}
	lease, err := leases.Get(ctx, node, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = leases.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: spec}, metav1.CreateOptions{})
	} else if err == nil {
		lease.Spec = spec
		_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	}
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}
