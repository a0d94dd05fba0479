package books

import (
	"fmt"
	"math"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/internal/tenant"
	"github.com/gpuctl/gpuctl/internal/usage"
	"github.com/gpuctl/gpuctl/test/often"
)

// facts are what books were told.
type facts struct {
	budget  int64
	listed  []gpu.ResourceName
	table   gpu.Table
	classes map[string]Class
	nodes   map[string]usage.Node
	devices map[string]Device
	vmis    map[string]usage.VMI
	pods    map[string]usage.Pod
}

// told makes books of the facts, in one go.
func (f *facts) told() *Books {
	b := New()
	b.SetTree(tree(f.budget))
	b.SetNames(f.listed, nil)
	b.SetTable(f.table)
	for _, c := range f.classes {
		b.PutClass(c)
	}
	for _, n := range f.nodes {
		b.PutNode(n)
	}
	for _, d := range f.devices {
		b.PutDevice(d)
	}
	for _, v := range f.vmis {
		b.PutVMI(v)
	}
	for _, p := range f.pods {
		b.PutPod(p)
	}
	return b
}

// TestBooksAreAsIfMadeAnew changes facts one by one, looking now and then: what
// follows is what books say that are told the last facts only.
func TestBooksAreAsIfMadeAnew(t *testing.T) {
	often.Check(t, func(t *rapid.T) {
		f := facts{
			budget: 8, classes: map[string]Class{}, nodes: map[string]usage.Node{}, devices: map[string]Device{},
			vmis: map[string]usage.VMI{}, pods: map[string]usage.Pod{},
		}
		b := f.told()
		for range rapid.IntRange(1, 16).Draw(t, "changes") {
			change(t, &f, b)
			if rapid.IntRange(0, 2).Draw(t, "look") == 0 {
				b.Snapshot()
			}
		}
		same(t, f.told(), b)
	})
}

func same(t *rapid.T, want, got *Books) {
	if !reflect.DeepEqual(want.Snapshot(), got.Snapshot()) {
		t.Fatalf("snapshots (-anew +kept):\n%s", cmp.Diff(shown(want), shown(got)))
	}
	if diff := cmp.Diff(want.Names().All(), got.Names().All()); diff != "" {
		t.Fatalf("names (-anew +kept):\n%s", diff)
	}
	for _, level := range []string{"acme", "acme-dev", "acme-ops", "mallory"} {
		for _, k := range []tenant.Key{{Kind: tenant.Resource, Name: string(h200)}, {Kind: tenant.Resource, Name: string(l40s)}, {Kind: tenant.Class, Name: "h200"}, {Kind: tenant.Total}} {
			if w, g := want.ordered.Of(level, k), got.ordered.Of(level, k); w != g {
				t.Fatalf("%s has ordered %d of %s, want %d", level, g, k, w)
			}
			if w, g := want.placed.Of(level, k), got.placed.Of(level, k); w != g {
				t.Fatalf("%s has placed %d of %s, want %d", level, g, k, w)
			}
		}
	}
}

func shown(b *Books) (out []string) {
	for d := range b.Snapshot().Devices() {
		out = append(out, fmt.Sprintf("%+v", d))
	}
	for _, node := range []string{"n1", "n2", "n3"} {
		for _, r := range []gpu.ResourceName{h200, l40s} {
			served, held := b.Snapshot().Units(node, r)
			out = append(out, fmt.Sprintf("%s %s: %d held of %d, %d free", node, r, held, served, b.Snapshot().Free(node, r)))
		}
	}
	return out
}

// change draws a change, and tells both.
func change(t *rapid.T, f *facts, b *Books) {
	namespace := rapid.SampledFrom([]string{"acme-dev", "acme-ops", "mallory", "nowhere"})
	nodeName := rapid.SampledFrom([]string{"n1", "n2", "n3"})
	uid := rapid.SampledFrom([]string{"a", "b", "c", "d"})
	few := rapid.Int64Range(0, 4)
	gone := rapid.IntRange(0, 3).Draw(t, "gone") == 0
	switch rapid.IntRange(0, 8).Draw(t, "what") {
	case 0:
		f.budget = few.Draw(t, "budget")
		b.SetTree(tree(f.budget))
	case 1:
		f.listed = rapid.SampledFrom([][]gpu.ResourceName{nil, {l40s}, {h200, l40s}}).Draw(t, "listed")
		b.SetNames(f.listed, nil)
	case 2:
		f.table = gpu.Table{Set: true, Entries: rapid.SampledFrom([][]gpu.Entry{nil, {{List: gpu.ListPCI, Selector: "10DE:26B9", Name: l40s}}}).Draw(t, "table")}
		b.SetTable(f.table)
	case 3:
		c := Class{Name: "h200", Resource: rapid.SampledFrom([]gpu.ResourceName{h200, l40s}).Draw(t, "resource"), MaxCount: 8}
		if f.classes[c.Name] = c; gone {
			delete(f.classes, c.Name)
			b.DropClass(c.Name)
		} else {
			b.PutClass(c)
		}
	case 4, 5:
		name := nodeName.Draw(t, "node")
		n := node(name, 2*few.Draw(t, "served"))
		n.Facts.NotReady = rapid.Bool().Draw(t, "not ready")
		if f.nodes[name] = n; gone {
			delete(f.nodes, name)
			b.DropNode(name)
		} else {
			b.PutNode(n)
		}
	case 6:
		changeDevice(t, f, b, gone)
	case 7:
		v := usage.VMI{UID: uid.Draw(t, "vmi"), Namespace: namespace.Draw(t, "namespace"), ActivePods: map[string]string{uid.Draw(t, "pod"): "n1"}}
		if old, ok := f.vmis[v.UID]; ok {
			v.Namespace = old.Namespace
		}
		if f.vmis[v.UID] = v; gone {
			delete(f.vmis, v.UID)
			b.DropVMI(v.Namespace, v.UID)
		} else {
			b.PutVMI(v)
		}
	default:
		p := pod(uid.Draw(t, "pod"), nodeName.Draw(t, "node"), few.Draw(t, "units"))
		p.Namespace = namespace.Draw(t, "namespace")
		if old, ok := f.pods[p.UID]; ok {
			p.Namespace = old.Namespace
		}
		if f.pods[p.UID] = p; gone {
			delete(f.pods, p.UID)
			b.DropPod(p.Namespace, p.UID)
		} else {
			b.PutPod(p)
		}
	}
}

func changeDevice(t *rapid.T, f *facts, b *Books, gone bool) {
	d := device(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "uid"), rapid.Int64Range(1, 3).Draw(t, "units"))
	d.Namespace = rapid.SampledFrom([]string{"acme-dev", "acme-ops", "nowhere"}).Draw(t, "namespace")
	if old, ok := f.devices[d.UID]; ok {
		d.Namespace = old.Namespace
	}
	if rapid.Bool().Draw(t, "placed") {
		d = on(rapid.SampledFrom([]string{"n1", "n2"}).Draw(t, "on"), d)
		d.Resource = rapid.SampledFrom([]gpu.ResourceName{h200, h200, l40s}).Draw(t, "under")
		d.Lost = rapid.Bool().Draw(t, "lost")
		if rapid.Bool().Draw(t, "attached") {
			d = attached(rapid.SampledFrom([]string{"a", "b"}).Draw(t, "vmi"), d)
		}
	}
	if f.devices[d.UID] = d; gone {
		delete(f.devices, d.UID)
		b.DropDevice(d.UID)
	} else {
		b.PutDevice(d)
	}
}

// TestWhatIsPutTwice: the later counts, wherever it is.
func TestWhatIsPutTwice(t *testing.T) {
	b := filled(-1, on("n1", device("a", 2)))
	b.Snapshot()
	moved := on("n2", device("a", 3))
	moved.Namespace = "acme-ops"
	b.PutDevice(moved)
	if got := []int64{b.Snapshot().Free("n1", h200), b.Snapshot().Free("n2", h200)}; !reflect.DeepEqual(got, []int64{8, 5}) {
		t.Errorf("free: %v", got)
	}
	key := tenant.Key{Kind: tenant.Resource, Name: string(h200)}
	if got := []int64{b.placed.Of("acme-dev", key), b.placed.Of("acme-ops", key), b.placed.Of("acme", key)}; !reflect.DeepEqual(got, []int64{0, 3, 3}) {
		t.Errorf("placed: %v", got)
	}
	if got, ok := b.Device("a"); !ok || got.Namespace != "acme-ops" {
		t.Errorf("got %+v", got)
	}
	b.DropDevice("a")
	b.DropDevice("a")
	if _, ok := b.Device("a"); ok || b.placed.Of("acme", key) != 0 || b.ordered.Of("acme", key) != 0 {
		t.Error("it is still there")
	}
}

// TestRawUseIsFollowed: what pods take is not free, and what devices cover is.
func TestRawUseIsFollowed(t *testing.T) {
	b := filled(-1, attached("v", on("n1", device("a", 4))))
	b.PutVMI(usage.VMI{UID: "v", Namespace: "acme-dev", ActivePods: map[string]string{"p": "n1"}})
	b.PutPod(pod("p", "n1", 4))
	b.PutPod(pod("raw", "n1", 1))
	if got := b.Snapshot().Free("n1", h200); got != 3 {
		t.Errorf("%d are free, want 3", got)
	}
	b.PutDevice(lost(attached("v", on("n1", device("a", 4)))))
	if got, _ := b.Snapshot().Device("a"); got.Running != 4 || b.Snapshot().Free("n1", h200) != 3 {
		t.Errorf("lost: %+v, %d are free", got, b.Snapshot().Free("n1", h200))
	}
	b.DropPod("acme-dev", "p")
	b.DropPod("acme-dev", "raw")
	if got := b.Snapshot().Free("n1", h200); got != 8 {
		t.Errorf("%d are free, want 8", got)
	}
}

// TestOnlyGPUsAreServed: what else a node has is nobody's business, and the table
// may tie a name to a card.
func TestOnlyGPUsAreServed(t *testing.T) {
	const own gpu.ResourceName = "nvidia.com/OURS"
	id := gpu.NVIDIA(0x2335)
	n := node("n1", 8)
	n.Facts.Allocatable[own] = 8
	n.Host = &gpu.Host{Functions: []gpu.Function{{
		Address: gpu.Address{Bus: 1}, ID: id, Class: 0x030200, Driver: "vfio-pci", Group: gpu.InGroup(1), VFIONode: gpu.Present,
	}}}
	b := New()
	b.PutNode(n)
	units := func(r gpu.ResourceName) int64 {
		served, _ := b.Snapshot().Units("n1", r)
		return served
	}
	if got := []int64{units("cpu"), units(own)}; !reflect.DeepEqual(got, []int64{0, 8}) {
		t.Errorf("served: %v", got)
	}
	for _, tie := range []struct {
		id   gpu.ID
		want int64
	}{{gpu.NVIDIA(0x26b9), 0}, {id, 1}} {
		b.SetTable(gpu.Table{Set: true, Entries: []gpu.Entry{{List: gpu.ListPCI, Selector: tie.id.String(), Name: own}}})
		if got := units(own); got != tie.want {
			t.Errorf("served %d, %d cards of %s are healthy", got, tie.want, tie.id)
		}
	}
}

// TestHugePodLeavesBudgetsAsTheyWere: a pod may ask for the largest number there is, and
// never run. When it is gone, budgets are what they were before it.
func TestHugePodLeavesBudgetsAsTheyWere(t *testing.T) {
	b := filled(8, on("n1", device("a", 6)))
	b.Snapshot()
	b.PutPod(pod("huge", "", math.MaxInt64))
	b.Snapshot()
	b.DropPod("acme-dev", "huge")
	b.Snapshot()
	key := tenant.Key{Kind: tenant.Resource, Name: string(h200)}
	if got := []int64{b.ordered.Of("acme", key), b.placed.Of("acme", key)}; !cmp.Equal(got, []int64{6, 6}) {
		t.Errorf("ordered and placed: %v, want 6 and 6", got)
	}
	if err := b.Admit(Order{Object: "o", Namespace: "acme-ops", Class: "h200", Count: 4}); code(t, err) != "GPU0611" {
		t.Errorf("4 more than 6 of a budget of 8: got %v", err)
	}
}

// TestHugePodLeavesNodesAsTheyWere: the same of what pods take of nodes.
func TestHugePodLeavesNodesAsTheyWere(t *testing.T) {
	b := filled(-1)
	b.PutPod(pod("raw", "n1", 4))
	b.Snapshot()
	huge := pod("huge", "n1", math.MaxInt64)
	huge.Namespace = "mallory"
	b.PutPod(huge)
	b.Snapshot()
	b.DropPod("mallory", "huge")
	if got := b.Snapshot().Free("n1", h200); got != 4 {
		t.Errorf("a pod has 4 of 8: %d are free", got)
	}
}

// TestBudgetHoldsForBothSpellings: a budget that is written under a DeviceClass's own name
// is the one of its extended resource name.
func TestBudgetHoldsForBothSpellings(t *testing.T) {
	b := filled(-1)
	b.SetTree(tenant.Build([]tenant.Namespace{{Name: "acme"}}, tenant.Labels([]tenant.Quota{{
		Namespace: "acme", Name: "gpus", Hard: map[string]string{"requests.deviceclass.resource.kubernetes.io/gpu": "2"},
	}}, false), func(tenant.Namespace) bool { return true }))
	b.SetNames(nil, []usage.DeviceClass{{Name: "gpu", Extended: h200, GPU: true}})
	if err := b.Admit(Order{Object: "o", Namespace: "acme", Class: "h200", Count: 4}); code(t, err) != "GPU0611" {
		t.Errorf("4 of a budget of 2: got %v", err)
	}
}

// TestNamesSourcesAreAsIfMadeAnew: names tell why they count, however books came to them.
func TestNamesSourcesAreAsIfMadeAnew(t *testing.T) {
	kept := filled(-1)
	kept.Names()
	kept.PutDevice(on("n1", device("a", 1)))
	anew := filled(-1, on("n1", device("a", 1)))
	if diff := cmp.Diff(anew.Names().Sources(h200), kept.Names().Sources(h200)); diff != "" {
		t.Errorf("(-anew +kept):\n%s", diff)
	}
}

// TestNodeThatSaysNothingNewCostsNothing: kubelet writes each node every few minutes, and
// that changes no names.
func TestNodeThatSaysNothingNewCostsNothing(t *testing.T) {
	cost := func(nodes int) float64 {
		b := filled(-1)
		for i := range nodes {
			b.PutNode(node(fmt.Sprintf("node-%d", i), 8))
		}
		b.Snapshot()
		n := node("n1", 8)
		return testing.AllocsPerRun(10, func() { b.PutNode(n); b.Snapshot() })
	}
	if few, many := cost(10), cost(1000); many > 4*few {
		t.Errorf("%.0f allocations with 10 nodes, %.0f with 1000", few, many)
	}
}

// TestNamesGoWithTheLastDevice: a name that counts for a device only is none any more when
// the device is gone, and so is that of a DeviceClass which has it.
func TestNamesGoWithTheLastDevice(t *testing.T) {
	b := New()
	b.SetTree(tree(-1))
	b.SetNames(nil, []usage.DeviceClass{{Name: "x", Extended: h200}})
	b.PutDevice(on("n1", device("a", 1)))
	b.Names()
	b.DropDevice("a")
	if got := b.Names().All(); len(got) > 0 {
		t.Errorf("%v count for nothing", got)
	}
}
