package usage

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

const (
	h200 gpu.ResourceName = "nvidia.com/GH100_H200_SXM_141GB" // id 2335
	a10  gpu.ResourceName = "nvidia.com/NVIDIA_A10-12Q"
	own  gpu.ResourceName = "gpus.example.com/h200"
	dra  gpu.ResourceName = "deviceclass.resource.kubernetes.io/vfio"
)

// shows returns a node with an allocatable and no agent.
func shows(allocatable map[gpu.ResourceName]int64) Node {
	return Node{Facts: gpu.Node{Name: "n1", Allocatable: allocatable}}
}

// card returns a healthy H200 for passthrough.
func card(bus uint8) gpu.Function {
	return gpu.Function{
		Address: gpu.Address{Bus: bus}, ID: gpu.NVIDIA(0x2335), Class: 0x030200,
		Driver: "vfio-pci", Group: gpu.InGroup(int(bus)), VFIONode: gpu.Present,
	}
}

func pci(selector string, name gpu.ResourceName) gpu.Entry {
	return gpu.Entry{List: gpu.ListPCI, Selector: selector, Name: name, External: true}
}

func TestEffectiveNames(t *testing.T) {
	vf := card(2)
	vf.VF, vf.Driver = true, "nvidia"
	driverless := card(3)
	driverless.Driver = ""
	audio := card(4)
	audio.ID, audio.Class = gpu.NVIDIA(0x22bc), 0x040300
	parent := card(5)
	parent.ID, parent.Driver, parent.MdevTypes = gpu.NVIDIA(0x2236), "nvidia", []gpu.MdevType{{Name: "NVIDIA A10-12Q"}}
	agent := func(functions ...gpu.Function) NameFacts {
		return NameFacts{Nodes: []Node{{Host: &gpu.Host{Functions: functions}}}}
	}
	table := func(entries ...gpu.Entry) NameFacts { return NameFacts{Table: gpu.Table{Set: true, Entries: entries}} }
	tests := map[string]struct {
		facts NameFacts
		want  map[gpu.ResourceName][]Source
	}{
		"nothing is known": {},
		"the hoster's names are taken as they are": {
			facts: NameFacts{Listed: []gpu.ResourceName{"amd.com/gpu", own, ""}},
			want:  map[gpu.ResourceName][]Source{"amd.com/gpu": {Listed}, own: {Listed}},
		},
		"a class's name": {facts: NameFacts{Offered: []gpu.ResourceName{own}}, want: map[gpu.ResourceName][]Source{own: {Offered}}},
		"a device's name, whose class is gone": {
			facts: NameFacts{Devices: []Device{{Resource: own, Node: "n1", Lost: true}, {Resource: "x.com/pending"}}},
			want:  map[gpu.ResourceName][]Source{own: {Held}},
		},
		"a name that an agent reports":          {facts: agent(card(1)), want: map[gpu.ResourceName][]Source{h200: {Reported}}},
		"of a card that has no driver just now": {facts: agent(driverless), want: map[gpu.ResourceName][]Source{h200: {Reported}}},
		"of a virtual function":                 {facts: agent(vf), want: map[gpu.ResourceName][]Source{h200: {Reported}}},
		"not of a card's audio function":        {facts: agent(audio)},
		"of another vendor's card there is none": {facts: agent(gpu.Function{
			ID: gpu.ID{Vendor: 0x1002, Device: 0x2335}, Class: 0x030000, Driver: "vfio-pci", Group: gpu.InGroup(1),
		})},
		"a vGPU type that an agent reports": {
			facts: agent(parent), want: map[gpu.ResourceName][]Source{a10: {Reported}, "nvidia.com/GA102GL_A10": {Reported}},
		},
		"a mediated device that an agent reports": {
			facts: NameFacts{Nodes: []Node{{Host: &gpu.Host{Mdevs: []gpu.Mdev{{TypeName: "NVIDIA A10-12Q"}, {}}}}}},
			want:  map[gpu.ResourceName][]Source{a10: {Reported}},
		},
		"an agent reports it as the node's plugin calls it": {
			facts: NameFacts{Nodes: []Node{{Facts: gpu.Node{Plugin: gpu.Release{Major: 1, Minor: 2, Patch: 7}}, Host: &gpu.Host{Functions: []gpu.Function{card(1)}}}}},
			want:  map[gpu.ResourceName][]Source{"nvidia.com/2335": {Reported}},
		},
		"what a node shows counts where it belongs to a GPU, at 0 too": {
			facts: NameFacts{Nodes: []Node{shows(map[gpu.ResourceName]int64{
				h200: 0, a10: 1, "nvidia.com/GH100_H100_NVSWITCH": 4, "nvidia.com/hostdev": 8, "amd.com/gpu": 8, "cpu": 4,
			})}},
			want: map[gpu.ResourceName][]Source{h200: {Allocatable}, a10: {Allocatable}},
		},
		"a NVIDIA name only the table carries": {
			facts: table(pci("10DE:2335", own)), want: map[gpu.ResourceName][]Source{own: {Permitted}},
		},
		"a selector that KubeVirt never matches permits the name": {
			facts: table(pci("10de:*", own)), want: map[gpu.ResourceName][]Source{own: {Permitted}},
		},
		"all mediated entries": {
			facts: table(gpu.Entry{List: gpu.ListMdev, Selector: "i915-GVTg_V5_4", Name: "intel.com/gvt"}, gpu.Entry{List: gpu.ListUSB, Name: "x.com/usb"}),
			want:  map[gpu.ResourceName][]Source{"intel.com/gvt": {Permitted}},
		},
		"a ConnectX VF stays out": {facts: table(pci("15b3:101e", "nvidia.com/cx7_vf"), pci("15b3:1018", "mellanox.com/cx6"))},
		"a ConnectX VF stays out where a node shows it": {
			facts: NameFacts{
				Nodes: []Node{shows(map[gpu.ResourceName]int64{"nvidia.com/cx7_vf": 8, "nvidia.com/other": 1})},
				Table: gpu.Table{Entries: []gpu.Entry{pci("15b3:101e", "nvidia.com/cx7_vf")}},
			},
			want: map[gpu.ResourceName][]Source{"nvidia.com/other": {Allocatable}},
		},
		"a GPU's name under another vendor's selector is that of a GPU still": {
			facts: NameFacts{
				Nodes: []Node{shows(map[gpu.ResourceName]int64{h200: 8, "nvidia.com/cx7_vf": 8})},
				Table: gpu.Table{Entries: []gpu.Entry{pci("15b3:101e", h200), pci("15b3:101e", "nvidia.com/cx7_vf"), pci("10de:2335", "nvidia.com/cx7_vf")}},
			},
			want: map[gpu.ResourceName][]Source{h200: {Allocatable}, "nvidia.com/cx7_vf": {Allocatable, Permitted}},
		},
		"the container plugin's names stay out": {
			facts: NameFacts{
				Nodes:         []Node{shows(map[gpu.ResourceName]int64{"nvidia.com/gpu": 8, "nvidia.com/mig-1g.5gb": 2, "nvidia.com/gpu.shared": 2})},
				Table:         gpu.Table{Entries: []gpu.Entry{pci("10de:2335", "nvidia.com/gpu")}},
				DeviceClasses: []DeviceClass{{Name: "vfio", Extended: "nvidia.com/gpu"}},
			},
		},
		"so does such a name of a DeviceClass of GPUs": {
			facts: NameFacts{DeviceClasses: []DeviceClass{{Name: "vfio", Extended: "nvidia.com/gpu", GPU: true}}},
			want:  map[gpu.ResourceName][]Source{dra: {Claimable}},
		},
		"unless the hoster lists them": {
			facts: NameFacts{
				Listed: []gpu.ResourceName{"nvidia.com/gpu"},
				Nodes:  []Node{shows(map[gpu.ResourceName]int64{"nvidia.com/gpu": 8, "nvidia.com/mig-1g.5gb": 2})},
			},
			want: map[gpu.ResourceName][]Source{"nvidia.com/gpu": {Listed}},
		},
		"unless a class has them": {
			facts: NameFacts{Offered: []gpu.ResourceName{"nvidia.com/gpu"}}, want: map[gpu.ResourceName][]Source{"nvidia.com/gpu": {Offered}},
		},
		"both names of a DeviceClass that carries an effective one": {
			facts: NameFacts{Listed: []gpu.ResourceName{own}, DeviceClasses: []DeviceClass{{Name: "vfio", Extended: own}, {Name: "nic", Extended: "x.com/nic"}, {Name: "bare"}}},
			want:  map[gpu.ResourceName][]Source{own: {Listed, Claimable}, dra: {Claimable}},
		},
		"both names of one that is listed by its own, and of those that share the other": {
			facts: NameFacts{
				Listed:        []gpu.ResourceName{"deviceclass.resource.kubernetes.io/b"},
				DeviceClasses: []DeviceClass{{Name: "vfio", Extended: own}, {Name: "b", Extended: own}},
			},
			want: map[gpu.ResourceName][]Source{own: {Claimable}, dra: {Claimable}, "deviceclass.resource.kubernetes.io/b": {Listed, Claimable}},
		},
		"a DeviceClass of GPUs that has no other name": {
			facts: NameFacts{DeviceClasses: []DeviceClass{{Name: "vfio", GPU: true}}}, want: map[gpu.ResourceName][]Source{dra: {Claimable}},
		},
		"all sources of one name, the hoster's first": {
			facts: NameFacts{
				Listed: []gpu.ResourceName{h200, h200}, Offered: []gpu.ResourceName{h200}, Devices: []Device{{Resource: h200, Node: "n1"}},
				Nodes:         []Node{{Facts: gpu.Node{Allocatable: map[gpu.ResourceName]int64{h200: 1}}, Host: &gpu.Host{Functions: []gpu.Function{card(1)}}}},
				Table:         gpu.Table{Entries: []gpu.Entry{pci("10DE:2335", h200)}},
				DeviceClasses: []DeviceClass{{Name: "x", Extended: h200}},
			},
			want: map[gpu.ResourceName][]Source{
				h200:                                   {Listed, Offered, Held, Reported, Allocatable, Permitted, Claimable},
				"deviceclass.resource.kubernetes.io/x": {Claimable},
			},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			n := EffectiveNames(tc.facts)
			var got map[gpu.ResourceName][]Source
			for _, name := range n.All() {
				if got == nil {
					got = map[gpu.ResourceName][]Source{}
				}
				got[name] = n.Sources(name)
				if !n.Has(name) {
					t.Errorf("%s is among all names and does not count", name)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestBase(t *testing.T) {
	n := EffectiveNames(NameFacts{Listed: []gpu.ResourceName{own}, DeviceClasses: []DeviceClass{{Name: "vfio", Extended: own}, {Name: "bare", GPU: true}}})
	want := map[gpu.ResourceName]gpu.ResourceName{
		own: own, dra: own, "cpu": "cpu", "deviceclass.resource.kubernetes.io/bare": "deviceclass.resource.kubernetes.io/bare",
	}
	for name, base := range want {
		if got := n.Base(name); got != base {
			t.Errorf("%s counts under %s, want %s", name, got, base)
		}
	}
	if (Names{}).Has(own) || (Names{}).Base(own) != own {
		t.Error("the zero Names has a name")
	}
}

func TestSourcesAreSaid(t *testing.T) {
	seen := map[string]bool{}
	for s := Listed; s <= Claimable; s++ {
		if seen[s.String()] || s.String() == "" {
			t.Errorf("source %d is %q", s, s)
		}
		seen[s.String()] = true
	}
}
