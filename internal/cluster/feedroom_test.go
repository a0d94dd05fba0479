package cluster

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/internal/alloc"
	"github.com/gpuctl/gpuctl/internal/books"
	"github.com/gpuctl/gpuctl/internal/gpu"
)

// told is a feed that is told of objects by hand, as caches hold them.
type told struct {
	*Feed
	t                       *testing.T
	nodes, pods, vmis, devs events
	version                 int
}

func newTold(t *testing.T) *told {
	t.Helper()
	f := newTestFeed()
	return &told{Feed: f, t: t, nodes: f.nodeEvents(), pods: f.podEvents(), vmis: f.vmiEvents(), devs: f.deviceEvents()}
}

func (f *told) node(name, rest string) {
	f.change(func() bool {
		return f.nodes.put(nil, decode(f.t, fmt.Sprintf(`{apiVersion: v1, kind: Node, metadata: {name: %s, labels: {kubernetes.io/hostname: %s}}, %s}`, name, name, rest)))
	})
}

func podOn(t *testing.T, name, node, cpu string) *corev1.Pod {
	t.Helper()
	return decodeInto[corev1.Pod](t, fmt.Sprintf(`{metadata: {name: %s, uid: %s}, spec: {nodeName: %s, containers: [{name: c, resources: {requests: {cpu: %s}}}]}}`, name, name, node, cpu))
}

// device tells of a device of a set that was answered a node.
func (f *told) device(uid, vmi, node, launcher string) {
	f.version++
	d := &v1alpha1.GPUDevice{ObjectMeta: metav1.ObjectMeta{Name: uid, UID: types.UID(uid), ResourceVersion: fmt.Sprint(f.version)}}
	d.Status.Attachment = &v1alpha1.Attachment{RequestID: "r", VMIUID: types.UID(vmi)}
	d.Status.BindRequest = &v1alpha1.BindRequest{RequestID: "r", Launcher: launcher}
	if node != "" {
		d.Status.BindRequest.Answer = &v1alpha1.BindAnswer{Node: node}
	}
	f.change(func() bool { return f.devs.put(nil, d) })
}

func (f *told) vmi(uid, pod, node string) {
	f.change(func() bool {
		return f.vmis.put(nil, decode(f.t, fmt.Sprintf(`{apiVersion: kubevirt.io/v1, kind: VirtualMachineInstance, metadata: {name: %s, uid: %s}, status: {activePods: {%s: %q}}}`, uid, uid, pod, node)))
	})
}

// fits is the verdict on a node.
func (f *told) fits(node, launcher string, own ...string) (v alloc.Verdict) {
	spec, err := ReadLauncher(launcher)
	if err != nil {
		f.t.Fatal(err)
	}
	f.View(func(_ *books.Books, view View) { v = view.Room().Fits(spec, own)(node) })
	return v
}

func asksFor(requests string) string {
	return `{"containers":[{"name":"compute","resources":{"requests":{` + requests + `}}}]}`
}

// Room follows nodes, pods, and who was given a node and is not there yet.
func TestRoomFollows(t *testing.T) {
	const has = `status: {allocatable: {cpu: 4, pods: 10, nvidia.com/GH100_H200_SXM_141GB: 1}}`
	four, one := asksFor(`"cpu":"4"`), asksFor(`"cpu":"1"`)
	f := newTold(t)
	f.books.SetNames([]gpu.ResourceName{h200Name}, nil)
	check := func(what, launcher string, want alloc.Verdict, own ...string) {
		t.Helper()
		if got := f.fits("n1", launcher, own...); got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	check("no node", one, notKnown)
	early := (&pool{}).pod(podOn(t, "early", "n1", "1"))
	f.change(func() bool { return f.pods.put(nil, early) })
	f.node("n1", has)
	check("a pod from before the node", four, "too little cpu")
	less := (&pool{}).pod(podOn(t, "early", "n1", "500m"))
	f.change(func() bool { return f.pods.put(early, less) })
	check("it has less", asksFor(`"cpu":"3500m"`), "")
	f.change(func() bool { return f.pods.drop(less) })
	check("it is gone", four, "")
	check("GPUs do not count", asksFor(`"nvidia.com/GH100_H200_SXM_141GB":"8"`), "")

	f.device("d", "", "", four)
	check("a start that is not answered", four, "")
	f.device("d", "", "n1", four)
	check("one that is", one, "too little cpu")
	check("the same start", four, "", "d")
	f.device("d", "v", "n1", four)
	check("it is claimed", one, "too little cpu")
	f.vmi("v", "p", "")
	check("its launcher is on no node", one, "too little cpu")
	f.vmi("v", "p", "n1")
	check("its launcher is there, and ended at once", four, "")
	f.device("d", "v", "n1", four)
	check("another change of the device", four, "")
	f.device("e", "", "n1", one)
	f.device("e", "", "", "")
	check("one that was rolled back", four, "")
	f.device("e", "", "n1", one)
	f.change(func() bool { return f.devs.drop(&v1alpha1.GPUDevice{ObjectMeta: metav1.ObjectMeta{UID: "e"}}) })
	check("one whose device is gone", four, "")
	f.device("g", "", "n1", "{")
	check("one that cannot be read", four, "")

	f.node("n1", has+`, spec: {taints: [{key: late, effect: NoSchedule}]}`)
	check("a taint", one, "untolerated taint late:NoSchedule")
	f.node("late", "")
	check("a node that it names", one, "untolerated taint of effect NoSchedule")
	f.change(func() bool { return f.nodes.gone() })
	check("the nodes are gone", one, notKnown)
}

// What is given away in a round counts in it, and not afterwards.
func TestRoomGives(t *testing.T) {
	f := newTold(t)
	f.node("n1", `status: {allocatable: {cpu: 4, pods: 2}}`)
	spec, err := ReadLauncher(asksFor(`"cpu":"2"`))
	if err != nil {
		t.Fatal(err)
	}
	var got []alloc.Verdict
	f.View(func(_ *books.Books, v View) {
		room := v.Room()
		for range 3 {
			got = append(got, room.Fits(spec, nil)("n1"))
			room.Give(spec, "n1")
		}
		got = append(got, v.Room().Fits(spec, nil)("n1"))
	})
	if diff := cmp.Diff([]alloc.Verdict{"", "", "too little cpu", ""}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Whatever comes and goes, the feed says what an index of the nodes and pods says that
// are there in the end.
func TestRoomIsThatOfAnIndex(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		f, held := newTold(t), (&pool{}).pod
		pods, nodes := map[string]*corev1.Pod{}, map[string]*corev1.Node{}
		for range rapid.IntRange(1, 30).Draw(rt, "steps") {
			name := fmt.Sprint("p", rapid.IntRange(0, 4).Draw(rt, "pod"))
			node := fmt.Sprint("n", rapid.IntRange(0, 2).Draw(rt, "node"))
			switch rapid.IntRange(0, 3).Draw(rt, "what") {
			case 0:
				cpus := fmt.Sprint(rapid.IntRange(1, 4).Draw(rt, "cpus"))
				f.node(node, "status: {allocatable: {cpu: "+cpus+", pods: 9}}")
				nodes[node] = decodeInto[corev1.Node](t, "{metadata: {name: "+node+"}, status: {allocatable: {cpu: "+cpus+", pods: 9}}}")
			case 1:
				if pods[name] != nil {
					f.change(func() bool { return f.pods.drop(held(pods[name])) })
					delete(pods, name)
				}
			default:
				was := metav1.Object(nil)
				if pods[name] != nil {
					was, node = held(pods[name]), pods[name].Spec.NodeName
				}
				pods[name] = podOn(t, name, node, fmt.Sprint(rapid.IntRange(0, 2).Draw(rt, "cpu")))
				f.change(func() bool { return f.pods.put(was, held(pods[name])) })
			}
		}
		var ns []*corev1.Node
		var ps []*corev1.Pod
		for _, n := range nodes {
			ns = append(ns, n)
		}
		for _, p := range pods {
			ps = append(ps, p)
		}
		x := IndexNodes(ns, ps, nil)
		for cpus := range 5 {
			launcher := asksFor(fmt.Sprintf(`"cpu":"%d"`, cpus))
			spec, _ := ReadLauncher(launcher)
			for _, node := range []string{"n0", "n1", "n2"} {
				if got, want := f.fits(node, launcher), x.Fits(&corev1.Pod{Spec: *spec})(node); got != want {
					rt.Fatalf("%d CPUs on %s: %q, by the index %q", cpus, node, got, want)
				}
			}
		}
	})
}
