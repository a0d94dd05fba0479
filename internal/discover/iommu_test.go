package discover

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// card is a GPU with its audio function and a NIC beside it.
func card() gpu.Host {
	return gpu.Host{Functions: []gpu.Function{
		fn("0000:01:00.0", gpu.NVIDIA(0x1e07), vga, "vfio-pci", gpu.Group{}),
		fn("0000:01:00.1", gpu.NVIDIA(0x10f7), audio, "vfio-pci", gpu.Group{}),
		fn("0000:02:00.0", gpu.ID{Vendor: 0x8086, Device: 0x1563}, 0x020000, "ixgbe", gpu.Group{}),
	}}
}

func TestApplyIOMMU(t *testing.T) {
	const (
		gpu13   = "0000:01:00.0 0300 10de:1e07 vfio-pci group=13"
		audio13 = "0000:01:00.1 0403 10de:10f7 vfio-pci group=13"
		nic5    = "0000:02:00.0 0200 8086:1563 ixgbe group=5"
	)
	for name, tc := range map[string]struct {
		text         []byte
		want         []string
		wantIOMMU    gpu.Presence
		wantWarnings []string
	}{
		"two columns": {
			text: text("0000:01:00.0\t13", "01:00.1 13", "0000:02:00.0\t5"),
			want: []string{gpu13, audio13, nic5}, wantIOMMU: gpu.Present,
		},
		"what ls prints of the groups' folders": {
			text: text("/sys/kernel/iommu_groups/13/devices:", "0000:01:00.0", "0000:01:00.1", "", "/sys/kernel/iommu_groups/5/devices:", "0000:02:00.0"),
			want: []string{gpu13, audio13, nic5}, wantIOMMU: gpu.Present,
		},
		"a pair below a header stands for itself": {
			text: text("IOMMU Group 13:", "\t01:00.0 VGA compatible controller", "01:00.1 13", "0000:02:00.0 5"),
			want: []string{gpu13, audio13, nic5}, wantIOMMU: gpu.Present,
		},
		"header, comments, blank lines": {
			text: text("address\tiommu_group", "# of node-1", "", "0000:01:00.0\t13 # the GPU", "0000:01:00.1\t13", "0000:02:00.0\t5"),
			want: []string{gpu13, audio13, nic5}, wantIOMMU: gpu.Present,
		},
		"absent and dashed are in no group; 0 is one": {
			text:      text("0000:01:00.0\t0", "0000:01:00.1\t-"),
			want:      []string{"0000:01:00.0 0300 10de:1e07 vfio-pci group=0", "0000:01:00.1 0403 10de:10f7 vfio-pci group=none", "0000:02:00.0 0200 8086:1563 ixgbe group=none"},
			wantIOMMU: gpu.Present,
		},
		"nothing": {
			text: nil,
			want: []string{"0000:01:00.0 0300 10de:1e07 vfio-pci group=none", "0000:01:00.1 0403 10de:10f7 vfio-pci group=none", "0000:02:00.0 0200 8086:1563 ixgbe group=none"},
		},
		"output of find": {
			text: text("/sys/kernel/iommu_groups/13/devices/0000:01:00.0", "/sys/kernel/iommu_groups/13/devices/0000:01:00.1",
				"/sys/kernel/iommu_groups/5/devices/0000:02:00.0", "/sys/kernel/iommu_groups/400/devices/0a6b4c1e-0000-4000-8000-000000000001"),
			want: []string{gpu13, audio13, nic5}, wantIOMMU: gpu.Present,
		},
		"listing of links": {
			text: text("lrwxrwxrwx 1 root root 0 Nov 30 10:15 /sys/bus/pci/devices/0000:01:00.0/iommu_group -> ../../../../kernel/iommu_groups/13",
				"lrwxrwxrwx 1 root root 0 Nov 30 10:15 /sys/kernel/iommu_groups/13/devices/0000:01:00.1 -> ../../../../devices/pci0000:00/0000:00:01.0/0000:01:00.1",
				"/sys/devices/pci0000:00/0000:00:02.0/0000:02:00.0/iommu_group -> ../../../../kernel/iommu_groups/5"),
			want: []string{gpu13, audio13, nic5}, wantIOMMU: gpu.Present,
		},
		"script, one line a device": {
			text: text("IOMMU Group 13 01:00.0 VGA compatible controller [0300]: NVIDIA Corporation TU102 [10de:1e07] (rev a1)",
				"IOMMU Group 13 01:00.1 Audio device [0403]: NVIDIA Corporation TU102 [10de:10f7] (rev a1)",
				"IOMMU Group 5 02:00.0 Ethernet controller [0200]: Intel [8086:1563]"),
			want: []string{gpu13, audio13, nic5}, wantIOMMU: gpu.Present,
		},
		"script, devices below their group": {
			text: text("IOMMU Group 13:", "\t01:00.0 VGA compatible controller [0300]: NVIDIA Corporation TU102 [10de:1e07] (rev a1)",
				"\t01:00.1 Audio device [0403]: NVIDIA Corporation TU102 [10de:10f7] (rev a1)", "IOMMU Group 5:", "\t02:00.0 Ethernet controller [0200]: Intel [8086:1563]"),
			want: []string{gpu13, audio13, nic5}, wantIOMMU: gpu.Present,
		},
		"a member of the GPU's group that lspci did not show": {
			text: text("0000:00:01.0\t13", "0000:01:00.0\t13", "0000:01:00.1\t13", "0000:02:00.0\t5", "0000:03:00.0\t5", "0000:04:00.0\t6", "0000:00:01.0\t13"),
			want: []string{"0000:00:01.0 0000 - ? group=13", gpu13, audio13, nic5}, wantIOMMU: gpu.Present,
			wantWarnings: []string{"line 1: 0000:00:01.0 shares IOMMU group 13"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := card()
			warnings, err := ApplyIOMMU(&h, tc.text)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, summary(h)); diff != "" {
				t.Errorf("ApplyIOMMU() (-want +got):\n%s", diff)
			}
			if h.IOMMU != tc.wantIOMMU {
				t.Errorf("ApplyIOMMU(): IOMMU %v, want %v", h.IOMMU, tc.wantIOMMU)
			}
			checkParts(t, warnings, tc.wantWarnings)
		})
	}
}

func TestApplyIOMMUErrors(t *testing.T) {
	for name, tc := range map[string]struct {
		text []byte
		want []string
	}{
		"no group":             {text: text("0000:01:00.0\t13", "0000:01:00.1"), want: []string{"line 2", `"0000:01:00.1"`}},
		"no address":           {text: text("13"), want: []string{"line 1", `"13"`}},
		"clipped address":      {text: text("0000:01:00 13"), want: []string{"line 1", `"0000:01:00 13"`}},
		"group is no number":   {text: text("0000:01:00.0 thirteen"), want: []string{"line 1", `"thirteen"`}},
		"negative group":       {text: text("0000:01:00.0 -1"), want: []string{"line 1", `"-1"`}},
		"three columns":        {text: text("0000:01:00.0 13 14"), want: []string{"line 1"}},
		"second header":        {text: text("address group", "address group"), want: []string{"line 2"}},
		"path without number":  {text: text("/sys/kernel/iommu_groups/x/devices/0000:01:00.0"), want: []string{"line 1", `"x"`}},
		"script, no number":    {text: text("IOMMU Group x 01:00.0 VGA"), want: []string{"line 1", `"x"`}},
		"script, no address":   {text: text("IOMMU Group 13 nothing"), want: []string{"line 1", `"nothing"`}},
		"two groups, one home": {text: text("0000:01:00.0 13", "01:00.0 14"), want: []string{"line 2", "group 14", "group 13", "line 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			h := card()
			_, err := ApplyIOMMU(&h, tc.text)
			if err == nil {
				t.Fatal("ApplyIOMMU(): no error")
			}
			for _, part := range tc.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not name %q", err, part)
				}
			}
			if diff := cmp.Diff(card(), h, compareGroups()); diff != "" {
				t.Errorf("a refused text changes the host (-want +got):\n%s", diff)
			}
		})
	}
}
