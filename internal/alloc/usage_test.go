package alloc

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/internal/usage"
	"github.com/gpuctl/gpuctl/test/often"
)

func TestNodeOf(t *testing.T) {
	supply := usage.Supply{
		Node: "n1", Units: map[gpu.ResourceName]int64{h200: 8, l40s: 2}, NUMA: map[gpu.ResourceName][]int64{h200: {4, 4}}, Open: true,
	}
	taken := map[gpu.ResourceName]usage.Taken{h200: {Held: 4, Raw: 3, Under: 2}, "nvidia.com/GONE": {Raw: 1}}
	want := Node{Name: "n1", Doubted: true, Serves: []Served{
		{Resource: l40s, Units: 2},
		{Resource: h200, Units: 8, Raw: 1, NUMA: []int64{4, 4}},
	}}
	if diff := cmp.Diff(want, NodeOf(supply, taken)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	supply = usage.Supply{Node: "n1", Certain: true}
	if diff := cmp.Diff(Node{Name: "n1", Closed: true}, NodeOf(supply, nil)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestCardsOfAnOldNameAreTaken: a plugin's upgrade renames the cards under a VM that
// runs. They are none that another VM can have, until it has ended.
func TestCardsOfAnOldNameAreTaken(t *testing.T) {
	const old gpu.ResourceName = "nvidia.com/2335"
	supply := usage.Supply{Node: "n1", Units: map[gpu.ResourceName]int64{old: 0, h200: 8, l40s: 2}, Open: true, Certain: true}
	device := Device{UID: "a", Resource: old, Units: 4, Node: "n1", State: Attached, Lost: true, Running: 4}
	s := New([]Node{NodeOf(supply, map[gpu.ResourceName]usage.Taken{old: {Raw: 4, Under: 4}})}, []Device{device})
	if got := []int64{s.Free("n1", h200), s.Free("n1", l40s)}; !slices.Equal(got, []int64{4, 2}) {
		t.Errorf("a VM runs with 4 of 8 cards: %v are free", got)
	}
	supply.Units[old] = 4 // both names are served: each has its own
	s = New([]Node{NodeOf(supply, map[gpu.ResourceName]usage.Taken{old: {Raw: 4, Under: 4}})}, []Device{device})
	if got := s.Free("n1", h200); got != 8 {
		t.Errorf("%d are free under a name that nothing runs under", got)
	}
}

// TestFreeIsOneNumber draws devices, VMIs and pods: what is free for placement is what
// accounting says is not taken, before and after lost devices have their units again.
func TestFreeIsOneNumber(t *testing.T) {
	often.Check(t, func(t *rapid.T) {
		u := usage.Snapshot{Names: usage.EffectiveNames(usage.NameFacts{Listed: []gpu.ResourceName{h200}})}
		vmis := rapid.SampledFrom([]string{"", "v", "w"})
		for i := range rapid.IntRange(0, 4).Draw(t, "devices") {
			u.Devices = append(u.Devices, usage.Device{
				UID: fmt.Sprint("d", i), Namespace: "acme", Resource: h200, Units: rapid.Int64Range(1, 4).Draw(t, "units"),
				Node: "n1", Lost: rapid.Bool().Draw(t, "lost"), VMI: vmis.Draw(t, "vmi"),
			})
		}
		for _, uid := range []string{"v", "w"} {
			u.VMIs = append(u.VMIs, usage.VMI{UID: uid, Namespace: "acme", ActivePods: map[string]string{"p" + uid: "n1", "q" + uid: "n1"}})
		}
		for _, uid := range []string{"pv", "qv", "pw", "qw", "raw"} {
			units := rapid.Int64Range(0, 4).Draw(t, "units of "+uid)
			u.Pods = append(u.Pods, usage.Pod{UID: uid, Namespace: "acme", Node: "n1", Containers: []usage.Requests{{h200: units}}})
		}
		supply := usage.Supply{Node: "n1", Units: map[gpu.ResourceName]int64{h200: rapid.Int64Range(0, 16).Draw(t, "served")}, Open: true, Certain: true}
		s := New([]Node{NodeOf(supply, u.CapacityUse()["n1"])}, devicesOf(&u))
		sameFree(t, s, &u, supply)

		after, settled := Settle(s, nil)
		for i := range u.Devices {
			d, _ := after.Device(u.Devices[i].UID)
			u.Devices[i].Lost = d.Lost
		}
		if settled.Moves != nil {
			t.Fatalf("there is one node: %+v", settled)
		}
		// What runs of lost devices is told anew: it may be shared otherwise, and is no more.
		if got, want := max(0, after.free()), u.CapacityUse()["n1"][h200].Free(supply.Units[h200]); got > want {
			t.Fatalf("%d are free after %+v, accounting says %d\n%s", got, settled, want, shown(after))
		}
	})
}

func devicesOf(u *usage.Snapshot) (out []Device) {
	running := u.Running()
	for i := range u.Devices {
		d := &u.Devices[i]
		state := Held
		if d.Attached() {
			state = Attached
		}
		out = append(out, Device{UID: d.UID, Resource: d.Resource, Units: d.Units, Node: d.Node, State: state, Lost: d.Lost, Running: running[d.UID]})
	}
	return out
}

func sameFree(t *rapid.T, s *Snapshot, u *usage.Snapshot, supply usage.Supply) {
	want := u.CapacityUse()["n1"][h200].Free(supply.Units[h200])
	if got := max(0, s.free()); got != want {
		t.Fatalf("%d are free, accounting says %d\n%s", got, want, shown(s))
	}
}

// free is negative where more is taken than served.
func (s *Snapshot) free() int64 { return s.pool("n1", h200).free() }
