package books

import (
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/internal/tenant"
	"github.com/gpuctl/gpuctl/internal/usage"
	"github.com/gpuctl/gpuctl/test/often"
)

// TestRoundHoldsWhileNodesChange is as TestEveryPartOfARoundHolds, with nodes that serve
// more and less, VMs that run under lost devices, and each write of one device.
func TestRoundHoldsWhileNodesChange(t *testing.T) {
	often.Check(t, func(t *rapid.T) {
		const budget = 14
		total := tenant.Key{Kind: tenant.Total}
		b := filled(budget)
		served := map[string]int64{}
		serve := func(name string) {
			served[name] = rapid.Int64Range(0, 8).Draw(t, "served")
			b.PutNode(node(name, served[name]))
		}
		for _, name := range []string{"n1", "n2", "n3"} {
			serve(name)
		}
		for i := range rapid.IntRange(1, 7).Draw(t, "devices") {
			uid := string(rune('a' + i))
			d := device(uid, rapid.Int64Range(1, 4).Draw(t, "units"))
			name := rapid.SampledFrom([]string{"", "n1", "n2", "n3"}).Draw(t, "node")
			if free := b.Snapshot().Free(name, h200); name != "" && b.placed.Of("acme", total)+d.Units <= budget {
				d = on(name, d)
				if rapid.Bool().Draw(t, "attached") {
					d = attached("v"+uid, d)
				}
				if d.Attached() && rapid.Bool().Draw(t, "runs") {
					b.PutVMI(usage.VMI{UID: d.VMI, Namespace: d.Namespace, ActivePods: map[string]string{"p" + uid: name}})
					b.PutPod(pod("p"+uid, name, rapid.Int64Range(1, d.Units).Draw(t, "running")))
				}
				d.Lost = free < d.Units || rapid.IntRange(0, 2).Draw(t, "lost") == 0
			}
			b.PutDevice(d)
		}
		for range rapid.IntRange(1, 3).Draw(t, "rounds") {
			if rapid.Bool().Draw(t, "change") {
				serve(rapid.SampledFrom([]string{"n1", "n2", "n3"}).Draw(t, "changed"))
			}
			most := map[string]int64{}
			for name := range served {
				_, held := b.Snapshot().Units(name, h200)
				most[name] = max(served[name], held)
			}
			before := shown(b)
			for _, w := range draws(t, b) {
				d, ok := b.Device(w.UID)
				if !ok || rapid.IntRange(0, 3).Draw(t, "void") == 0 {
					continue
				}
				d.Node, d.Resource, d.Lost = w.Node, w.Resource, w.Lost
				b.PutDevice(d)
				if used := b.placed.Of("acme", total); used > budget {
					t.Fatalf("acme may have %d and has %d", budget, used)
				}
				for name, units := range most {
					if _, held := b.Snapshot().Units(name, h200); held > units {
						t.Fatalf("%s serves %d and holds %d after %+v: %v", name, served[name], held, w, before)
					}
				}
			}
		}
	})
}

// TestBooksAgreeWithUsage changes facts one by one, much of it about one node and one
// VMI: what follows is what usage says of the last facts, which has no increments.
func TestBooksAgreeWithUsage(t *testing.T) {
	const own, dra gpu.ResourceName = "nvidia.com/OURS", "deviceclass.resource.kubernetes.io/x"
	names := []gpu.ResourceName{h200, l40s, own, dra}
	often.Check(t, func(t *rapid.T) {
		f := facts{
			budget: 8, classes: map[string]Class{}, nodes: map[string]usage.Node{}, devices: map[string]Device{},
			vmis: map[string]usage.VMI{}, pods: map[string]usage.Pod{},
		}
		b := f.told()
		one := func(label string, of ...string) string { return rapid.SampledFrom(of).Draw(t, label) }
		name := func() gpu.ResourceName { return rapid.SampledFrom(names).Draw(t, "name") }
		few := func(label string) int64 { return rapid.Int64Range(0, 4).Draw(t, label) }
		for range rapid.IntRange(1, 24).Draw(t, "changes") {
			gone := rapid.IntRange(0, 4).Draw(t, "gone") == 0
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0:
				b.SetNames(nil, rapid.SampledFrom([][]usage.DeviceClass{nil, {{Name: "x", Extended: h200}}, {{Name: "x", Extended: own, GPU: true}}, {{Name: "x", GPU: true}}}).Draw(t, "claimable"))
			case 1:
				f.table = gpu.Table{Set: true, Entries: rapid.SampledFrom([][]gpu.Entry{nil, {{List: gpu.ListPCI, Selector: "10DE:26B9", Name: own}}, {{List: gpu.ListPCI, Selector: "15B3:26B9", Name: own}}}).Draw(t, "table")}
				b.SetTable(f.table)
			case 2:
				c := Class{Name: one("class", "h200", "other"), Resource: name(), MaxCount: 8}
				if f.classes[c.Name] = c; gone {
					delete(f.classes, c.Name)
					b.DropClass(c.Name)
				} else {
					b.PutClass(c)
				}
			case 3:
				n := node(one("node", "n1", "n2"), 2*few("served"))
				n.Facts.Allocatable[own] = few("own")
				if f.nodes[n.Facts.Name] = n; gone {
					delete(f.nodes, n.Facts.Name)
					b.DropNode(n.Facts.Name)
				} else {
					b.PutNode(n)
				}
			case 4, 5, 6:
				d := device(one("uid", "a", "b", "c"), 1+few("units"))
				d.Class, d.Namespace = one("class", "h200", "other"), one("namespace", "acme-dev", "acme-dev", "acme-ops")
				if rapid.IntRange(0, 3).Draw(t, "placed") > 0 {
					d = on(one("on", "n1", "n1", "n2", "n9"), d)
					d.Resource, d.Lost = name(), rapid.Bool().Draw(t, "lost")
					if rapid.IntRange(0, 2).Draw(t, "attached") > 0 {
						d = attached(one("vmi", "v", "w"), d)
					}
				}
				if f.devices[d.UID] = d; gone {
					delete(f.devices, d.UID)
					b.DropDevice(d.UID)
				} else {
					b.PutDevice(d)
				}
			case 7:
				v := usage.VMI{UID: one("vmi", "v", "w"), Namespace: "acme-dev", ActivePods: map[string]string{"p": "n1", "q": "n1"}}
				if f.vmis[v.UID] = v; gone {
					delete(f.vmis, v.UID)
					b.DropVMI(v.Namespace, v.UID)
				} else {
					b.PutVMI(v)
				}
			default:
				p := pod(one("pod", "p", "q", "r"), one("on", "n1", "n1", "n2", ""), 0)
				p.Containers = []usage.Requests{{name(): few("units")}}
				if f.pods[p.UID] = p; gone {
					delete(f.pods, p.UID)
					b.DropPod(p.Namespace, p.UID)
				} else {
					b.PutPod(p)
				}
			}
			if rapid.Bool().Draw(t, "look") {
				b.Snapshot()
			}
		}
		agree(t, &f, b, names)
	})
}

func agree(t *rapid.T, f *facts, b *Books, names []gpu.ResourceName) {
	s := &usage.Snapshot{Names: b.Names()}
	for _, d := range f.devices {
		if d.Resource == "" {
			d.Resource = f.classes[d.Class].Resource
		}
		s.Devices = append(s.Devices, d.Device)
	}
	for _, v := range f.vmis {
		s.VMIs = append(s.VMIs, v)
	}
	for _, p := range f.pods {
		s.Pods = append(s.Pods, p)
	}
	ordered, _ := tree(f.budget).WithBase(b.names.Base).Sum(s.BudgetUse())
	keys := []tenant.Key{{Kind: tenant.Class, Name: "h200"}, {Kind: tenant.Class, Name: "other"}, {Kind: tenant.Total}}
	for _, name := range names {
		keys = append(keys, tenant.Key{Kind: tenant.Resource, Name: string(name)})
	}
	for _, level := range []string{"acme", "acme-dev", "acme-ops"} {
		for _, k := range keys {
			if want, got := ordered.Of(level, k), b.ordered.Of(level, k); want != got {
				t.Fatalf("%s has ordered %d of %s, want %d", level, got, k, want)
			}
		}
	}
	taken, running := s.CapacityUse(), s.Running()
	for name, n := range f.nodes {
		for r, units := range usage.Served(&n, f.table).Units {
			if want, got := taken[name][r].Free(units), b.Snapshot().Free(name, r); b.Names().Has(r) && want != got {
				t.Fatalf("%d of %s are free on %s, want %d: %+v", got, r, name, want, taken[name])
			}
		}
	}
	got := map[string]int64{}
	for d := range b.Snapshot().Devices() {
		if d.Running > 0 {
			got[d.UID] = d.Running
		}
	}
	if len(got)+len(running) > 0 && !reflect.DeepEqual(got, running) {
		t.Fatalf("running: %v, want %v", got, running)
	}
}
