package gpu_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

func TestParseAddress(t *testing.T) {
	tests := map[string]string{ // "" for an error
		"18:00.0":           "0000:18:00.0",
		"0000:18:00.0":      "0000:18:00.0",
		"0002:FF:1f.7":      "0002:ff:1f.7",
		"10000:01:00.0":     "10000:01:00.0",
		"ffffffff:01:0.0":   "",
		"18:00":             "",
		"18:20.0":           "",
		"18:00.8":           "",
		"18:00.00":          "",
		"118:00.0":          "",
		"000:18:00.0":       "",
		"0000:0000:18:00.0": "",
		"+118:00.0":         "",
		"0x18:00.0":         "",
		"18:0_.0":           "",
		"":                  "",
	}
	for in, want := range tests {
		got, err := gpu.ParseAddress(in)
		if (err != nil) != (want == "") || err == nil && got.String() != want {
			t.Errorf("ParseAddress(%q) = %s, %v, want %q", in, got, err, want)
		}
	}
}

func TestAddressOrderAndCards(t *testing.T) {
	sorted := []string{"0000:18:00.0", "0000:18:00.1", "0000:18:01.0", "0000:ff:00.0", "0001:00:00.0", "10000:00:00.0"}
	var addresses []gpu.Address
	for _, s := range slices.Backward(sorted) {
		addresses = append(addresses, mustAddress(t, s))
	}
	slices.SortFunc(addresses, gpu.Address.Compare)
	var got []string
	for _, a := range addresses {
		got = append(got, a.String())
	}
	if diff := cmp.Diff(sorted, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for i, want := range []bool{true, true, false, false, false, false} {
		if same := addresses[0].SameCard(addresses[i]); same != want {
			t.Errorf("%s and %s on one card: %v", addresses[0], addresses[i], same)
		}
	}
}

func TestParseID(t *testing.T) {
	id, err := gpu.ParseID("10De:2bB5")
	if err != nil || id != gpu.NVIDIA(0x2bb5) || id.String() != "10de:2bb5" || id.Selector() != "10DE:2BB5" {
		t.Errorf("ParseID = %v, %v", id, err)
	}
	if !id.Known() || !id.IsNVIDIA() || (gpu.ID{}).Known() || (gpu.ID{Vendor: 0x1002}).IsNVIDIA() {
		t.Error("Known or IsNVIDIA is wrong")
	}
	for _, bad := range []string{"", "10de", "10de:", "10de:*", "10de:2bb5,", "10de:2bb5,10de:2bb4", " 10de:2bb5", "10de:+bb5", "010de:2bb5", "10d:2bb5", "0x10de:2bb5", "10de:2bb", "10de:2bb5:0000"} {
		if id, err := gpu.ParseID(bad); err == nil {
			t.Errorf("ParseID(%q) = %s", bad, id)
		}
	}
	for _, bad := range []string{"", "2bb", "02bb5", "2bg5", "-bb5"} {
		if d, err := gpu.ParseDeviceID(bad); err == nil {
			t.Errorf("ParseDeviceID(%q) = %s", bad, d)
		}
	}
}

func TestParseRelease(t *testing.T) {
	tests := map[string]string{
		"v1.5.0": "v1.5.0", "1.2.10": "v1.2.10", "v1.5.0-rc.1": "v1.5.0", "v1.5.0+build": "v1.5.0", "v1.5.0-ubi9": "v1.5.0",
		"v1.5": "", "v1.5.0.1": "", "latest": "", "": "", "vv1.5.0": "", "v1.5.x": "", "v1.-5.0": "", "v1.5.99999": "", "sha256:1.2.3": "",
	}
	for in, want := range tests {
		got, err := gpu.ParseRelease(in)
		if (err != nil) != (want == "") || err == nil && got.String() != want {
			t.Errorf("ParseRelease(%q) = %s, %v, want %q", in, got, err, want)
		}
	}
	if !mustRelease(t, "v1.2.9").Known() || (gpu.Release{}).Known() {
		t.Error("Known is wrong")
	}
	if mustRelease(t, "v1.2.10").Compare(mustRelease(t, "v1.2.9")) <= 0 || mustRelease(t, "v1.10.0").Compare(mustRelease(t, "v2.0.0")) >= 0 {
		t.Error("Compare is wrong")
	}
}

func TestClass(t *testing.T) {
	for _, in := range []string{"0302", "030200", "0x030200"} {
		if c, err := gpu.ParseClass(in); err != nil || c != 0x030200 || c.String() != "0302" {
			t.Errorf("ParseClass(%q) = %v, %v", in, c, err)
		}
	}
	for _, bad := range []string{"", "03", "03020", "0x", "0302000", "-30200"} {
		if c, err := gpu.ParseClass(bad); err == nil {
			t.Errorf("ParseClass(%q) = %s", bad, c)
		}
	}
	is := map[gpu.Class]string{0x030000: "gpu", 0x030200: "gpu", 0x030100: "", 0x060000: "bridge", 0x060400: "bridge", 0x068000: "other", 0x040300: ""}
	for c, want := range is {
		got := ""
		switch {
		case c.IsGPU():
			got = "gpu"
		case c.IsBridge():
			got = "bridge"
		case c.IsOtherBridge():
			got = "other"
		}
		if got != want {
			t.Errorf("%06x is %q, want %q", uint32(c), got, want)
		}
	}
}

func TestRole(t *testing.T) {
	tests := map[string]struct {
		f    gpu.Function
		want gpu.Role
		gpu  bool
	}{
		"display controller": {gpu.Function{ID: gpu.NVIDIA(0x2204), Class: 0x030000}, gpu.RoleGPU, true},
		"3D controller":      {gpu.Function{ID: gpu.NVIDIA(0x2335), Class: 0x030200}, gpu.RoleGPU, true},
		"virtual function":   {gpu.Function{ID: gpu.NVIDIA(0x26b9), Class: 0x030200, VF: true}, gpu.RoleVF, false},
		"NVSwitch":           {gpu.Function{ID: gpu.NVIDIA(0x22a3), Class: 0x068000}, gpu.RoleNVSwitch, false},
		"audio":              {gpu.Function{ID: gpu.NVIDIA(0x1aef), Class: 0x040300}, gpu.RoleSibling, false},
		"another vendor's":   {gpu.Function{ID: gpu.ID{Vendor: 0x1002, Device: 0x740f}, Class: 0x030000}, gpu.RoleGPU, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if tc.f.Role() != tc.want || tc.f.IsGPU() != tc.gpu {
				t.Errorf("role %s, GPU %v, want %s, %v", tc.f.Role(), tc.f.IsGPU(), tc.want, tc.gpu)
			}
		})
	}
}

func TestDriver(t *testing.T) {
	tests := map[gpu.Driver]struct{ vfio, grace bool }{
		"vfio-pci": {true, false}, "nvgrace_gpu_vfio_pci": {true, true}, "nvgrace-gpu-vfio-pci": {true, true},
		"nvgrace_vfio_pci": {true, true}, "nvidia": {}, "": {}, "mlx5_vfio_pci": {},
	}
	for d, want := range tests {
		if d.IsVFIO() != want.vfio || d.IsGraceVFIO() != want.grace {
			t.Errorf("%q: %v, %v", d, d.IsVFIO(), d.IsGraceVFIO())
		}
	}
}

func TestGroup(t *testing.T) {
	tests := map[string]struct {
		g           gpu.Group
		known, none bool
	}{
		"unknown": {},
		"none":    {gpu.NoGroup(), true, true},
		"0":       {gpu.InGroup(0), true, false},
		"25":      {gpu.InGroup(25), true, false},
	}
	for want, tc := range tests {
		_, numbered := tc.g.ID()
		if tc.g.String() != want || tc.g.Known() != tc.known || tc.g.None() != tc.none || numbered != (tc.known && !tc.none) {
			t.Errorf("%s: %s, known %v, none %v", want, tc.g, tc.g.Known(), tc.g.None())
		}
	}
}

func TestHost(t *testing.T) {
	h := readLayout(t, "16")
	slices.Reverse(h.Functions)
	slices.Reverse(h.Mdevs)
	h.Sort()
	if diff := cmp.Diff(readLayout(t, "16"), h, cmp.AllowUnexported(gpu.Group{})); diff != "" {
		t.Errorf("Sort (-want +got):\n%s", diff)
	}
	var gpus []string
	for _, f := range h.GPUs() {
		gpus = append(gpus, f.Address.String())
	}
	if diff := cmp.Diff([]string{"0000:3b:00.0", "0000:af:00.0"}, gpus); diff != "" {
		t.Errorf("GPUs (-want +got):\n%s", diff)
	}
	groups := readLayout(t, "01").Groups()
	if len(groups) != 11 || len(groups[25]) != 4 || len(groups[0]) != 1 {
		t.Errorf("Groups: %v", groups)
	}
}

func TestResourceName(t *testing.T) {
	long := strings.Repeat("x", 64)
	tests := map[gpu.ResourceName]struct {
		short             string
		nvidia, container bool
		problem           string // part of Check's error, "" for a good name
	}{
		"nvidia.com/AD102GL_L40S":                  {"AD102GL_L40S", true, false, ""},
		"nvidia.com/GA107GL_A2___A16":              {"GA107GL_A2___A16", true, false, ""},
		"nvidia.com/NVIDIA_A10-12Q":                {"NVIDIA_A10-12Q", true, false, ""},
		"nvidia.com/gpu":                           {"gpu", true, true, ""},
		"nvidia.com/gpu.shared":                    {"gpu.shared", true, true, ""},
		"nvidia.com/mig-1g.5gb":                    {"mig-1g.5gb", true, true, ""},
		"example.com/gpu":                          {"gpu", false, false, ""},
		"nvidia.com/GA104_RTX_A4500_EMBEDDED_GPU_": {"GA104_RTX_A4500_EMBEDDED_GPU_", true, false, "start and end"},
		"nvidia.com/A10 ":                          {"A10 ", true, false, "white space"},
		"nvidia-a100":                              {"nvidia-a100", false, false, "no domain"},
		"/A10":                                     {"A10", false, false, "no domain"},
		"NVIDIA.com/A10":                           {"A10", false, false, "not a valid domain"},
		"nvidia.com/":                              {"", true, false, "start and end"},
		"nvidia.com/a/b":                           {"a/b", true, false, "start and end"},
		gpu.ResourceName("nvidia.com/" + long):     {long, true, false, "64 characters"},
		gpu.ResourceName("nvidia.com/" + long[1:]): {long[1:], true, false, ""},
	}
	for name, want := range tests {
		if name.Short() != want.short || name.IsNVIDIA() != want.nvidia || name.IsContainer() != want.container {
			t.Errorf("%q: %q, %v, %v", name, name.Short(), name.IsNVIDIA(), name.IsContainer())
		}
		err := name.Check()
		if (err != nil) != (want.problem != "") || err != nil && !strings.Contains(err.Error(), want.problem) {
			t.Errorf("%q.Check() = %v, want %q", name, err, want.problem)
		}
	}
}

func FuzzParseAddress(f *testing.F) {
	f.Add("0000:18:00.0")
	f.Add("10000:ff:1f.7")
	f.Add("00000:00:00.0")
	f.Fuzz(func(t *testing.T, in string) {
		a, err := gpu.ParseAddress(in)
		if err != nil {
			return
		}
		if again, err := gpu.ParseAddress(a.String()); err != nil || again != a {
			t.Errorf("ParseAddress(%q) = %s, again %s, %v", in, a, again, err)
		}
		// A domain may be left out, or padded with more zeros than sysfs has.
		if text := strings.ToLower(in); !strings.HasSuffix(a.String(), text) && !strings.HasSuffix(text, a.String()) {
			t.Errorf("ParseAddress(%q) = %s", in, a)
		}
	})
}

func FuzzParseID(f *testing.F) {
	f.Add("10de:2335")
	f.Fuzz(func(t *testing.T, in string) {
		id, err := gpu.ParseID(in)
		if err == nil && (id.String() != strings.ToLower(in) || id.Selector() != strings.ToUpper(in)) {
			t.Errorf("ParseID(%q) = %s", in, id)
		}
	})
}

func FuzzParseRelease(f *testing.F) {
	f.Add("v1.2.10-ubi9")
	f.Fuzz(func(t *testing.T, in string) {
		r, err := gpu.ParseRelease(in)
		if err != nil {
			return
		}
		if again, err := gpu.ParseRelease(r.String()); err != nil || again != r {
			t.Errorf("ParseRelease(%q) = %s, again %s, %v", in, r, again, err)
		}
	})
}
