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
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/internal/manifest"
)

// AgentSelector selects what belongs to node agents.
const AgentSelector = v1alpha1.LabelPartOf + "=" + v1alpha1.PartOf + "," + v1alpha1.LabelComponent + "=" + v1alpha1.ComponentAgent

// Agents reads what there is to know about the node agents: each node that should
// have one, and whether it reports. starting says that the agents' DaemonSet has
// not made all of its pods yet. namespace is that of the agents, "" for any.
// Without a DaemonSet of agents nobody expects any.
func (c *Client) Agents(ctx context.Context, namespace string, now time.Time) (agents []diagnose.Agent, starting bool, err error) {
	opts := metav1.ListOptions{LabelSelector: AgentSelector}
	var f fleet
	sets, err := c.core.AppsV1().DaemonSets(namespace).List(ctx, opts)
	if err != nil {
		return nil, false, fmt.Errorf("list the agents' DaemonSets: %w", err)
	}
	f.sets = sets.Items
	for i := range sets.Items {
		err := c.eachPod(ctx, sets.Items[i].Namespace, opts, func(pod *corev1.Pod) error {
			f.pods = append(f.pods, agentPodOf(pod))
			return nil
		})
		if err != nil {
			return nil, false, fmt.Errorf("list the agents' pods: %w", err)
		}
		leases, err := c.compact.CoordinationV1().Leases(sets.Items[i].Namespace).List(ctx, opts)
		if err != nil {
			return nil, false, fmt.Errorf("list the agents' Leases: %w", err)
		}
		f.leases = append(f.leases, leases.Items...)
	}
	agents, starting = f.agents(now)
	return agents, starting, nil
}

// AgentsOf is Agents for documents that were read at the given time.
func AgentsOf(docs []manifest.Document, at time.Time) ([]diagnose.Agent, error) {
	var f fleet
	for i := range docs {
		d := &docs[i]
		if !isComponent(d, v1alpha1.ComponentAgent) {
			continue
		}
		if err := f.add(d); err != nil {
			return nil, fmt.Errorf("%s: %w", d.Ref(), err)
		}
	}
	agents, _ := f.agents(at)
	return agents, nil
}

// isComponent reports an object that carries the labels of one of gpuctl's components.
func isComponent(d *manifest.Document, component string) bool {
	labels, _ := manifest.Lookup(d.Object, manifest.Path{"metadata", "labels"})
	have, _ := labels.(map[string]any)
	return have[v1alpha1.LabelPartOf] == v1alpha1.PartOf && have[v1alpha1.LabelComponent] == component
}

// fleet is what tells about the agents of one or more releases.
type fleet struct {
	sets   []appsv1.DaemonSet
	pods   []agentPod
	leases []coordinationv1.Lease
}

// agentPod is what is told by a pod that may be an agent's.
type agentPod struct {
	namespace, name, node, problem string
	deleted                        bool
	controller                     *types.UID // nil where nobody controls it
}

func agentPodOf(pod *corev1.Pod) agentPod {
	p := agentPod{namespace: pod.Namespace, name: pod.Name, node: nodeOf(pod), problem: podProblem(pod), deleted: pod.DeletionTimestamp != nil}
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		uid := owner.UID
		p.controller = &uid
	}
	return p
}

func (f *fleet) add(d *manifest.Document) error {
	switch group(d) + "/" + d.Kind() {
	case "apps/DaemonSet":
		return readInto(&f.sets, d)
	case "/Pod":
		var pod corev1.Pod
		err := typed(d, &pod)
		if err == nil {
			f.pods = append(f.pods, agentPodOf(&pod))
		}
		return err
	case "coordination.k8s.io/Lease":
		return readInto(&f.leases, d)
	}
	return nil
}

func readInto[T any](list *[]T, d *manifest.Document) error {
	var v T
	err := typed(d, &v)
	if err == nil {
		*list = append(*list, v)
	}
	return err
}

// agents returns the agents by node. starting says that a DaemonSet has not made all
// of its pods yet.
func (f *fleet) agents(now time.Time) (agents []diagnose.Agent, starting bool) {
	byNode := map[string]*diagnose.Agent{}
	for i := range f.sets {
		set := &f.sets[i]
		count := f.agentsOf(set, now, byNode)
		starting = starting || set.Status.ObservedGeneration < set.Generation || count < int(set.Status.DesiredNumberScheduled)
	}
	for _, a := range byNode {
		agents = append(agents, *a)
	}
	slices.SortFunc(agents, func(a, b diagnose.Agent) int { return cmp.Compare(a.Node, b.Node) })
	return agents, starting
}

// agentsOf adds the agents of one DaemonSet and returns how many it has.
func (f *fleet) agentsOf(set *appsv1.DaemonSet, now time.Time, byNode map[string]*diagnose.Agent) (count int) {
	alive := map[string]*coordinationv1.Lease{}
	for i := range f.leases {
		if f.leases[i].Namespace == set.Namespace {
			alive[f.leases[i].Name] = &f.leases[i]
		}
	}
	for i := range f.pods {
		pod := &f.pods[i]
		if pod.node == "" || pod.namespace != set.Namespace || pod.deleted || pod.controller == nil || *pod.controller != set.UID {
			continue
		}
		count++
		a := diagnose.Agent{Node: pod.node, Pod: pod.namespace + "/" + pod.name, Problem: pod.problem}
		a.Silent, a.Reports = silence(alive[v1alpha1.AgentLease(pod.node)], now)
		if other, ok := byNode[pod.node]; !ok || !other.Reports {
			byNode[pod.node] = &a
		}
	}
	return count
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
