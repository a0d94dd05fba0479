package gpu_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

const (
	vfio   = gpu.Driver("vfio-pci")
	nvidia = gpu.Driver("nvidia")
	grace  = gpu.Driver("nvgrace_gpu_vfio_pci")
)

// fn makes a function of NVIDIA's.
func fn(address string, id gpu.DeviceID, driver gpu.Driver, group gpu.Group) gpu.Function {
	a, err := gpu.ParseAddress(address)
	if err != nil {
		panic(err)
	}
	return gpu.Function{Address: a, ID: gpu.NVIDIA(id), Class: 0x030200, Driver: driver, Group: group}
}

// vf makes a function a virtual one.
func vf(f gpu.Function) gpu.Function {
	f.VF = true
	return f
}

// listed writes down what a release registers: the ids under each short name.
func listed(r gpu.Release, h *gpu.Host) map[string]string {
	out := map[string]string{}
	for _, g := range r.Registrations(h) {
		out[g.Name.Short()] = strings.Join(g.UnitIDs(), " ")
	}
	return out
}

func TestWhatIsCounted(t *testing.T) {
	in := gpu.InGroup
	type lists = map[string]string
	unknown := fn("18:00.0", 0x2204, "", in(30))
	unknown.DriverUnknown = true
	tests := map[string]struct {
		functions     []gpu.Function
		before, since lists // v1.4.0 and v1.5.0
	}{
		"nothing": {before: lists{}, since: lists{}},
		"GH200 on the driver for Grace": {
			functions: []gpu.Function{fn("0009:01:00.0", 0x2342, grace, in(12))},
			before:    lists{},
			since:     lists{"GH100_GH200_120GB___480GB": "0009:01:00.0"},
		},
		"other spellings of that driver": {
			functions: []gpu.Function{
				fn("0009:01:00.0", 0x2342, "nvgrace-gpu-vfio-pci", in(12)),
				fn("0019:01:00.0", 0x2342, "nvgrace_vfio_pci", in(13)),
			},
			before: lists{}, since: lists{},
		},
		"T4 and A40 in one group": {
			functions: []gpu.Function{fn("af:00.0", 0x1eb8, vfio, in(77)), fn("b0:00.0", 0x2235, vfio, in(77))},
			before:    lists{"TU104GL_TESLA_T4": "77"},
			since:     lists{"TU104GL_TESLA_T4": "0000:af:00.0", "GA102GL_A40": "0000:b0:00.0"},
		},
		"the first of a group is the first by address": {
			functions: []gpu.Function{fn("b0:00.0", 0x2235, vfio, in(77)), fn("af:00.0", 0x1eb8, vfio, in(77))},
			before:    lists{"TU104GL_TESLA_T4": "77"},
			since:     lists{"TU104GL_TESLA_T4": "0000:af:00.0", "GA102GL_A40": "0000:b0:00.0"},
		},
		"the first on a vfio driver need not be the GPU": {
			functions: []gpu.Function{fn("21:00.0", 0x2204, nvidia, in(30)), fn("21:00.1", 0x1aef, vfio, in(30))},
			before:    lists{"GA102_HIGH_DEFINITION_AUDIO_CONTROLLER": "30"},
			since:     lists{"GA102_HIGH_DEFINITION_AUDIO_CONTROLLER": "0000:21:00.1"},
		},
		"two GPUs in one group": {
			functions: []gpu.Function{fn("21:00.0", 0x2204, vfio, in(30)), fn("41:00.0", 0x2204, vfio, in(30))},
			before:    lists{"GA102_GEFORCE_RTX_3090": "30"},
			since:     lists{"GA102_GEFORCE_RTX_3090": "0000:21:00.0 0000:41:00.0"},
		},
		"a virtual function counts like a physical one": {
			functions: []gpu.Function{
				fn("3b:00.0", 0x26b9, nvidia, in(44)),
				vf(fn("3b:00.4", 0x26b9, vfio, in(300))),
				vf(fn("3b:00.5", 0x26b9, vfio, in(301))),
			},
			before: lists{"AD102GL_L40S": "300 301"},
			since:  lists{"AD102GL_L40S": "0000:3b:00.4 0000:3b:00.5"},
		},
		"group 0 is a group, none is none": {
			functions: []gpu.Function{fn("3b:00.0", 0x2235, vfio, in(0)), fn("5e:00.0", 0x2235, vfio, gpu.NoGroup())},
			before:    lists{"GA102GL_A40": "0"},
			since:     lists{"GA102GL_A40": "0000:3b:00.0"},
		},
		"groups sort by number": {
			functions: []gpu.Function{fn("21:00.0", 0x2204, vfio, in(100)), fn("41:00.0", 0x2204, vfio, in(30)), fn("61:00.0", 0x2204, vfio, in(9))},
			before:    lists{"GA102_GEFORCE_RTX_3090": "9 30 100"},
			since:     lists{"GA102_GEFORCE_RTX_3090": "0000:21:00.0 0000:41:00.0 0000:61:00.0"},
		},
		"an unknown driver is not counted": {functions: []gpu.Function{unknown}, before: lists{}, since: lists{}},
		"other drivers and none are not either": {
			functions: []gpu.Function{fn("21:00.0", 0x2204, "nouveau", in(30)), fn("41:00.0", 0x2204, "", in(31))},
			before:    lists{}, since: lists{},
		},
		"unknown groups: a card is a group": {
			functions: []gpu.Function{
				fn("21:00.0", 0x2204, vfio, gpu.Group{}), fn("21:00.1", 0x1aef, vfio, gpu.Group{}),
				fn("41:00.0", 0x2204, vfio, gpu.Group{}), fn("41:00.1", 0x1aef, vfio, gpu.Group{}),
			},
			before: lists{"GA102_GEFORCE_RTX_3090": "0000:21:00 0000:41:00"},
			since: lists{
				"GA102_GEFORCE_RTX_3090":                 "0000:21:00.0 0000:41:00.0",
				"GA102_HIGH_DEFINITION_AUDIO_CONTROLLER": "0000:21:00.1 0000:41:00.1",
			},
		},
		"unknown groups: so is a virtual function": {
			functions: []gpu.Function{vf(fn("3b:00.4", 0x26b9, vfio, gpu.Group{})), vf(fn("3b:00.5", 0x26b9, vfio, gpu.Group{}))},
			before:    lists{"AD102GL_L40S": "0000:3b:00.4 0000:3b:00.5"},
			since:     lists{"AD102GL_L40S": "0000:3b:00.4 0000:3b:00.5"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			h := &gpu.Host{Functions: tc.functions}
			if diff := cmp.Diff(tc.before, listed(gpu.Release{Major: 1, Minor: 4}, h)); diff != "" {
				t.Errorf("v1.4.0 (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.since, listed(gpu.Release{Major: 1, Minor: 5}, h)); diff != "" {
				t.Errorf("v1.5.0 (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOnlyNVIDIAIsCounted(t *testing.T) {
	other := fn("14:00.0", 0x2204, vfio, gpu.InGroup(3))
	other.ID.Vendor = 0x1002
	h := &gpu.Host{Functions: []gpu.Function{other}}
	if got := gpu.Newest().Registrations(h); len(got) > 0 {
		t.Errorf("registered: %v", got)
	}
}

func TestMdevs(t *testing.T) {
	h := &gpu.Host{Mdevs: []gpu.Mdev{
		{UUID: "b", TypeName: "NVIDIA RTX5000-Ada-8Q"},
		{UUID: "c"}, // the parent does not name its type: skipped
		{UUID: "a", TypeName: "NVIDIA RTX5000-Ada-8Q"},
	}}
	for release, wantEnv := range map[string]string{
		"v1.3.1": "MDEV_PCI_RESOURCE_NVIDIA_COM_NVIDIA_RTX5000-Ada-8Q=b,a",
		"v1.4.0": "MDEV_PCI_RESOURCE_NVIDIA_COM_NVIDIA_RTX5000-ADA-8Q=b,a",
	} {
		r := mustRelease(t, release)
		if diff := cmp.Diff(map[string]string{"NVIDIA_RTX5000-Ada-8Q": "a b"}, listed(r, h)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", release, diff)
		}
		g := r.Registrations(h)[0]
		if env, err := g.Allocate("b", "a"); err != nil || env.String() != wantEnv {
			t.Errorf("%s: Allocate = %s, %v, want %s", release, env, err, wantEnv)
		}
		if !g.IsVGPU() || g.Collides() || len(g.Functions()) > 0 || r.LauncherFindsEnv(g.Name) != (release == "v1.4.0") {
			t.Errorf("%s: %+v", release, g)
		}
	}
}

func TestMissingDeviceNodes(t *testing.T) {
	type want struct{ unhealthy, fails string }
	tests := map[string]struct {
		iommufd gpu.Presence
		want    map[string]want // by release
	}{
		"the group's node is gone": {
			iommufd: gpu.Absent,
			want:    map[string]want{"v1.2.7": {}, "v1.2.8": {unhealthy: "30"}, "v1.4.0": {unhealthy: "30"}, "v1.6.0": {unhealthy: "0000:21:00.0"}},
		},
		"the same, iommufd unknown": {
			want: map[string]want{"v1.3.1": {unhealthy: "30"}, "v1.6.0": {unhealthy: "0000:21:00.0"}},
		},
		"a function's own node is missing under iommufd": {
			iommufd: gpu.Present,
			want:    map[string]want{"v1.3.1": {}, "v1.4.0": {fails: "30"}, "v1.6.0": {fails: "0000:21:00.0"}},
		},
	}
	for name, tc := range tests {
		for release, want := range tc.want {
			t.Run(name+"/"+release, func(t *testing.T) {
				h := readLayout(t, "03")
				h.IOMMUFD = tc.iommufd
				for i := range h.Functions {
					if f := &h.Functions[i]; f.Address == mustAddress(t, "21:00.1") {
						f.VFIONode = gpu.Absent // the GPU's sibling: it takes the group with it
					}
				}
				g := mustRelease(t, release).Registrations(h)[0]
				for _, u := range g.Units {
					if u.Unhealthy != (u.ID == want.unhealthy) || u.AllocateFails != (u.ID == want.fails) {
						t.Errorf("%s is unhealthy: %v, fails: %v, want %+v", u.ID, u.Unhealthy, u.AllocateFails, want)
					}
					if _, err := g.Allocate(u.ID); (err != nil) != u.AllocateFails {
						t.Errorf("Allocate(%s): %v", u.ID, err)
					}
				}
			})
		}
	}
}

func TestShownUnderCollision(t *testing.T) {
	h := &gpu.Host{Functions: []gpu.Function{
		fn("31:00.0", 0x20b1, vfio, gpu.InGroup(46)),
		fn("4b:00.0", 0x20f1, vfio, gpu.InGroup(61)),
		fn("b1:00.0", 0x20f1, vfio, gpu.InGroup(101)),
		fn("ca:00.0", 0x20f1, vfio, gpu.InGroup(119)),
	}}
	h.Functions[3].VFIONode = gpu.Absent
	g := gpu.Newest().Registrations(h)[0]
	want := []gpu.Count{{Capacity: 1}, {Capacity: 1, Allocatable: 1}, {Capacity: 3}, {Capacity: 3, Allocatable: 2}}
	if diff := cmp.Diff(want, g.Shown()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]gpu.DeviceID{0x20b1, 0x20f1}, g.DeviceIDs()); diff != "" || !g.Collides() {
		t.Errorf("collides: %v (-want +got):\n%s", g.Collides(), diff)
	}
}

func TestAllocateRefuses(t *testing.T) {
	g := gpu.Newest().Registrations(readLayout(t, "03"))[0]
	if env, err := g.Allocate("0000:99:00.0"); err == nil || env != (gpu.Env{}) {
		t.Errorf("an id that is not listed: %v, %v", env, err)
	}
	if env, err := g.Allocate(); err != nil || env != (gpu.Env{}) {
		t.Errorf("no ids: %v, %v", env, err)
	}
}

func TestLauncherFindsEnv(t *testing.T) {
	tests := map[gpu.ResourceName]struct{ before, since bool }{
		"nvidia.com/26b5":                  {false, true},
		"nvidia.com/2335":                  {true, true},
		"nvidia.com/GH100_H200_NVL":        {true, true},
		"nvidia.com/NVIDIA_RTX5000-Ada-8Q": {false, true},
		"nvidia.com/a.b":                   {false, false}, // virt-launcher writes "_" for the dot
	}
	for name, want := range tests {
		if got := mustRelease(t, "v1.3.1").LauncherFindsEnv(name); got != want.before {
			t.Errorf("v1.3.1, %s: %v", name, got)
		}
		for _, r := range []gpu.Release{mustRelease(t, "v1.4.0"), {}} {
			if got := r.LauncherFindsEnv(name); got != want.since {
				t.Errorf("%s, %s: %v", r, name, got)
			}
		}
	}
}

// Any host, any release: nothing depends on the order of functions, every
// counted function is in one group of one release, no unit is listed twice.
func TestRegistrationsHoldOnAnyHost(t *testing.T) {
	releases := []gpu.Release{{}, {Major: 1, Minor: 2, Patch: 5}, {Major: 1, Minor: 3, Patch: 1}, {Major: 1, Minor: 4}, {Major: 1, Minor: 5}}
	rapid.Check(t, func(t *rapid.T) {
		h := anyHost(t)
		r := rapid.SampledFrom(releases).Draw(t, "release")
		shuffled := &gpu.Host{Functions: rapid.Permutation(h.Functions).Draw(t, "order"), IOMMUFD: h.IOMMUFD}
		got := r.Registrations(h)
		sameError := cmp.Comparer(func(a, b error) bool { return (a == nil) == (b == nil) })
		if diff := cmp.Diff(got, r.Registrations(shuffled), cmp.AllowUnexported(gpu.Group{}), sameError); diff != "" {
			t.Fatalf("order matters:\n%s", diff)
		}
		units, behind := map[string]bool{}, map[gpu.Address]bool{}
		for _, g := range got {
			for _, u := range g.Units {
				if units[u.ID] || !slices.Contains(u.Group, u.Function) || u.Unhealthy && u.AllocateFails {
					t.Fatalf("%s: unit %+v", g.Name, u)
				}
				units[u.ID] = true
				for _, f := range u.Group {
					behind[f.Address] = true
				}
			}
			if _, err := g.Allocate(g.UnitIDs()...); (err != nil) != slices.ContainsFunc(g.Units, func(u gpu.Unit) bool { return u.AllocateFails }) {
				t.Fatalf("%s: Allocate: %v", g.Name, err)
			}
		}
		counted := map[gpu.Address]bool{}
		for _, f := range h.Functions {
			if r.CountsDriver(f.Driver) && !f.Group.None() {
				counted[f.Address] = true
			}
		}
		if !maps.Equal(counted, behind) {
			t.Fatalf("behind units: %v, want %v", behind, counted)
		}
	})
}

// anyHost draws a host of few cards and groups, so that they meet.
func anyHost(t *rapid.T) *gpu.Host {
	drivers := []gpu.Driver{vfio, vfio, vfio, grace, nvidia, ""}
	groups := []gpu.Group{{}, gpu.NoGroup(), gpu.InGroup(0), gpu.InGroup(7), gpu.InGroup(30)}
	h := &gpu.Host{IOMMUFD: rapid.SampledFrom([]gpu.Presence{gpu.PresenceUnknown, gpu.Present, gpu.Absent}).Draw(t, "iommufd")}
	addresses := rapid.SliceOfNDistinct(rapid.IntRange(0, 31), 0, 12, rapid.ID).Draw(t, "addresses")
	for _, n := range addresses {
		f := gpu.Function{
			Address:  gpu.Address{Bus: uint8(n / 8), Function: uint8(n % 8)},
			ID:       gpu.NVIDIA(rapid.SampledFrom([]gpu.DeviceID{0x2335, 0x20b1, 0x20f1, 0x24fa, 0x1aef}).Draw(t, "id")),
			Driver:   rapid.SampledFrom(drivers).Draw(t, "driver"),
			Group:    rapid.SampledFrom(groups).Draw(t, "group"),
			VF:       rapid.Bool().Draw(t, "vf"),
			VFIONode: rapid.SampledFrom([]gpu.Presence{gpu.PresenceUnknown, gpu.Present, gpu.Absent}).Draw(t, "node"),
		}
		h.Functions = append(h.Functions, f)
	}
	return h
}
