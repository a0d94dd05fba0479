package cluster

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/internal/alloc"
	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/internal/usage"
)

// room is what nodes have for launchers: what pods leave, less what the launchers of
// starts will take that were given a node and are not there yet.
type room struct {
	index  *NodeIndex
	starts map[string]starting     // by the UID of the device that says what the launcher needs
	on     map[string]set          // their UIDs, by node
	of     map[string]set          // and by the UID of the VMI
	vmis   map[types.UID]usage.VMI // that have pods
}

// starting is a start that was given a node.
type starting struct {
	node, vmi string // vmi is "" until its UID is known
	text      string // what the launcher needs
	requested amounts
}

func newRoom() room {
	return room{index: newNodeIndex(), starts: map[string]starting{}, on: map[string]set{}, of: map[string]set{}, vmis: map[types.UID]usage.VMI{}}
}

// pod counts what a pod requests so many times.
func (r *room) pod(p *heldPod, times int64) {
	if p.node != "" {
		r.index.take(p.node, p.requested, times)
	}
}

// node takes a Node. Its labels are those given, if there are any.
func (r *room) node(u *unstructured.Unstructured, labels map[string]string) {
	if labels == nil { // something else of it cannot be read
		labels = u.GetLabels()
	}
	r.index.put(hostNode(u, labels))
}

// hostNode is what launchers find on a node. An amount that is none is left out.
func hostNode(u *unstructured.Unstructured, labels map[string]string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: u.GetName(), Labels: labels}}
	taints, _, _ := unstructured.NestedSlice(u.Object, "spec", "taints")
	for _, t := range taints {
		m, _ := t.(map[string]any)
		word := func(key string) string { s, _ := m[key].(string); return s }
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: word("key"), Value: word("value"), Effect: corev1.TaintEffect(word("effect"))})
	}
	has, _, _ := unstructured.NestedMap(u.Object, "status", "allocatable")
	for name, amount := range has {
		if q, err := resource.ParseQuantity(fmt.Sprint(amount)); err == nil {
			if n.Status.Allocatable == nil {
				n.Status.Allocatable = corev1.ResourceList{}
			}
			n.Status.Allocatable[corev1.ResourceName(name)] = q
		}
	}
	return n
}

// launcherText is what a device says a launcher needs on the node that it was answered;
// "" where it does not.
func launcherText(d *v1alpha1.GPUDevice) string {
	if q := d.Status.BindRequest; q != nil && q.Answer != nil && q.Answer.Node != "" {
		return q.Launcher
	}
	return ""
}

// launcherRef names what a device says of a launcher, for messages.
func launcherRef(d *v1alpha1.GPUDevice) string {
	return "the launcher of GPUDevice " + d.Namespace + "/" + d.Name
}

// device takes what a device says of a start. One that cannot be read takes nothing.
func (r *room) device(d *v1alpha1.GPUDevice) error {
	uid, text := string(d.UID), launcherText(d)
	was := r.starts[uid]
	r.leave(uid)
	if text == "" {
		return nil
	}
	now := starting{node: d.Status.BindRequest.Answer.Node, text: text}
	if a := d.Status.Attachment; a != nil {
		now.vmi = string(a.VMIUID)
	}
	if launchedOn(r.vmis[types.UID(now.vmi)], now.node) {
		return nil
	}
	if now.requested = was.requested; was.text != text {
		spec, err := ReadLauncher(text)
		if err != nil {
			return err
		}
		now.requested = amountsOf(spec)
	}
	r.starts[uid] = now
	addTo(r.on, now.node, uid)
	addTo(r.of, now.vmi, uid)
	return nil
}

// leave forgets the start of a device.
func (r *room) leave(uid string) {
	s, known := r.starts[uid]
	if !known {
		return
	}
	delete(r.starts, uid)
	removeFrom(r.on, s.node, uid)
	removeFrom(r.of, s.vmi, uid)
}

// launched takes a VMI that has pods. A launcher that is on its node counts as a pod from
// now on.
func (r *room) launched(vmi usage.VMI) {
	for uid := range maps.Clone(r.of[vmi.UID]) {
		if launchedOn(vmi, r.starts[uid].node) {
			r.leave(uid)
		}
	}
}

// launchedOn reports that a VMI has a pod on a node.
func launchedOn(vmi usage.VMI, node string) bool {
	for _, there := range vmi.ActivePods {
		if there == node {
			return true
		}
	}
	return false
}

func addTo[K comparable](sets map[K]set, key K, item string) {
	if sets[key] == nil {
		sets[key] = set{}
	}
	sets[key][item] = struct{}{}
}

// removeFrom reports that nothing is left under the key.
func removeFrom[K comparable](sets map[K]set, key K, item string) (empty bool) {
	delete(sets[key], item)
	if len(sets[key]) > 0 {
		return false
	}
	delete(sets, key)
	return true
}

// amountsOf is what a launcher takes of a node, itself as a pod among it.
func amountsOf(spec *corev1.PodSpec) amounts {
	out := requested(&corev1.Pod{Spec: *spec})
	out[corev1.ResourcePods] = 1
	return out
}

// Room is what nodes have for launchers, and what has been given away of it since. It is
// only good within [Feed.View].
type Room struct {
	room  *room
	given map[string]amounts
}

// Room returns what nodes have for launchers.
func (v View) Room() *Room {
	names := v.f.books.Names()
	v.f.room.index.leaveOut = func(name corev1.ResourceName) bool { return names.Has(gpu.ResourceName(name)) }
	return &Room{room: &v.f.room, given: map[string]amounts{}}
}

// Fits returns a function that says whether a launcher could run on a node, as
// [NodeIndex.Fits]. Who was given a node and is not there yet counts, but for the starts
// of the devices of the UIDs own.
func (r *Room) Fits(launcher *corev1.PodSpec, own []string) func(node string) alloc.Verdict {
	return r.room.index.fits(&corev1.Pod{Spec: *launcher}, func(node string, name corev1.ResourceName) int64 {
		sum := r.given[node][name]
		for uid := range r.room.on[node] {
			if !slices.Contains(own, uid) {
				sum += r.room.starts[uid].requested[name]
			}
		}
		return sum
	})
}

// Give counts a launcher on a node from now on.
func (r *Room) Give(launcher *corev1.PodSpec, node string) {
	given := r.given[node]
	if given == nil {
		given = amounts{}
		r.given[node] = given
	}
	for name, n := range amountsOf(launcher) {
		given[name] += n
	}
}
