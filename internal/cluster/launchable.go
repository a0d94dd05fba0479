package cluster

import (
	"math"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	podresources "k8s.io/component-helpers/resource"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/gpuctl/gpuctl/internal/alloc"
)

// NodeIndex is what decides whether a launcher can run on a node, prepared for
// many questions. It keeps the nodes that it was made of, which must not change.
// It is safe for concurrent use.
type NodeIndex struct {
	nodes    map[string]*hosting
	lengths  []int // of the nodes' names, each once
	leaveOut func(corev1.ResourceName) bool
}

// hosting is what one node has for a launcher.
type hosting struct {
	node    *corev1.Node
	taints  []corev1.Taint  // that keep pods away
	tainted []alloc.Verdict // what to say of each
	free    amounts
}

// amounts are millis of CPU, and units of all else, by what a node has at all.
type amounts map[corev1.ResourceName]int64

// IndexNodes prepares nodes and the pods that run or are to run on them. Resources
// that leaveOut names, the GPUs, are not counted; nil counts all.
func IndexNodes(nodes []*corev1.Node, pods []*corev1.Pod, leaveOut func(corev1.ResourceName) bool) *NodeIndex {
	if leaveOut == nil {
		leaveOut = func(corev1.ResourceName) bool { return false }
	}
	x := &NodeIndex{nodes: make(map[string]*hosting, len(nodes)), leaveOut: leaveOut}
	for _, n := range nodes {
		h := &hosting{node: n, free: amounts{}}
		for name, q := range n.Status.Allocatable {
			if v := valueOf(name, q); v > 0 {
				h.free[name] = v
			}
		}
		x.nodes[n.Name] = h
		if at, found := slices.BinarySearch(x.lengths, len(n.Name)); !found {
			x.lengths = slices.Insert(x.lengths, at, len(n.Name))
		}
	}
	said := map[corev1.Taint]alloc.Verdict{}
	for _, h := range x.nodes {
		x.keepAway(h, said)
	}
	for _, p := range pods {
		if h := x.nodes[p.Spec.NodeName]; h != nil && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
			h.free.take(requests(p))
		}
	}
	return x
}

// keepAway notes the taints that keep pods away. Nodes with the same taints share
// what is said of them.
func (x *NodeIndex) keepAway(h *hosting, said map[corev1.Taint]alloc.Verdict) {
	for _, t := range h.node.Spec.Taints {
		if t.Effect != corev1.TaintEffectNoSchedule && t.Effect != corev1.TaintEffectNoExecute {
			continue
		}
		same := corev1.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect} // added at any time
		if said[same] == "" {
			said[same] = x.tell(same)
		}
		h.taints, h.tainted = append(h.taints, t), append(h.tainted, said[same])
	}
}

// tell returns what is said of a taint: no part of it that has a node's name.
func (x *NodeIndex) tell(t corev1.Taint) alloc.Verdict {
	if x.namesNode(t.Key) {
		return alloc.Verdict("untolerated taint of effect " + t.Effect)
	}
	if x.namesNode(t.Value) {
		t.Value = ""
	}
	return alloc.Verdict("untolerated taint " + t.ToString())
}

// namesNode reports that the name of an indexed node is anywhere in a text.
func (x *NodeIndex) namesNode(text string) bool {
	text = strings.ToLower(text) // as names of nodes are
	for at := range text {
		for _, length := range x.lengths {
			if length > len(text)-at {
				break
			}
			if length > 0 && x.nodes[text[at:at+length]] != nil {
				return true
			}
		}
	}
	return false
}

// take subtracts what a pod requests.
func (a amounts) take(requested corev1.ResourceList) {
	for name, q := range requested {
		if free, has := a[name]; has {
			v := valueOf(name, q)
			a[name] = max(free, math.MinInt64+v) - v
		}
	}
	if _, has := a[corev1.ResourcePods]; has {
		a[corev1.ResourcePods]--
	}
}

// requests returns what the scheduler counts for a pod: containers, init
// containers, overhead, and what a resize has not given back yet.
func requests(p *corev1.Pod) corev1.ResourceList {
	return podresources.PodRequests(p, podresources.PodResourcesOptions{
		UseStatusResources: true, InPlacePodLevelResourcesVerticalScalingEnabled: true,
	})
}

// need is one resource that a launcher requests, and what to say of a node that
// has less of it or none.
type need struct {
	resource      corev1.ResourceName
	amount        int64
	tooLittle, no alloc.Verdict
}

// launcher is a pod as it is asked about on many nodes.
type launcher struct {
	tolerations []corev1.Toleration
	affinity    nodeaffinity.RequiredNodeAffinity
	needs       []need
}

// What is said of nodes.
const (
	notKnown    alloc.Verdict = "not known as a node"
	noMatch     alloc.Verdict = "node selector or affinity does not match"
	unreadable  alloc.Verdict = "node affinity cannot be read"
	tooManyPods alloc.Verdict = "too many pods"
)

// Fits returns a function that says whether the launcher could run on a node,
// for an alloc.Request: of several reasons the first one in the order of the
// scheduler's checks. A verdict tells of a node only what has no indexed node's
// name in it, for tenants read it. The launcher must not be one of the indexed pods. A node
// that is cordoned is closed by its Snapshot, not here.
func (x *NodeIndex) Fits(pod *corev1.Pod) func(node string) alloc.Verdict {
	l := &launcher{
		tolerations: pod.Spec.Tolerations,
		affinity:    nodeaffinity.GetRequiredNodeAffinity(pod),
		needs:       x.needs(pod),
	}
	checks := []func(*hosting) alloc.Verdict{l.tolerates, l.selects, l.hasRoom}
	return func(node string) alloc.Verdict {
		h := x.nodes[node]
		if h == nil {
			return notKnown
		}
		for _, check := range checks {
			if v := check(h); v != "" {
				return v
			}
		}
		return ""
	}
}

// needs returns what the launcher requests: CPU, memory and a pod first.
func (x *NodeIndex) needs(pod *corev1.Pod) []need {
	first := []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods}
	requested := requests(pod)
	rest := make([]corev1.ResourceName, 0, len(requested))
	for name := range requested {
		if !slices.Contains(first, name) && !x.leaveOut(name) {
			rest = append(rest, name)
		}
	}
	slices.Sort(rest)
	out := make([]need, 0, len(first)+len(rest))
	for _, name := range slices.Concat(first, rest) {
		n := need{resource: name, amount: valueOf(name, requested[name])}
		switch {
		case name == corev1.ResourcePods:
			n.amount, n.tooLittle, n.no = 1, tooManyPods, tooManyPods
		case strings.Contains(string(name), "/"):
			n.tooLittle, n.no = alloc.Verdict("too few "+name), alloc.Verdict("no "+name)
		default:
			n.tooLittle, n.no = alloc.Verdict("too little "+name), alloc.Verdict("no "+name)
		}
		if n.amount > 0 {
			out = append(out, n)
		}
	}
	return out
}

func (l *launcher) tolerates(h *hosting) alloc.Verdict {
	if len(h.taints) == 0 {
		return ""
	}
	taint, untolerated := scheduling.FindMatchingUntoleratedTaint(logr.Discard(), h.taints, l.tolerations, nil, false)
	if !untolerated {
		return ""
	}
	return h.tainted[slices.Index(h.taints, taint)]
}

func (l *launcher) selects(h *hosting) alloc.Verdict {
	switch match, err := l.affinity.Match(h.node); {
	case err != nil:
		return unreadable
	case !match:
		return noMatch
	}
	return ""
}

func (l *launcher) hasRoom(h *hosting) alloc.Verdict {
	for i := range l.needs {
		n := &l.needs[i]
		free, has := h.free[n.resource]
		switch {
		case !has:
			return n.no
		case free < n.amount:
			return n.tooLittle
		}
	}
	return ""
}

// valueOf returns a quantity as amounts has it; what is beyond all numbers is the
// largest.
func valueOf(name corev1.ResourceName, q resource.Quantity) int64 {
	switch {
	case name == corev1.ResourceCPU && q.CmpInt64(math.MaxInt64/1000) > 0, q.CmpInt64(math.MaxInt64) > 0:
		return math.MaxInt64
	case name == corev1.ResourceCPU:
		return q.MilliValue()
	}
	return q.Value()
}
