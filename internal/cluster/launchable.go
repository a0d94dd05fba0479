package cluster

import (
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podresources "k8s.io/component-helpers/resource"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/gpuctl/gpuctl/internal/alloc"
)

// NodeIndex is what decides whether a launcher can run on a node, prepared for
// many questions. It keeps the labels of the nodes that it was made of, which must not change.
// It is safe for concurrent use, unless it is kept up to date.
type NodeIndex struct {
	nodes    map[string]*hosting
	used     map[string]amounts // by what runs or is to run there, also where no node is known
	lengths  map[int]int        // of the nodes' names, and how many have each
	said     map[corev1.Taint]alloc.Verdict
	leaveOut func(corev1.ResourceName) bool
}

// hosting is what one node has for a launcher.
type hosting struct {
	node   *corev1.Node   // its name and labels
	taints []corev1.Taint // that keep pods away
	has    amounts
}

// amounts are millis of CPU, and units of all else.
type amounts map[corev1.ResourceName]int64

// IndexNodes prepares nodes and the pods that run or are to run on them. Resources
// that leaveOut names, the GPUs, are not counted; nil counts all.
func IndexNodes(nodes []*corev1.Node, pods []*corev1.Pod, leaveOut func(corev1.ResourceName) bool) *NodeIndex {
	x := newNodeIndex()
	if leaveOut != nil {
		x.leaveOut = leaveOut
	}
	for _, n := range nodes {
		x.put(n)
	}
	for _, p := range pods {
		if p.Spec.NodeName != "" && !ended(p) {
			x.take(p.Spec.NodeName, requested(p), 1)
		}
	}
	for _, h := range x.nodes { // nothing is left to be noted while it is used
		for _, t := range h.taints {
			x.tell(t)
		}
	}
	return x
}

func newNodeIndex() *NodeIndex {
	return &NodeIndex{
		nodes: map[string]*hosting{}, used: map[string]amounts{}, lengths: map[int]int{}, said: map[corev1.Taint]alloc.Verdict{},
		leaveOut: func(corev1.ResourceName) bool { return false },
	}
}

// put adds a node or replaces it. Of pods there it changes nothing.
func (x *NodeIndex) put(n *corev1.Node) {
	h := &hosting{node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: n.Labels}}, has: amounts{}}
	for name, q := range n.Status.Allocatable {
		if v := valueOf(name, q); v > 0 {
			h.has[name] = v
		}
	}
	for _, t := range n.Spec.Taints {
		if t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute {
			h.taints = append(h.taints, t)
		}
	}
	was := x.nodes[n.Name]
	if was != nil && reflect.DeepEqual(was, h) {
		return
	}
	if was == nil {
		x.lengths[len(n.Name)]++
		clear(x.said) // something may have its name in it
	}
	x.nodes[n.Name] = h
}

// drop takes a node away.
func (x *NodeIndex) drop(name string) {
	if x.nodes[name] == nil {
		return
	}
	delete(x.nodes, name)
	x.lengths[len(name)]--
	if x.lengths[len(name)] == 0 {
		delete(x.lengths, len(name))
	}
}

// beyond is what a pod requests at most of anything: what is beyond cannot be told from
// it, and a thousand such pods do not exceed an int64.
const beyond = 1 << 53

// take notes what so many pods request on a node; fewer than none are given back.
func (x *NodeIndex) take(node string, requested amounts, pods int64) {
	used := x.used[node]
	if used == nil {
		used = amounts{}
		x.used[node] = used
	}
	used[corev1.ResourcePods] += pods
	for name, n := range requested {
		if name != corev1.ResourcePods {
			used[name] += pods * n
		}
	}
	if used[corev1.ResourcePods] == 0 {
		delete(x.used, node)
	}
}

// tell returns what is said of a taint: no part of it that has a node's name.
func (x *NodeIndex) tell(t corev1.Taint) alloc.Verdict {
	t.TimeAdded = nil
	said, known := x.said[t]
	if known {
		return said
	}
	about := t
	switch {
	case x.namesNode(t.Key):
		said = alloc.Verdict("untolerated taint of effect " + t.Effect)
	case x.namesNode(t.Value):
		about.Value = ""
		fallthrough
	default:
		said = alloc.Verdict("untolerated taint " + about.ToString())
	}
	x.said[t] = said
	return said
}

// namesNode reports that the name of an indexed node is anywhere in a text.
func (x *NodeIndex) namesNode(text string) bool {
	text = strings.ToLower(text) // as names of nodes are
	for at := range text {
		for length := range x.lengths {
			if length > 0 && length <= len(text)-at && x.nodes[text[at:at+length]] != nil {
				return true
			}
		}
	}
	return false
}

// requests returns what the scheduler counts for a pod: containers, init
// containers, overhead, and what a resize has not given back yet.
func requests(p *corev1.Pod) corev1.ResourceList {
	return podresources.PodRequests(reckonable(p), podresources.PodResourcesOptions{
		UseStatusResources: true, InPlacePodLevelResourcesVerticalScalingEnabled: true,
	})
}

// requested returns what the scheduler counts for a pod, of nothing more than beyond.
func requested(p *corev1.Pod) amounts {
	list := requests(p)
	out := make(amounts, len(list)+1)
	for name, q := range list {
		out[name] = min(valueOf(name, q), beyond)
	}
	return out
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
	labels      []label
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
	return x.fits(pod, func(string, corev1.ResourceName) int64 { return 0 })
}

// fits is Fits where more is taken of a node than pods have.
func (x *NodeIndex) fits(pod *corev1.Pod, more func(node string, name corev1.ResourceName) int64) func(node string) alloc.Verdict {
	l := &launcher{
		tolerations: pod.Spec.Tolerations,
		affinity:    nodeaffinity.GetRequiredNodeAffinity(pod),
		labels:      labelsOf(pod),
		needs:       x.needs(pod),
	}
	return func(node string) alloc.Verdict {
		h := x.nodes[node]
		if h == nil {
			return notKnown
		}
		if t, untolerated := l.untolerated(h); untolerated {
			return x.tell(t)
		}
		if v := l.selects(h); v != "" {
			return v
		}
		used := x.used[node]
		return l.hasRoom(h, func(name corev1.ResourceName) int64 { return used[name] + more(node, name) })
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

func (l *launcher) untolerated(h *hosting) (corev1.Taint, bool) {
	if len(h.taints) == 0 {
		return corev1.Taint{}, false
	}
	return scheduling.FindMatchingUntoleratedTaint(logr.Discard(), h.taints, l.tolerations, nil, false)
}

func (l *launcher) selects(h *hosting) alloc.Verdict {
	switch match, err := l.affinity.Match(h.node); {
	case err != nil:
		return unreadable
	case !match:
		return l.lacks(h)
	}
	return ""
}

// lacks says why a node does not match: the label that KubeVirt asks for, if it is one.
func (l *launcher) lacks(h *hosting) alloc.Verdict {
	for i := range l.labels {
		w := &l.labels[i]
		if value, has := h.node.Labels[w.key]; !has || value != w.value {
			return w.lacking
		}
	}
	return noMatch
}

func (l *launcher) hasRoom(h *hosting, taken func(corev1.ResourceName) int64) alloc.Verdict {
	for i := range l.needs {
		n := &l.needs[i]
		has, some := h.has[n.resource]
		switch {
		case !some:
			return n.no
		case has-taken(n.resource) < n.amount:
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
