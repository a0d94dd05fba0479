package discover

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/test/fakesys"
)

func twoGPUs() gpu.Host {
	return gpu.Host{IOMMU: gpu.Present, Functions: []gpu.Function{
		{Address: addr("0000:18:00.0"), ID: gpu.NVIDIA(0x2335), Class: three, Driver: "vfio-pci", Group: gpu.InGroup(40), NUMA: new(0), PowerState: "D0"},
		{Address: addr("0000:2a:00.0"), ID: gpu.NVIDIA(0x2335), Class: three, Driver: "nvidia", Group: gpu.InGroup(41), NUMA: new(1), PowerState: "D0"},
	}}
}

// TestHostSurvives spoils one file of one device. ghw answers each of these
// with no devices and no error.
func TestHostSurvives(t *testing.T) {
	const first = "sys/devices/pci0000:18/0000:18:00.0/"
	both := []string{
		"0000:18:00.0 0302 10de:2335 vfio-pci group=40 numa=0",
		"0000:2a:00.0 0302 10de:2335 nvidia group=41 numa=1",
	}
	for name, tc := range map[string]struct {
		spoil        func(t *testing.T, root string)
		want         []string
		wantWarnings []string // parts of each
	}{
		"modalias missing":     {spoil: remove(first + "modalias"), want: both},
		"modalias unreadable":  {spoil: directory(first + "modalias"), want: both},
		"modalias truncated":   {spoil: write(first+"modalias", "pci:v000010DEd00002335sv0000"), want: both},
		"modalias without ids": {spoil: write(first+"modalias", "pci:v0000....d0000....sv000010DEsd00001234bc03sc02i00"), want: both},
		"modalias and vendor unreadable": {
			spoil: both2(directory(first+"modalias"), directory(first+"vendor")), want: both[1:],
			wantWarnings: []string{"0000:18:00.0"},
		},
		"class is no number": {
			spoil: both2(remove(first+"modalias"), write(first+"class", "none")), want: both[1:],
			wantWarnings: []string{`"none"`},
		},
		"removed between listing and reading": {spoil: remove(first), want: both[1:], wantWarnings: []string{"0000:18:00.0"}},
		"an address that is none": {
			spoil: directory("sys/bus/pci/devices/wd:01"), want: both, wantWarnings: []string{`"wd:01"`},
		},
		"no group directory at all": {spoil: remove("sys/kernel"), want: both},
	} {
		t.Run(name, func(t *testing.T) {
			root := fakesys.New(t, twoGPUs())
			tc.spoil(t, root)
			got, warnings, err := Host(root)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, summary(got)); diff != "" {
				t.Errorf("Host() (-want +got):\n%s", diff)
			}
			if len(warnings) != len(tc.wantWarnings) {
				t.Fatalf("Host() warns %q, want %d", warnings, len(tc.wantWarnings))
			}
			for i, part := range tc.wantWarnings {
				if !strings.Contains(warnings[i], part) {
					t.Errorf("warning %q does not name %q", warnings[i], part)
				}
			}
		})
	}
}

// TestHostVanishes removes a GPU after ghw has listed it.
func TestHostVanishes(t *testing.T) {
	root := fakesys.New(t, twoGPUs())
	s := &scan{sys: newSysfs(root)}
	functions, err := s.inventory()
	if err != nil || len(functions) != 2 {
		t.Fatalf("inventory(): %d functions, error %v", len(functions), err)
	}
	remove("sys/devices/pci0000:18")(t, root)
	functions = s.detail(functions)
	if len(functions) != 1 || functions[0].Address != addr("0000:2a:00.0") {
		t.Errorf("detail() keeps %v, want 0000:2a:00.0", summary(gpu.Host{Functions: functions}))
	}
	if len(s.warnings) != 1 || !strings.Contains(s.warnings[0], "0000:18:00.0") {
		t.Errorf("detail() warns %q, want one about 0000:18:00.0", s.warnings)
	}
}

func TestHostWithoutPCI(t *testing.T) {
	root := t.TempDir()
	_, _, err := Host(root)
	if !errors.Is(err, ErrNoPCI) {
		t.Fatalf("Host() error %v, want ErrNoPCI", err)
	}
	for _, part := range []string{filepath.Join(root, "sys/bus/pci/devices"), "lspci -nnk"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q does not name %q", err, part)
		}
	}
}

func TestHostEmptyBus(t *testing.T) {
	got, warnings, err := Host(fakesys.New(t, gpu.Host{}))
	if err != nil || len(got.Functions) != 0 {
		t.Fatalf("Host(): %d functions, error %v", len(got.Functions), err)
	}
	if len(warnings) != 1 || !strings.Contains(warnings[0], "is empty") {
		t.Errorf("Host() warns %q, want one about an empty bus", warnings)
	}
}

// TestHostBareContainer has of every GPU what ghw needs and nothing else.
func TestHostBareContainer(t *testing.T) {
	h := twoGPUs()
	var omit []string
	for _, f := range h.Functions {
		for _, file := range []string{"config", "numa_node", "driver_override", "power_state", "revision", "vendor", "device", "class"} {
			omit = append(omit, f.Address.String()+"/"+file)
		}
	}
	got, warnings, err := Host(fakesys.New(t, h, omit...))
	if err != nil || len(warnings) > 0 {
		t.Fatalf("Host(): warnings %q, error %v", warnings, err)
	}
	want := []string{
		"0000:18:00.0 0302 10de:2335 vfio-pci group=40",
		"0000:2a:00.0 0302 10de:2335 nvidia group=41",
	}
	if diff := cmp.Diff(want, summary(got)); diff != "" {
		t.Errorf("Host() (-want +got):\n%s", diff)
	}
}

// TestHostUnreadable spoils everything that ghw does not need: nothing of it is
// worth an error, nor does it pass for a value.
func TestHostUnreadable(t *testing.T) {
	vf := addr("0000:3b:00.4")
	pf := addr("0000:3b:00.0")
	h := gpu.Host{Functions: []gpu.Function{{
		Address: vf, ID: gpu.NVIDIA(0x2236), Class: three, Driver: "nvidia", Group: gpu.InGroup(1), VF: true, PhysFn: &pf, NUMA: new(1), OffBus: true,
		LinkSpeed: "16.0 GT/s PCIe", LinkWidth: 8, PowerState: "D0", TotalVFs: 4, NumVFs: 4,
		MdevTypes: []gpu.MdevType{{ID: "nvidia-592", Name: "NVIDIA A10-12Q", Available: 1}}, CurrentVGPU: "12",
	}}}
	root := fakesys.New(t, h)
	dir := "sys/devices/pci0000:3b/0000:3b:00.4/"
	for _, f := range []string{
		"config", "numa_node", "power_state", "driver_override", "current_link_speed", "current_link_width",
		"sriov_totalvfs", "sriov_numvfs", "physfn", "nvidia", "mdev_supported_types/nvidia-592/name", "mdev_supported_types/nvidia-592/available_instances",
	} {
		directory(dir+f)(t, root)
	}
	got, warnings, err := Host(root)
	if err != nil || len(warnings) > 0 {
		t.Fatalf("Host(): warnings %q, error %v", warnings, err)
	}
	want := gpu.Host{Functions: []gpu.Function{{
		Address: vf, ID: gpu.NVIDIA(0x2236), Class: three, Driver: "nvidia", Group: gpu.InGroup(1), VF: true,
		MdevTypes: []gpu.MdevType{{ID: "nvidia-592"}},
	}}, IOMMU: gpu.Present} // concluded from the group
	if diff := cmp.Diff(want, got, compareGroups()); diff != "" {
		t.Errorf("Host() (-want +got):\n%s", diff)
	}
}

// TestHostIOMMUFDInContainer has no host /dev: sysfs knows of iommufd, while
// missing nodes mean nothing.
func TestHostIOMMUFDInContainer(t *testing.T) {
	h := twoGPUs()
	h.IOMMUFD = gpu.Present
	root := fakesys.New(t, h)
	remove("dev")(t, root)
	got, _, err := Host(root)
	if err != nil || got.IOMMUFD != gpu.Present || got.Functions[0].VFIONode != gpu.PresenceUnknown {
		t.Errorf("Host(): IOMMUFD %v, VFIONode %v, error %v", got.IOMMUFD, got.Functions[0].VFIONode, err)
	}
}

// TestHostIOMMUFD loses the node of one VFIO device. That its group still has
// one does not help: the device plugin hands out both.
func TestHostIOMMUFD(t *testing.T) {
	h := twoGPUs()
	h.IOMMUFD = gpu.Present
	for i := range h.Functions {
		h.Functions[i].Driver, h.Functions[i].VFIONode = "vfio-pci", gpu.Present
	}
	root := fakesys.New(t, h)
	remove("dev/vfio/devices/vfio1")(t, root)
	got, _, err := Host(root)
	if err != nil || got.Functions[0].VFIONode != gpu.Present || got.Functions[1].VFIONode != gpu.Absent {
		t.Errorf("Host(): nodes %v and %v, error %v", got.Functions[0].VFIONode, got.Functions[1].VFIONode, err)
	}
}

// TestHostOffBusLink has the link registers of a lost function read as ones.
func TestHostOffBusLink(t *testing.T) {
	h := twoGPUs()
	h.Functions[0].OffBus, h.Functions[0].LinkSpeed, h.Functions[0].LinkWidth = true, "Unknown", 63
	got, _, err := Host(fakesys.New(t, h))
	if f := got.Functions[0]; err != nil || !f.OffBus || f.LinkSpeed != "" || f.LinkWidth != 0 {
		t.Errorf("Host(): off bus %v, link %q ×%d, error %v", f.OffBus, f.LinkSpeed, f.LinkWidth, err)
	}
}

// TestHostForeignMdev has a mediated device that no PCI function carries, as
// IBM's crypto cards do.
func TestHostForeignMdev(t *testing.T) {
	root := fakesys.New(t, twoGPUs())
	directory("sys/devices/vfio_ap/matrix/0a6b4c1e-0000-4000-8000-000000000009")(t, root)
	directory("sys/bus/mdev/devices")(t, root)
	link := filepath.Join(root, "sys/bus/mdev/devices/0a6b4c1e-0000-4000-8000-000000000009")
	if err := os.Symlink("../../../devices/vfio_ap/matrix/0a6b4c1e-0000-4000-8000-000000000009", link); err != nil {
		t.Fatal(err)
	}
	got, warnings, err := Host(root)
	if err != nil || len(got.Mdevs) != 0 || len(warnings) != 1 {
		t.Errorf("Host(): mdevs %v, warnings %q, error %v", got.Mdevs, warnings, err)
	}
}

type spoiler = func(t *testing.T, root string)

func remove(path string) spoiler {
	return func(t *testing.T, root string) {
		t.Helper()
		if err := os.RemoveAll(filepath.Join(root, path)); err != nil {
			t.Fatal(err)
		}
	}
}

// directory puts a directory in a file's place: even root cannot read that.
func directory(path string) spoiler {
	return func(t *testing.T, root string) {
		t.Helper()
		remove(path)(t, root)
		if err := os.MkdirAll(filepath.Join(root, path), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			t.Fatal(err)
		}
	}
}

func write(path, content string) spoiler {
	return func(t *testing.T, root string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(root, path), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func both2(a, b spoiler) spoiler {
	return func(t *testing.T, root string) {
		t.Helper()
		a(t, root)
		b(t, root)
	}
}
