package cluster

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/internal/diagnose"
)

// AgentSelector selects what belongs to node agents.
const AgentSelector = v1alpha1.LabelPartOf + "=" + v1alpha1.PartOf + "," + v1alpha1.LabelComponent + "=" + v1alpha1.ComponentAgent

// Agents reads what there is to know about the node agents: each node that should
// have one, and whether it reports. starting says that the agents' DaemonSet has
// not made all of its pods yet. namespace is that of the agents, "" for any.
// Without a DaemonSet of agents nobody expects any.
func (c *Client) Agents(ctx context.Context, namespace string, now time.Time) (agents []diagnose.Agent, starting bool, err error) {
	opts := metav1.ListOptions{LabelSelector: AgentSelector}
	sets, err := c.core.AppsV1().DaemonSets(namespace).List(ctx, opts)
	if err != nil {
		return nil, false, fmt.Errorf("list the agents' DaemonSets: %w", err)
	}
	byNode := map[string]*diagnose.Agent{}
	for i := range sets.Items {
		set := &sets.Items[i]
		count, err := c.agentsOf(ctx, set, now, byNode)
		if err != nil {
			return nil, false, err
		}
		starting = starting || set.Status.ObservedGeneration < set.Generation || count < int(set.Status.DesiredNumberScheduled)
	}
	for _, a := range byNode {
		agents = append(agents, *a)
	}
	slices.SortFunc(agents, func(a, b diagnose.Agent) int { return cmp.Compare(a.Node, b.Node) })
	return agents, starting, nil
}

// agentsOf adds the agents of one DaemonSet and returns how many it has.
func (c *Client) agentsOf(ctx context.Context, set *appsv1.DaemonSet, now time.Time, byNode map[string]*diagnose.Agent) (count int, err error) {
	opts := metav1.ListOptions{LabelSelector: AgentSelector}
	pods, err := c.core.CoreV1().Pods(set.Namespace).List(ctx, opts)
	if err != nil {
		return 0, fmt.Errorf("list the agents' pods: %w", err)
	}
	leases, err := c.core.CoordinationV1().Leases(set.Namespace).List(ctx, opts)
	if err != nil {
		return 0, fmt.Errorf("list the agents' Leases: %w", err)
	}
	alive := map[string]*coordinationv1.Lease{}
	for i := range leases.Items {
		alive[leases.Items[i].Name] = &leases.Items[i]
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		node := nodeOf(pod)
		if node == "" || pod.DeletionTimestamp != nil || !metav1.IsControlledBy(pod, set) {
			continue
		}
		count++
		a := diagnose.Agent{Node: node, Pod: pod.Namespace + "/" + pod.Name, Problem: podProblem(pod)}
		a.Silent, a.Reports = silence(alive[v1alpha1.AgentLease(node)], now)
		if other, ok := byNode[node]; !ok || !other.Reports {
			byNode[node] = &a
		}
	}
	return count, nil
}

// silence returns for how long nothing was heard of an agent, zero when nothing
// ever was, and whether that is still well.
func silence(lease *coordinationv1.Lease, now time.Time) (silent time.Duration, alive bool) {
	if lease == nil || lease.Spec.RenewTime == nil || lease.Spec.LeaseDurationSeconds == nil {
		return 0, false
	}
	silent = now.Sub(lease.Spec.RenewTime.Time)
	return silent, silent < time.Duration(*lease.Spec.LeaseDurationSeconds)*time.Second
}

// nodeOf returns the node that a DaemonSet's pod is on, or is made for.
func nodeOf(pod *corev1.Pod) string {
	if pod.Spec.NodeName != "" {
		return pod.Spec.NodeName
	}
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		for _, term := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
			for _, field := range term.MatchFields {
				if field.Key == "metadata.name" && len(field.Values) == 1 {
					return field.Values[0]
				}
			}
		}
	}
	return ""
}

// podProblem says why a pod does not run, "" when it does.
func podProblem(pod *corev1.Pod) string {
	for _, s := range pod.Status.ContainerStatuses {
		switch {
		case s.State.Waiting != nil && s.State.Waiting.Reason != "":
			return "its pod waits: " + s.State.Waiting.Reason
		case s.State.Terminated != nil:
			return fmt.Sprintf("its pod ended with exit code %d", s.State.Terminated.ExitCode)
		}
	}
	if pod.Status.Phase == corev1.PodRunning {
		return ""
	}
	for _, cond := range pod.Status.Conditions {
		if cond.Type == corev1.PodScheduled && cond.Status == corev1.ConditionFalse {
			return "its pod is not scheduled: " + cond.Message
		}
	}
	return "its pod does not run yet"
}
