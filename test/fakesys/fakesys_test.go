package fakesys_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/test/fakesys"
)

const layout = `address	vendor:device	class	driver	iommu_group	numa	physfn	note
0000:01:00.0	8086:1563	020000	ixgbe	1	0	-	NIC
0000:3b:00.0	10de:2236	030200	nvidia	44	0	-	A10 PF
0000:3b:00.4	10de:2236	030200	nvidia	300	-	0000:3b:00.0	A10 VF
0a6b4c1e-0000-4000-8000-000000000001	mdev	-	nvidia-vgpu-vfio	400	-	0000:3b:00.4	type=NVIDIA A10-12Q; type_id=nvidia-592
`

// TestBuild compares files and links with what the kernel shows.
func TestBuild(t *testing.T) {
	m, err := fakesys.ParseLayout(layout)
	if err != nil {
		t.Fatal(err)
	}
	root := fakesys.New(t, m.Host, m.Omit...)
	devices := filepath.Join(root, "sys/bus/pci/devices")
	for path, want := range map[string]string{
		"0000:3b:00.0/modalias":                 "pci:v000010DEd00002236sv000010DEsd00001234bc03sc02i00\n",
		"0000:3b:00.0/vendor":                   "0x10de\n",
		"0000:3b:00.0/class":                    "0x030200\n",
		"0000:3b:00.0/numa_node":                "0\n",
		"0000:3b:00.0/driver_override":          "(null)\n",
		"0000:3b:00.0/virtfn0/iommu_group/type": "DMA\n",
		"0000:3b:00.4/physfn/device":            "0x2236\n",
		"0000:3b:00.4/mdev_supported_types/nvidia-592/available_instances":                       "0\n",
		"0000:3b:00.4/0a6b4c1e-0000-4000-8000-000000000001/mdev_type/name":                       "NVIDIA A10-12Q\n",
		"0000:01:00.0/driver/0000:01:00.0/device":                                                "0x1563\n",
		"0000:01:00.0/iommu_group/devices/0000:01:00.0/vendor":                                   "0x8086\n",
		"../../mdev/devices/0a6b4c1e-0000-4000-8000-000000000001/../device":                      "0x2236\n",
		"../../../kernel/iommu_groups/400/devices/0a6b4c1e-0000-4000-8000-000000000001/../class": "0x030200\n",
	} {
		got, err := os.ReadFile(devices + "/" + path)
		if err != nil || string(got) != want {
			t.Errorf("%s: %q, error %v, want %q", path, got, err, want)
		}
	}
	if _, err := os.Stat(filepath.Join(devices, "0000:3b:00.4/numa_node")); !os.IsNotExist(err) {
		t.Errorf("numa_node of \"-\" exists: %v", err)
	}
}

func TestLspciReadsTheTree(t *testing.T) {
	lspci, err := exec.LookPath("lspci")
	if err != nil {
		t.Skip("lspci is not installed")
	}
	h := fakesys.Dense(256, 8)
	cmd := exec.CommandContext(t.Context(), lspci, "-O", "sysfs.path="+fakesys.New(t, h)+"/sys/bus/pci", "-nk")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]int{"(rev a1)": 256, "0302: 10de:2335": 8, "Kernel driver in use: vfio-pci": 8} {
		if got := strings.Count(string(out), text); got != want {
			t.Errorf("lspci prints %q %d times, want %d", text, got, want)
		}
	}
}

func TestDense(t *testing.T) {
	for name, tc := range map[string]struct {
		host             gpu.Host
		functions, cards int
	}{
		"passthrough":                  {host: fakesys.Dense(256, 8), functions: 256, cards: 8},
		"more buses than a domain has": {host: fakesys.Dense(1500, 16), functions: 1500, cards: 16},
		"vGPU":                         {host: fakesys.DenseVFs(8), functions: 8 * 33, cards: 8},
	} {
		t.Run(name, func(t *testing.T) {
			seen := map[gpu.Address]bool{}
			for _, f := range tc.host.Functions {
				seen[f.Address] = true
			}
			if len(seen) != tc.functions || len(tc.host.GPUs()) != tc.cards {
				t.Errorf("%d addresses and %d GPUs, want %d and %d", len(seen), len(tc.host.GPUs()), tc.functions, tc.cards)
			}
		})
	}
}

func TestParseLayoutErrors(t *testing.T) {
	const header = "address\tvendor:device\tclass\tdriver\tiommu_group\tnuma\tphysfn\tnote\n"
	for name, row := range map[string]string{
		"too few columns": "0000:01:00.0\t8086:1563",
		"address":         "01\t8086:1563\t020000\t-\t1\t0\t-\t-",
		"id":              "0000:01:00.0\t8086\t020000\t-\t1\t0\t-\t-",
		"class":           "0000:01:00.0\t8086:1563\tx\t-\t1\t0\t-\t-",
		"group":           "0000:01:00.0\t8086:1563\t020000\t-\tx\t0\t-\t-",
		"NUMA node":       "0000:01:00.0\t8086:1563\t020000\t-\t1\tx\t-\t-",
		"physical":        "0000:01:00.0\t8086:1563\t020000\t-\t1\t0\tx\t-",
		"mdev parent":     "0a6b4c1e\tmdev\t-\t-\t1\t-\tx\t-",
	} {
		t.Run(name, func(t *testing.T) {
			m, err := fakesys.ParseLayout(header + row + "\n")
			if err == nil || !strings.Contains(err.Error(), "line 2") {
				t.Errorf("ParseLayout() = %v, error %v, want one that names line 2", m, err)
			}
		})
	}
}

func TestBuildErrors(t *testing.T) {
	m := fakesys.Machine{Omit: []string{"0000:01:00.0/modalias"}}
	if err := m.Build(t.TempDir()); err == nil {
		t.Error("Build() leaves out a file of a function that does not exist")
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := (fakesys.Machine{}).Build(file); err == nil {
		t.Error("Build() builds below a file")
	}
}
