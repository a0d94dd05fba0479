package usage

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// cards returns healthy H200s.
func cards(n int) []gpu.Function {
	var out []gpu.Function
	for i := range n {
		out = append(out, card(uint8(i+1)))
	}
	return out
}

// worse returns the cards with the first one changed.
func worse(cards []gpu.Function, change func(*gpu.Function)) []gpu.Function {
	change(&cards[0])
	return cards
}

func TestServed(t *testing.T) {
	offBus := func(f *gpu.Function) { f.OffBus = true }
	gone := cards(4)[:3]
	custom := gpu.Table{Entries: []gpu.Entry{pci("10de:2335", own)}}
	parent := func(available int) gpu.Function {
		return gpu.Function{
			Address: gpu.Address{Bus: 9}, ID: gpu.NVIDIA(0x2236), Class: 0x030200, Driver: "nvidia",
			MdevTypes: []gpu.MdevType{{ID: "nvidia-592", Name: "NVIDIA A10-12Q", Available: available}, {ID: "nvidia-593", Name: "NVIDIA A10-24Q"}},
		}
	}
	mdev := gpu.Mdev{UUID: "u", TypeName: "NVIDIA A10-12Q", Parent: gpu.Address{Bus: 9}}
	vgpu := func(f *gpu.Function) { f.VF, f.Driver, f.CurrentVGPU = true, "nvidia", "NVIDIA L40S-12Q" }
	host := func(functions []gpu.Function, mdevs ...gpu.Mdev) *gpu.Host {
		return &gpu.Host{Functions: functions, Mdevs: mdevs}
	}
	type units = map[gpu.ResourceName]int64
	h200s := func(n int64) units { return units{h200: n} }
	tests := map[string]struct {
		allocatable        units
		host               *gpu.Host
		plugin             gpu.Release
		table              gpu.Table
		notReady, cordoned bool
		silent             bool
		want               units
		closed, uncertain  bool
	}{
		"without an agent it is the allocatable": {allocatable: h200s(4), want: h200s(4)},
		"a node that shows nothing":              {host: host(cards(4)), want: units{}},
		"one per healthy function":               {allocatable: h200s(4), host: host(cards(4)), want: h200s(4)},
		"the allocatable is the most":            {allocatable: h200s(3), host: host(cards(4)), want: h200s(3)},
		"a name at 0":                            {allocatable: h200s(0), host: host(cards(4)), want: h200s(0)},
		"lost: a GPU that fell off the bus":      {allocatable: h200s(4), host: host(worse(cards(4), offBus)), want: h200s(3)},
		"lost: a GPU that is gone":               {allocatable: h200s(4), host: host(gone), want: h200s(3)},
		"lost: all GPUs are gone":                {allocatable: h200s(4), host: host(nil), want: h200s(0)},
		"lost: a GPU without its driver":         {allocatable: h200s(4), host: host(worse(cards(4), func(f *gpu.Function) { f.Driver = "" })), want: h200s(3)},
		"lost: a GPU on the host's driver":       {allocatable: h200s(4), host: host(worse(cards(4), func(f *gpu.Function) { f.Driver = "nvidia" })), want: h200s(3)},
		"lost: a GPU that no IOMMU guards":       {allocatable: h200s(4), host: host(worse(cards(4), func(f *gpu.Function) { f.Group = gpu.NoGroup() })), want: h200s(3)},
		"lost: a GPU without its device node":    {allocatable: h200s(4), host: host(worse(cards(4), func(f *gpu.Function) { f.VFIONode = gpu.Absent })), want: h200s(3)},
		"the same, of a plugin that overlooks it": {
			allocatable: h200s(4), plugin: gpu.Release{Major: 1, Minor: 2, Patch: 8}, want: h200s(3),
			host: &gpu.Host{IOMMUFD: gpu.Present, Functions: worse(cards(4), func(f *gpu.Function) { f.VFIONode = gpu.Absent })},
		},
		"a plugin that counts groups": {
			allocatable: h200s(3), plugin: gpu.Release{Major: 1, Minor: 4}, want: h200s(3),
			host: host(worse(cards(4), func(f *gpu.Function) { f.Group = gpu.InGroup(2) })),
		},
		"a group of which one function is broken is no unit": {
			allocatable: h200s(3), plugin: gpu.Release{Major: 1, Minor: 4}, want: h200s(2),
			host: host(worse(cards(4), func(f *gpu.Function) { f.Address.Bus, f.Group, f.OffBus = 9, gpu.InGroup(2), true })),
		},
		"a group without its device node is none of its units": {
			allocatable: h200s(4), want: h200s(2),
			host: host(worse(cards(4), func(f *gpu.Function) { f.Group, f.VFIONode = gpu.InGroup(2), gpu.Absent })),
		},
		"nor where a plugin allocates by functions and needs those of the whole group": {
			allocatable: h200s(4), want: h200s(2),
			host: &gpu.Host{IOMMUFD: gpu.Present, Functions: worse(cards(4), func(f *gpu.Function) { f.Group, f.VFIONode = gpu.InGroup(2), gpu.Absent })},
		},
		"a plugin that counts functions": {
			allocatable: h200s(4), host: host(worse(cards(4), func(f *gpu.Function) { f.Group, f.OffBus = gpu.InGroup(2), true })), want: h200s(3),
		},
		"under a name that only the table ties to the card": {
			allocatable: units{own: 4}, host: host(worse(cards(4), offBus)), table: custom, want: units{own: 3},
		},
		"a name of which the report says nothing": {
			allocatable: units{own: 4, "cpu": 64}, host: host(worse(cards(4), offBus)), want: units{own: 4, "cpu": 64},
		},
		"a name that only its count ties to the card": {
			allocatable: units{"nvidia.com/MY_H200": 4}, host: host(worse(cards(4), offBus)), want: units{"nvidia.com/MY_H200": 3},
		},
		"lost: all GPUs of the name are gone, and others are there": {
			allocatable: units{"nvidia.com/GH100_H200_NVL": 2}, host: host(cards(2)), want: units{"nvidia.com/GH100_H200_NVL": 0},
		},
		"a card that is newer than all names may be behind one that stands for others": {
			allocatable: h200s(2), host: host(worse(cards(1), func(f *gpu.Function) { f.ID = gpu.NVIDIA(0x7777) })), want: h200s(1),
		},
		"but not behind one that is explained": {
			allocatable: h200s(2), host: host(worse(cards(2), func(f *gpu.Function) { f.ID = gpu.NVIDIA(0x7777) })), want: h200s(1),
		},
		"nor behind a vGPU type": {
			allocatable: units{a10: 2}, host: host(worse(cards(1), func(f *gpu.Function) { f.ID = gpu.NVIDIA(0x7777) })), want: units{a10: 0},
		},
		"below 0 it is none": {allocatable: h200s(-3), want: h200s(0)},

		"an mdev parent with remaining slots still serves": {
			allocatable: units{a10: 2}, host: host([]gpu.Function{parent(1)}, mdev), want: units{a10: 2},
		},
		"an mdev parent that is full serves what exists": {
			allocatable: units{a10: 2}, host: host([]gpu.Function{parent(0)}, mdev), want: units{a10: 1},
		},
		"an mdev parent where nothing exists yet": {
			allocatable: units{a10: 2}, host: host([]gpu.Function{parent(3)}), want: units{a10: 2},
		},
		"a parent that says nonsense": {
			allocatable: units{a10: 2}, host: host([]gpu.Function{parent(-1)}, mdev), want: units{a10: 1},
		},
		"an mdev whose parent does not say what it has room for": {
			allocatable: units{a10: 2}, host: host(nil, mdev), want: units{a10: 1},
		},
		"lost: an mdev parent that fell off the bus": {
			allocatable: units{a10: 2}, host: host(worse([]gpu.Function{parent(1)}, offBus), mdev), want: units{a10: 0},
		},
		"lost: a type of which nothing is left": {
			allocatable: units{a10: 2, "nvidia.com/NVIDIA_A10-24Q": 1}, host: host([]gpu.Function{parent(0)}), want: units{a10: 0, "nvidia.com/NVIDIA_A10-24Q": 0},
		},
		"lost: one that is not called like a vGPU": {
			allocatable: units{"nvidia.com/whole_T4": 1}, want: units{"nvidia.com/whole_T4": 0},
			host: host([]gpu.Function{{ID: gpu.NVIDIA(0x1eb8), MdevTypes: []gpu.MdevType{{Name: "whole T4"}}}}),
		},
		"lost: vGPUs whose parent is gone": {allocatable: units{a10: 2}, host: host(cards(1)), want: units{a10: 0}},
		"a type under the table's name for it": {
			allocatable: units{own: 4}, host: host([]gpu.Function{parent(2)}, mdev), want: units{own: 3},
			table: gpu.Table{Entries: []gpu.Entry{{List: gpu.ListMdev, Selector: "NVIDIA A10-12Q", Name: own}}},
		},
		"virtual functions with a vGPU type": {
			allocatable: units{own: 2}, host: host(worse(cards(1), vgpu)), table: custom, want: units{own: 1},
		},

		"one that is on vfio counts once": {
			allocatable: units{own: 2}, host: host(worse(cards(1), func(f *gpu.Function) { f.VF, f.CurrentVGPU = true, "NVIDIA L40S-12Q" })), table: custom, want: units{own: 1},
		},
		"one without a type is no unit": {
			allocatable: units{own: 2}, host: host(worse(cards(2), func(f *gpu.Function) { f.VF, f.Driver = true, "nvidia" })), table: custom, want: units{own: 1},
		},
		"one that fell off the bus is none, either": {
			allocatable: units{own: 2}, host: host(worse(worse(cards(2), vgpu), offBus)), table: custom, want: units{own: 1},
		},
		"nor is another vendor's": {
			allocatable: units{own: 2}, host: host(worse(worse(cards(2), vgpu), func(f *gpu.Function) { f.ID.Vendor = 0x8086 })), table: custom, want: units{own: 1},
		},

		"NotReady: what it served last, nothing new, no conclusions": {
			allocatable: h200s(4), host: host(worse(cards(4), offBus)), notReady: true, want: h200s(3), closed: true, uncertain: true,
		},
		"NotReady: after a reboot it shows 0": {
			allocatable: h200s(0), host: host(cards(4)), notReady: true, want: h200s(0), closed: true, uncertain: true,
		},
		"cordoned: nothing new": {
			allocatable: h200s(4), host: host(worse(cards(4), offBus)), cordoned: true, want: h200s(3), closed: true,
		},
		"silent: what it said last takes away, no conclusions": {
			allocatable: h200s(4), host: host(worse(cards(4), offBus)), silent: true, want: h200s(3), uncertain: true,
		},
		"silent: what it said last adds nothing": {
			allocatable: h200s(2), host: host(cards(4)), silent: true, want: h200s(2), uncertain: true,
		},
		"silent: it never said anything": {allocatable: h200s(4), silent: true, want: h200s(4)},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			n := Node{Host: tc.host, Silent: tc.silent, Facts: gpu.Node{
				Name: "n1", Allocatable: tc.allocatable, Plugin: tc.plugin, NotReady: tc.notReady, Cordoned: tc.cordoned,
			}}
			want := Supply{Node: "n1", Units: tc.want, Open: !tc.closed, Certain: !tc.uncertain}
			if diff := cmp.Diff(want, Served(&n, tc.table)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestNUMA wants to know of all units of a name where they are, or of none.
func TestNUMA(t *testing.T) {
	at := func(nodes ...int) []gpu.Function {
		out := cards(len(nodes))
		for i := range out {
			if nodes[i] >= 0 {
				out[i].NUMA = &nodes[i]
			}
		}
		return out
	}
	offBus := at(0, 0, 1, 1)
	offBus[0].OffBus = true
	tests := map[string]struct {
		host        []gpu.Function
		allocatable int64
		want        []int64
	}{
		"two nodes":                    {at(1, 0, 1, 1), 4, []int64{1, 3}},
		"one node":                     {at(0, 0), 2, []int64{2}},
		"a broken GPU counts at none":  {offBus, 4, []int64{1, 2}},
		"one that is at no known node": {at(0, 1, -1), 3, nil},
		"fewer are allocatable":        {at(0, 0, 1), 2, nil},
		"none is":                      {at(0, 0), 0, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			n := Node{Host: &gpu.Host{Functions: tc.host}, Facts: gpu.Node{Allocatable: map[gpu.ResourceName]int64{h200: tc.allocatable}}}
			if diff := cmp.Diff(tc.want, Served(&n, gpu.Table{}).NUMA[h200]); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
