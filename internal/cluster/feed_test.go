package cluster

import (
	stdcmp "cmp"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/fake"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/internal/alloc"
	"github.com/gpuctl/gpuctl/internal/books"
	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/internal/manifest"
	"github.com/gpuctl/gpuctl/internal/tenant"
	"github.com/gpuctl/gpuctl/internal/usage"
)

const (
	h200Name gpu.ResourceName = "nvidia.com/GH100_H200_SXM_141GB"

	launcherPod = `{metadata: {name: p, namespace: acme, uid: u, labels: {a: b}}, spec: {nodeName: n1, containers: [{name: compute, image: "i:1", env: [{name: A, value: b}],
		resources: {limits: {nvidia.com/GH100_H200_SXM_141GB: 2, devices.kubevirt.io/kvm: 1, cpu: 1}, requests: {nvidia.com/GH100_H200_SXM_141GB: 2, devices.kubevirt.io/kvm: 1, cpu: 1}}}]},
		status: {phase: Running}}`
	pluginPod = `{metadata: {name: plugin-x, namespace: gpus, uid: x, ownerReferences: [{apiVersion: apps/v1, kind: DaemonSet, name: plugin, uid: set, controller: true}]},
		spec: {nodeName: n1, containers: [{image: "nvcr.io/nvidia/kubevirt-gpu-device-plugin:v1.4.0"}]}}`
)

// newTestFeed is a feed that is told of objects by hand.
func newTestFeed() *Feed {
	w := NewWatcher(nil, nil, func() {}, FeedOptions{}.Log)
	return NewFeed(&Client{}, w, FeedOptions{})
}

func TestDeviceOf(t *testing.T) {
	created, now := metav1.Unix(1, 0), metav1.NewMicroTime(time.Unix(2, 0))
	placed := func() *v1alpha1.Placement {
		return &v1alpha1.Placement{Node: "n1", ResourceName: string(h200Name), Units: 2}
	}
	lost := placed()
	lost.LostSince = &now
	starting := &v1alpha1.Attachment{VMIName: "vm1", RequestID: "r1"}
	claimed := &v1alpha1.Attachment{VMIName: "vm1", RequestID: "r1", VMIUID: "v1"}
	answered := &v1alpha1.BindRequest{RequestID: "r1", Answer: &v1alpha1.BindAnswer{Node: "n1"}}
	tests := map[string]struct {
		status   v1alpha1.GPUDeviceStatus
		deleting bool
		want     func(*books.Device)
	}{
		"ordered":                     {want: func(*books.Device) {}},
		"ordered, a VM starts":        {status: v1alpha1.GPUDeviceStatus{Attachment: starting}, want: func(*books.Device) {}},
		"reserved":                    {status: v1alpha1.GPUDeviceStatus{Placement: placed()}, want: func(d *books.Device) { on(d); d.State = alloc.Held }},
		"reserved, a VM starts":       {status: v1alpha1.GPUDeviceStatus{Placement: placed(), Attachment: starting}, want: on},
		"answered":                    {status: v1alpha1.GPUDeviceStatus{Placement: placed(), Attachment: starting, BindRequest: answered}, want: on},
		"stopped":                     {status: v1alpha1.GPUDeviceStatus{Placement: placed(), BindRequest: answered}, want: func(d *books.Device) { on(d); d.State = alloc.Held }},
		"claimed":                     {status: v1alpha1.GPUDeviceStatus{Placement: placed(), Attachment: claimed}, want: func(d *books.Device) { on(d); d.State, d.VMI = alloc.Attached, "v1" }},
		"lost":                        {status: v1alpha1.GPUDeviceStatus{Placement: lost}, want: func(d *books.Device) { on(d); d.State, d.Lost = alloc.Held, true }},
		"lost while a VM starts":      {status: v1alpha1.GPUDeviceStatus{Placement: lost, Attachment: starting}, want: func(d *books.Device) { on(d); d.Lost = true }},
		"lost under a VM":             {status: v1alpha1.GPUDeviceStatus{Placement: lost, Attachment: claimed}, want: func(d *books.Device) { on(d); d.State, d.VMI, d.Lost = alloc.Attached, "v1", true }},
		"being deleted":               {deleting: true, status: v1alpha1.GPUDeviceStatus{Placement: placed()}, want: on},
		"being deleted under a VM":    {deleting: true, status: v1alpha1.GPUDeviceStatus{Placement: placed(), Attachment: claimed}, want: func(d *books.Device) { on(d); d.State, d.VMI = alloc.Attached, "v1" }},
		"being deleted before a node": {deleting: true, want: func(*books.Device) {}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			d := &v1alpha1.GPUDevice{
				ObjectMeta: metav1.ObjectMeta{Name: "d", Namespace: "acme", UID: "u", CreationTimestamp: created},
				Spec:       v1alpha1.GPUDeviceSpec{ClassName: "h200", Count: 4}, Status: tc.status,
			}
			if tc.deleting {
				d.DeletionTimestamp = &created
			}
			want := books.Device{
				Device: usage.Device{UID: "u", Namespace: "acme", Name: "d", Class: "h200", Units: 4}, State: alloc.Bound, Ordered: time.Unix(1, 0),
			}
			tc.want(&want)
			if diff := cmp.Diff(want, DeviceOf(d)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func on(d *books.Device) { d.Node, d.Resource, d.Units = "n1", h200Name, 2 }

func TestPodOf(t *testing.T) {
	two := usage.Requests{h200Name: 2}
	tests := map[string]struct {
		spec, status string
		want         *usage.Pod // but for its names; nil: books need nothing of it
	}{
		"nothing extended":        {spec: `{containers: [{resources: {requests: {cpu: 1, memory: 1Gi, hugepages-2Mi: 2Mi}}}]}`},
		"a launcher without GPUs": {spec: `{containers: [{resources: {limits: {devices.kubevirt.io/kvm: 1, devices.kubevirt.io/tun: 1, devices.kubevirt.io/vhost-net: 1}}}]}`},
		"a launcher with one": {
			spec: `{nodeName: n1, containers: [{resources: {limits: {devices.kubevirt.io/kvm: 1, nvidia.com/GH100_H200_SXM_141GB: 2}, requests: {nvidia.com/GH100_H200_SXM_141GB: 2}}}]}`,
			want: &usage.Pod{Node: "n1", Containers: []usage.Requests{two}},
		},
		"another device of KubeVirt's domain": {
			spec: `{containers: [{resources: {limits: {devices.kubevirt.io/gpu: 1}}}]}`,
			want: &usage.Pod{Containers: []usage.Requests{{"devices.kubevirt.io/gpu": 1}}},
		},
		"a limit alone": {
			spec: `{containers: [{resources: {limits: {nvidia.com/GH100_H200_SXM_141GB: 2}}}, {}]}`, want: &usage.Pod{Containers: []usage.Requests{two, nil}},
		},
		"init containers and sidecars": {
			spec: `{containers: [{}], initContainers: [{resources: {limits: {nvidia.com/GH100_H200_SXM_141GB: 2}}}, {restartPolicy: Always, resources: {requests: {nvidia.com/GH100_H200_SXM_141GB: 2}}}]}`,
			want: &usage.Pod{Containers: []usage.Requests{nil}, Init: []usage.Init{{Requests: two}, {Requests: two, Sidecar: true}}},
		},
		"at the pod's level": {
			spec: `{resources: {requests: {cpu: 1, nvidia.com/GH100_H200_SXM_141GB: 2}}, containers: [{}]}`,
			want: &usage.Pod{Containers: []usage.Requests{nil}, Level: two},
		},
		"one that is done": {
			spec: `{containers: [{resources: {limits: {nvidia.com/GH100_H200_SXM_141GB: 2}}}]}`, status: `{phase: Failed}`,
			want: &usage.Pod{Done: true, Containers: []usage.Requests{two}},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			pod := decodeInto[corev1.Pod](t, fmt.Sprintf("{metadata: {name: p, namespace: acme, uid: u}, spec: %s, status: %s}", tc.spec, stdcmp.Or(tc.status, "{}")))
			got, ok := PodOf(pod)
			held := (&pool{}).pod(pod).counts
			if ok != (tc.want != nil) || (held != nil) != ok {
				t.Fatalf("needed: %t, held %+v", ok, held)
			}
			if !ok {
				return
			}
			tc.want.UID, tc.want.Namespace, tc.want.Name = "u", "acme", "p"
			if diff := cmp.Diff(*tc.want, got) + cmp.Diff(got, *held); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// An older version undoes nothing, and what is gone does not come back.
func TestNewestDevice(t *testing.T) {
	version := func(uid, rv string) *v1alpha1.GPUDevice {
		return &v1alpha1.GPUDevice{ObjectMeta: metav1.ObjectMeta{Name: "d", Namespace: "acme", UID: types.UID(uid), ResourceVersion: rv}}
	}
	see := func(f *Feed, uid, rv string) {
		f.change(func() bool { return f.deviceEvents().put(nil, version(uid, rv)) })
	}
	miss := func(f *Feed, uid string) {
		f.change(func() bool { return f.deviceEvents().drop(version(uid, "1")) })
	}
	tests := map[string]struct {
		do   func(*Feed)
		want map[string]string
	}{
		"an event after an own write":              {func(f *Feed) { f.Assume(version("a", "10")); see(f, "a", "9") }, map[string]string{"a": "10"}},
		"a newer event":                            {func(f *Feed) { f.Assume(version("a", "9")); see(f, "a", "10") }, map[string]string{"a": "10"}},
		"an own write that others have overtaken":  {func(f *Feed) { see(f, "a", "10"); f.Assume(version("a", "9")) }, map[string]string{"a": "10"}},
		"versions that are no numbers":             {func(f *Feed) { see(f, "a", "x"); see(f, "a", "b") }, map[string]string{"a": "b"}},
		"an own write of what is gone":             {func(f *Feed) { see(f, "a", "1"); miss(f, "a"); f.Assume(version("a", "10")) }, map[string]string{}},
		"an event of what a live answer says gone": {func(f *Feed) { f.Forget("a"); see(f, "a", "1") }, map[string]string{}},
		"another one of the name":                  {func(f *Feed) { see(f, "a", "1"); f.Forget("a"); see(f, "b", "2") }, map[string]string{"b": "2"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			f := newTestFeed()
			tc.do(f)
			got := map[string]string{}
			for _, d := range f.Devices() {
				got[string(d.UID)] = d.ResourceVersion
				if same, ok := f.Device(string(d.UID)); !ok || same != d {
					t.Errorf("alone %s is %v", d.UID, same)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	g := newGraves(2)
	for _, uid := range []string{"a", "b", "b", "c"} {
		g.add(uid)
	}
	if g.has("a") || !g.has("b") || !g.has("c") || len(g.of) != 2 {
		t.Errorf("of three two are remembered: %v", g.of)
	}
}

// What nobody has looked at is not in the books, as long as it may be what a webhook is
// about to attach.
func TestTemplateDeviceWithoutOrigin(t *testing.T) {
	f := newTestFeed()
	d := &v1alpha1.GPUDevice{ObjectMeta: metav1.ObjectMeta{Name: "d", Namespace: "acme", UID: "a", ResourceVersion: "1", Labels: map[string]string{v1alpha1.LabelTemplateDevice: v1alpha1.ValueTrue}}}
	has := func() (ok bool) {
		f.Books(func(b *books.Books) { _, ok = b.Device("a") })
		return ok
	}
	f.Assume(d)
	if _, known := f.Device("a"); !known || has() {
		t.Errorf("without an origin it is known: %t, in the books: %t", known, has())
	}
	d = d.DeepCopy()
	d.ResourceVersion, d.Status.Origin = "2", &v1alpha1.Origin{Kind: v1alpha1.OriginTemplate}
	f.Assume(d)
	if !has() {
		t.Error("with an origin it is not in the books")
	}
}

// What cannot be read closes its node, and takes nothing away.
func TestNodeFrom(t *testing.T) {
	const (
		ready  = `{apiVersion: v1, kind: Node, metadata: {name: n1, labels: {zone: a}}, status: {allocatable: {nvidia.com/GH100_H200_SXM_141GB: "8", cpu: "4"}, conditions: [{type: Ready, status: "True"}]}}`
		report = `{apiVersion: gpuctl.dev/v1alpha1, kind: GPUNode, metadata: {name: n1}, spec: {functions: [{address: "0000:%s", id: "10de:2335", class: "0302", driver: vfio-pci, role: GPU}]}}`
	)
	tests := map[string]struct {
		node, gpunode string
		pods          []string
		sets          []string
		alive         bool
		want          func(t *testing.T, n *usage.Node)
	}{
		"none": {want: func(t *testing.T, n *usage.Node) {
			t.Helper()
			if n != nil {
				t.Errorf("got %+v", n)
			}
		}},
		"without an agent": {node: ready, want: is(usage.Node{})},
		"a report":         {node: ready, gpunode: fmt.Sprintf(report, "18:00.0"), alive: true, want: is(usage.Node{Host: &gpu.Host{}})},
		"of a silent one":  {node: ready, gpunode: fmt.Sprintf(report, "18:00.0"), want: is(usage.Node{Host: &gpu.Host{}, Silent: true})},
		"of which nothing can be read": {
			node: ready, gpunode: fmt.Sprintf(report, "nowhere"), alive: true, want: is(usage.Node{Facts: gpu.Node{NotReady: true}}),
		},
		"half a device": {
			node: `{apiVersion: v1, kind: Node, metadata: {name: n1}, status: {allocatable: {nvidia.com/X: 500m}}}`, want: is(usage.Node{Facts: gpu.Node{NotReady: true}}),
		},
		"with the plugin": {
			node: ready, pods: []string{pluginPod}, sets: []string{`{metadata: {name: plugin, namespace: gpus, uid: set}, spec: {template: {spec: {containers: [{image: "x/kubevirt-gpu-device-plugin:v1.4.0"}]}}}}`},
			want: is(usage.Node{Facts: gpu.Node{Plugin: gpu.Release{Major: 1, Minor: 4}}}),
		},
		"with a pod that says it is": {
			node: ready, pods: []string{pluginPod}, sets: []string{`{metadata: {name: plugin, namespace: tenant, uid: set}, spec: {template: {spec: {containers: [{image: "x/kubevirt-gpu-device-plugin:v1.4.0"}]}}}}`},
			want: is(usage.Node{}),
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			f := newTestFeed()
			f.nodes.alive["n1"] = tc.alive
			for _, pod := range tc.pods {
				f.podEvents().put(nil, (&pool{}).pod(decodeInto[corev1.Pod](t, pod)))
			}
			if tc.node != "" {
				f.nodeEvents().put(nil, stored(t, tc.node))
			}
			if tc.gpunode != "" {
				f.reportEvents().put(nil, stored(t, tc.gpunode))
			}
			for _, set := range tc.sets {
				f.pluginEvents().put(nil, heldDaemonSet(decodeInto[appsv1.DaemonSet](t, set)))
			}
			tc.want(t, f.nodes.of("n1"))
		})
	}
}

// is compares what is told of a node beside its Node.
func is(want usage.Node) func(*testing.T, *usage.Node) {
	return func(t *testing.T, got *usage.Node) {
		t.Helper()
		if got == nil || got.Facts.NotReady != want.Facts.NotReady || got.Facts.Plugin != want.Facts.Plugin || (got.Host == nil) != (want.Host == nil) || got.Silent != want.Silent {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
}

// stored is an object as a cache holds it.
func stored(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := decode(t, text)
	(&pool{}).trim(u)
	return u
}

func TestHierarchyHalts(t *testing.T) {
	tests := map[string]struct {
		status string
		want   bool
		err    bool
	}{
		"no status":         {status: `{}`},
		"no condition":      {status: `{conditions: []}`},
		"halted":            {status: `{conditions: [{type: BadConfiguration, status: "True"}, {type: ActivitiesHalted, status: "True"}]}`, want: true},
		"no longer":         {status: `{conditions: [{type: ActivitiesHalted, status: "False"}]}`},
		"conditions as map": {status: `{conditions: {}}`, want: true, err: true},
		"one as text":       {status: `{conditions: [x]}`, want: true, err: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := haltedBy(&manifest.Document{Object: decode(t, `{metadata: {name: hierarchy, namespace: a}, status: `+tc.status+`}`).Object})
			if got != tc.want || (err != nil) != tc.err {
				t.Errorf("halted is %t, %v", got, err)
			}
		})
	}
}

// Values that cannot be read are no release without a budget.
func TestReleaseFrom(t *testing.T) {
	tests := map[string]struct {
		values string
		refuse bool
	}{
		"a budget":     {values: `{resourceQuotas: {nvidia.com/X: 4}}`},
		"none":         {values: `{}`},
		"null":         {values: `null`},
		"a list":       {values: `[1]`, refuse: true},
		"a text":       {values: `resourceQuotas`, refuse: true},
		"an odd quota": {values: `{resourceQuotas: {nvidia.com/X: many}}`, refuse: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			d := manifest.Document{Object: stored(t, `{kind: HelmRelease, metadata: {name: tenant-a, namespace: tenant-root}, spec: {values: `+tc.values+`}}`).Object}
			root := tenant.Release{Namespace: "tenant-root", Name: "tenant-root"}
			tree := tenant.Build([]tenant.Namespace{{Name: "tenant-root"}, {Name: "tenant-a"}}, tenant.Cozystack([]tenant.Release{root, releaseFrom(&d)}), func(tenant.Namespace) bool { return true })
			if _, err := tree.Chain("tenant-a"); (err != nil) != tc.refuse {
				t.Errorf("refused: %v", err)
			}
		})
	}
}

// Another object of the same name, that took its place while nobody watched, comes as a
// change of the first.
func TestAnotherOfTheName(t *testing.T) {
	f := newTestFeed()
	device := func(uid, rv string) *v1alpha1.GPUDevice {
		return &v1alpha1.GPUDevice{ObjectMeta: metav1.ObjectMeta{Name: "d", Namespace: "acme", UID: types.UID(uid), ResourceVersion: rv}}
	}
	e := f.deviceEvents()
	h := f.handler(&e)
	for _, step := range []struct {
		what    string
		do      func()
		changed bool
		want    []types.UID
	}{
		{"one comes", func() { h.OnAdd(device("a", "1"), true) }, true, []types.UID{"a"}},
		{"another takes its place", func() { h.OnUpdate(device("a", "1"), device("b", "2")) }, true, []types.UID{"b"}},
		{"a resync", func() { h.OnUpdate(device("b", "2"), device("b", "2")) }, false, []types.UID{"b"}},
		{"it is found gone", func() { h.OnDelete(toolscache.DeletedFinalStateUnknown{Key: "acme/d", Obj: device("b", "2")}) }, true, nil},
	} {
		step.do()
		changed := len(f.changed) == 1
		if changed {
			<-f.changed
		}
		var got []types.UID
		for _, d := range f.Devices() {
			got = append(got, d.UID)
		}
		if diff := cmp.Diff(step.want, got); diff != "" || changed != step.changed {
			t.Errorf("%s: changed is %t (-want +got):\n%s", step.what, changed, diff)
		}
	}
}

// A device that was assumed, and deleted before any watch saw it, is found out.
func TestUnseenDevices(t *testing.T) {
	device := func(name, uid string) *v1alpha1.GPUDevice {
		return &v1alpha1.GPUDevice{
			TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "GPUDevice"},
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "acme", UID: types.UID(uid), ResourceVersion: "1"},
		}
	}
	options := CacheOptions()
	f := newTestFeed()
	f.client.dynamic = fake.NewSimpleDynamicClient(options.Scheme, device("there", "there"), device("anew", "anew"))
	long := time.Now().Add(-time.Hour)
	for uid, at := range map[string]time.Time{"there": long, "gone": long, "replaced": long, "young": time.Now(), "seen": {}} {
		name := uid
		if uid == "replaced" {
			name = "anew"
		}
		f.putDevice(known{device: device(name, uid), assumed: at})
	}
	f.buryUnseen(t.Context())
	var left []string
	for _, d := range f.Devices() {
		left = append(left, string(d.UID))
	}
	if diff := cmp.Diff([]string{"seen", "there", "young"}, left); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// What cannot be read is said once, for as long as it is so.
func TestUnreadableIsSaidOnce(t *testing.T) {
	f := newTestFeed()
	var said []string
	f.o.Log = funcr.New(func(_, args string) { said = append(said, args) }, funcr.Options{})
	for _, err := range []error{errors.New("a"), errors.New("a"), errors.New("b"), nil, errors.New("b")} {
		f.unreadable("Node n1", err)
	}
	if len(said) != 3 {
		t.Errorf("it is said %d times: %q", len(said), said)
	}
}
