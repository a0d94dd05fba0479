package usage

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/test/often"
)

var (
	namespaces = rapid.SampledFrom([]string{"acme", "acme", "mallory"})
	nodeNames  = rapid.SampledFrom([]string{"n1", "n1", "n2", ""})
	resources  = rapid.SampledFrom([]gpu.ResourceName{h200, h200, own, dra, "cpu"})
	vmiUIDs    = rapid.SampledFrom([]string{"v", "w", "x", ""})
	few        = rapid.Int64Range(0, 4)
)

// pods draws one that may be anything: a launcher, a doppelganger, a forged one.
func pods(t *rapid.T, uid string) Pod {
	p := Pod{UID: uid, Namespace: namespaces.Draw(t, "namespace"), Node: nodeNames.Draw(t, "node"), Done: rapid.IntRange(0, 4).Draw(t, "done") == 0}
	for range rapid.IntRange(0, 2).Draw(t, "containers") {
		p.Containers = append(p.Containers, Requests{resources.Draw(t, "name"): few.Draw(t, "units")})
	}
	for range rapid.IntRange(0, 2).Draw(t, "init") {
		p.Init = append(p.Init, Init{Requests{resources.Draw(t, "name"): few.Draw(t, "units")}, rapid.Bool().Draw(t, "sidecar")})
	}
	return p
}

func devices(t *rapid.T, uid string) Device {
	d := Device{
		UID: uid, Namespace: namespaces.Draw(t, "namespace"), Class: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "class"),
		Resource: rapid.SampledFrom([]gpu.ResourceName{h200, h200, own}).Draw(t, "name"), Units: 1 + few.Draw(t, "units"),
		Node: nodeNames.Draw(t, "node"), VMI: vmiUIDs.Draw(t, "vmi"),
	}
	d.Lost = d.Node != "" && rapid.IntRange(0, 3).Draw(t, "lost") == 0
	return d
}

// snapshots draws clusters in which any VMI lists any pod.
func snapshots(t *rapid.T) Snapshot {
	s := Snapshot{Names: EffectiveNames(NameFacts{Listed: []gpu.ResourceName{h200, own}, DeviceClasses: []DeviceClass{{Name: "vfio", Extended: h200}}})}
	for i := range rapid.IntRange(0, 6).Draw(t, "devices") {
		s.Devices = append(s.Devices, devices(t, "d"+strconv.Itoa(i)))
	}
	for i := range rapid.IntRange(0, 6).Draw(t, "pods") {
		s.Pods = append(s.Pods, pods(t, "p"+strconv.Itoa(i)))
	}
	for _, uid := range []string{"v", "w", "x"} {
		v := VMI{UID: uid, Namespace: namespaces.Draw(t, "namespace"), ActivePods: map[string]string{}}
		for i := range s.Pods {
			if rapid.IntRange(0, 2).Draw(t, "lists") == 0 {
				v.ActivePods[s.Pods[i].UID] = s.Pods[i].Node
			}
		}
		s.VMIs = append(s.VMIs, v)
	}
	return s
}

// account adds up in another way: what belongs to a VMI is as much as its devices
// or its launchers are, whichever is more, and the rest is as it is.
type account struct{ devices, launchers map[any]int64 }

func (a account) total(key func(any) string) map[string]int64 {
	out := map[string]int64{}
	for k := range a.devices {
		out[key(k)] += max(a.devices[k], a.launchers[k])
	}
	for k, units := range a.launchers {
		if _, both := a.devices[k]; !both {
			out[key(k)] += units
		}
	}
	maps.DeleteFunc(out, func(_ string, units int64) bool { return units == 0 })
	return out
}

type owner struct{ namespace, node, vmi, single, name string }

// of adds all of s up; with perNode only what is on nodes, each node for itself.
func accountOf(s *Snapshot, perNode bool) account {
	a := account{map[any]int64{}, map[any]int64{}}
	for i := range s.Devices {
		d := &s.Devices[i]
		if perNode && (d.Node == "" || d.Lost) {
			continue
		}
		o := owner{namespace: d.Namespace, vmi: d.VMI, name: string(d.Resource)}
		if d.VMI == "" {
			o.single = d.UID
		}
		if perNode {
			o.node = d.Node
		}
		a.devices[o] += d.Units
	}
	for i := range s.Pods {
		p := &s.Pods[i]
		if p.Done || perNode && p.Node == "" {
			continue
		}
		o := owner{namespace: p.Namespace, single: p.UID}
		for _, v := range slices.Backward(s.VMIs) { // by UID: the smallest is the last to win
			if _, lists := v.ActivePods[p.UID]; lists && v.Namespace == p.Namespace {
				o.vmi, o.single = v.UID, ""
			}
		}
		if perNode {
			o.node = p.Node
		}
		for _, name := range []gpu.ResourceName{h200, dra, own} {
			o.name = string(name)
			if name == dra {
				o.name = string(h200)
			}
			if units := p.Request(name); units > 0 {
				a.launchers[o] += units
			}
		}
	}
	return a
}

func TestEachUnitCountsOnce(t *testing.T) {
	often.Check(t, func(t *rapid.T) {
		s := snapshots(t)
		want := accountOf(&s, false).total(func(k any) string { return k.(owner).namespace + " " + k.(owner).name })
		got := map[string]int64{}
		for namespace, amounts := range s.BudgetUse() {
			for _, a := range amounts {
				got[namespace+" "+string(a.Resource)] += a.Units
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("budgets (-want +got):\n%s", diff)
		}
		want = accountOf(&s, true).total(func(k any) string { return k.(owner).node + " " + k.(owner).name })
		got = map[string]int64{}
		for node, taken := range s.CapacityUse() {
			for name, x := range taken {
				got[node+" "+string(name)] = x.Held + x.Raw
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("nodes (-want +got):\n%s", diff)
		}
	})
}

func TestUseIsDevicesAndRaw(t *testing.T) {
	often.Check(t, func(t *rapid.T) {
		s := snapshots(t)
		var devices, raw, use int64
		for i := range s.Devices {
			devices += s.Devices[i].Units
		}
		for _, r := range s.BudgetRaw() {
			raw += r.Units
		}
		for _, amounts := range s.BudgetUse() {
			for _, a := range amounts {
				use += a.Units
			}
		}
		if use != devices+raw {
			t.Fatalf("%d in use, of devices %d, raw %d", use, devices, raw)
		}
		var capacityRaw int64
		for _, r := range s.CapacityRaw() {
			capacityRaw += r.Units
		}
		if capacityRaw < raw { // it has fewer devices to cover launchers
			t.Fatalf("raw use of nodes %d is less than that of budgets %d", capacityRaw, raw)
		}
	})
}

func TestOrderOfInputDoesNotMatter(t *testing.T) {
	often.Check(t, func(t *rapid.T) {
		s := snapshots(t)
		other := Snapshot{Names: s.Names, Devices: slices.Clone(s.Devices), VMIs: slices.Clone(s.VMIs), Pods: slices.Clone(s.Pods)}
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		random.Shuffle(len(other.Devices), func(i, j int) { other.Devices[i], other.Devices[j] = other.Devices[j], other.Devices[i] })
		random.Shuffle(len(other.VMIs), func(i, j int) { other.VMIs[i], other.VMIs[j] = other.VMIs[j], other.VMIs[i] })
		random.Shuffle(len(other.Pods), func(i, j int) { other.Pods[i], other.Pods[j] = other.Pods[j], other.Pods[i] })
		told := func(s *Snapshot) []any {
			return []any{s.BudgetUse(), s.CapacityUse(), s.BudgetRaw(), s.CapacityRaw(), s.Running()}
		}
		if diff := cmp.Diff(told(&s), told(&other)); diff != "" {
			t.Fatalf("(-as given +shuffled):\n%s", diff)
		}
	})
}

// TestForgedPodsHelpNobody adds a pod that any VMI may list. No use is less than it
// was, and that of other namespaces is the same.
func TestForgedPodsHelpNobody(t *testing.T) {
	often.Check(t, func(t *rapid.T) {
		s := snapshots(t)
		forged := pods(t, "forged")
		after := Snapshot{Names: s.Names, Devices: s.Devices, VMIs: slices.Clone(s.VMIs), Pods: append(slices.Clone(s.Pods), forged)}
		for i := range after.VMIs {
			if v := &after.VMIs[i]; rapid.Bool().Draw(t, "listed") {
				v.ActivePods = maps.Clone(v.ActivePods)
				v.ActivePods[forged.UID] = forged.Node
			}
		}
		was, is := s.BudgetUse(), after.BudgetUse()
		for namespace, amounts := range is {
			if diff := cmp.Diff(was[namespace], amounts); namespace != forged.Namespace && diff != "" {
				t.Fatalf("%s (-before +after):\n%s", namespace, diff)
			}
		}
		for namespace, amounts := range was {
			for _, a := range amounts {
				more := func(b gpu.Amount) bool { return b.Resource == a.Resource && b.Class == a.Class && b.Units >= a.Units }
				if !slices.ContainsFunc(is[namespace], more) {
					t.Fatalf("%s had %v and has %v", namespace, a, is[namespace])
				}
			}
		}
		nodes := after.CapacityUse()
		for node, taken := range s.CapacityUse() {
			for name, x := range taken {
				if y := nodes[node][name]; y.Held != x.Held || y.Raw < x.Raw || node != forged.Node && y != x {
					t.Fatalf("of %s of %s was taken %v, and now %v", name, node, x, y)
				}
			}
		}
	})
}

// TestHealedDevicesCountOnce heals all lost devices: each takes its units, and the
// raw use of its node is less by what it had under it. Healing some of them leaves no
// more than that.
func TestHealedDevicesCountOnce(t *testing.T) {
	often.Check(t, func(t *rapid.T) {
		s := snapshots(t)
		was, under := s.CapacityUse(), s.Running()
		want := map[string]map[gpu.ResourceName]Taken{}
		for node, taken := range was {
			want[node] = maps.Clone(taken)
		}
		all := rapid.Bool().Draw(t, "all")
		for i := range s.Devices {
			d := &s.Devices[i]
			if !d.Lost || !all && rapid.Bool().Draw(t, "stays lost") {
				continue
			}
			d.Lost = false
			if want[d.Node] == nil {
				want[d.Node] = map[gpu.ResourceName]Taken{}
			}
			x := want[d.Node][d.Resource]
			want[d.Node][d.Resource] = Taken{Held: x.Held + d.Units, Raw: x.Raw - under[d.UID]}
		}
		for node, taken := range s.CapacityUse() {
			for name, is := range taken {
				if x := want[node][name]; is.Held != x.Held || is.Raw > x.Raw || all && is.Raw != x.Raw {
					t.Fatalf("of %s of %s is taken %v, want %v", name, node, is, x)
				}
			}
		}
	})
}

// TestServedIsBounded breaks one more function: a node never serves more for it,
// and never more than its allocatable.
func TestServedIsBounded(t *testing.T) {
	often.Check(t, func(t *rapid.T) {
		n := Node{Host: &gpu.Host{}, Facts: gpu.Node{Plugin: rapid.SampledFrom([]gpu.Release{{}, {Major: 1, Minor: 4}, {Major: 1, Minor: 2, Patch: 1}}).Draw(t, "plugin")}}
		n.Facts.Allocatable = map[gpu.ResourceName]int64{}
		for _, name := range []gpu.ResourceName{h200, own, "nvidia.com/2335", "nvidia.com/GA102GL_A10", a10, "nvidia.com/MINE"} {
			n.Facts.Allocatable[name] = max(0, few.Draw(t, "allocatable")-1)
		}
		for bus := range rapid.IntRange(1, 6).Draw(t, "cards") {
			f := card(uint8(bus))
			f.ID.Device = rapid.SampledFrom([]gpu.DeviceID{0x2335, 0x2335, 0x2236, 0x7777}).Draw(t, "id")
			f.Driver = rapid.SampledFrom([]gpu.Driver{"vfio-pci", "vfio-pci", "nvidia", ""}).Draw(t, "driver")
			f.Group = gpu.InGroup(rapid.IntRange(0, 5).Draw(t, "group"))
			f.MdevTypes = []gpu.MdevType{{Name: "NVIDIA A10-12Q", Available: rapid.IntRange(-1, 2).Draw(t, "room")}}
			n.Host.Functions = append(n.Host.Functions, f)
			n.Host.Mdevs = append(n.Host.Mdevs, gpu.Mdev{TypeName: "NVIDIA A10-12Q", Parent: f.Address})
		}
		table := gpu.Table{Entries: []gpu.Entry{pci("10de:2335", own)}}
		was := Served(&n, table)
		n.Host.Functions[rapid.IntRange(0, len(n.Host.Functions)-1).Draw(t, "broken")].OffBus = true
		is := Served(&n, table)
		for name, allocatable := range n.Facts.Allocatable {
			if was.Units[name] > allocatable || is.Units[name] > was.Units[name] || is.Units[name] < 0 {
				t.Fatalf("%s: allocatable %d, served %d, with a broken card %d", name, allocatable, was.Units[name], is.Units[name])
			}
		}
	})
}
