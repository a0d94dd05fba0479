package discover

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	gpuLine   = "18:00.0 3D controller [0302]: NVIDIA Corporation GH100 [H200 SXM 141GB] [10de:2335] (rev a1)"
	audioLine = "18:00.1 Audio device [0403]: NVIDIA Corporation TU102 High Definition Audio Controller [10de:10f7] (rev a1)"
)

func TestParseLspci(t *testing.T) {
	for name, tc := range map[string]struct {
		text         []byte
		want         []string
		wantWarnings []string // parts of each, in order
	}{
		"with drivers": {
			text: text(gpuLine, "\tSubsystem: NVIDIA Corporation Device [10de:18be]", "\tKernel driver in use: vfio-pci", "\tKernel modules: nvidiafb, nouveau"),
			want: []string{"0000:18:00.0 0302 10de:2335 vfio-pci group=unknown"},
		},
		"a block without a driver line is unbound": {
			text: text(gpuLine, "\tKernel driver in use: vfio-pci", audioLine, "\tKernel modules: snd_hda_intel"),
			want: []string{"0000:18:00.0 0302 10de:2335 vfio-pci group=unknown", "0000:18:00.1 0403 10de:10f7 - group=unknown"},
		},
		"a bare line among detailed ones is unbound": {
			text: text("00:00.0 Host bridge [0600]: Intel Corporation Device [8086:09a2]", gpuLine, "\tKernel driver in use: vfio-pci"),
			want: []string{"0000:00:00.0 0600 8086:09a2 - group=unknown", "0000:18:00.0 0302 10de:2335 vfio-pci group=unknown"},
		},
		"no indented line at all leaves drivers unknown": {
			text: text(gpuLine, audioLine),
			want: []string{"0000:18:00.0 0302 10de:2335 ? group=unknown", "0000:18:00.1 0403 10de:10f7 ? group=unknown"},
		},
		"numbers only": {
			text: text("18:00.0 0302: 10de:2335 (rev a1)", "\tSubsystem: 10de:18be", "\tKernel driver in use: nvidia", "00:1f.0 0601: 8086:a30d"),
			want: []string{"0000:00:1f.0 0601 8086:a30d - group=unknown", "0000:18:00.0 0302 10de:2335 nvidia group=unknown"},
		},
		"domains, also VMD's": {
			text: text("0000:"+gpuLine, "10000:e1:00.0 Non-Volatile memory controller [0108]: Intel Corporation NVMe [8086:0a54]"),
			want: []string{"0000:18:00.0 0302 10de:2335 ? group=unknown", "10000:e1:00.0 0108 8086:0a54 ? group=unknown"},
		},
		"Windows line ends and a byte order mark": {
			text: []byte("\ufeff" + gpuLine + "\r\n\tKernel driver in use: vfio-pci\r\n"),
			want: []string{"0000:18:00.0 0302 10de:2335 vfio-pci group=unknown"},
		},
		"quoted in an issue": {
			text: text("> "+gpuLine, ">         Kernel driver in use: vfio-pci", "> > "+audioLine, ">>\tKernel driver in use: snd_hda_intel"),
			want: []string{"0000:18:00.0 0302 10de:2335 vfio-pci group=unknown", "0000:18:00.1 0403 10de:10f7 snd_hda_intel group=unknown"},
		},
		"all of it indented": {
			text: text("    "+gpuLine, "    \tKernel driver in use: vfio-pci"),
			want: []string{"0000:18:00.0 0302 10de:2335 vfio-pci group=unknown"},
		},
		"indentation lost": {
			text: text(gpuLine, "Subsystem: NVIDIA Corporation Device [10de:18be]", "Kernel driver in use: vfio-pci", "Kernel modules: nouveau"),
			want: []string{"0000:18:00.0 0302 10de:2335 vfio-pci group=unknown"},
		},
		"indented by hard blanks": {
			text: text(gpuLine, "\u00a0\u00a0\u00a0\u00a0Kernel driver in use: vfio-pci"),
			want: []string{"0000:18:00.0 0302 10de:2335 vfio-pci group=unknown"},
		},
		"upper case": {
			text: text("AF:00.0 3D controller [0302]: NVIDIA Corporation TU104GL [Tesla T4] [10DE:1EB8] (rev a1)"),
			want: []string{"0000:af:00.0 0302 10de:1eb8 ? group=unknown"},
		},
		"verbose": {
			text: text(gpuLine, "\tFlags: bus master, fast devsel, latency 0, IRQ 255, NUMA node 1, IOMMU group 33",
				"\tCapabilities: [60] Power Management version 3", "\tKernel driver in use: vfio-pci", "",
				"21:00.0 USB controller [0c03]: NVIDIA Corporation TU102 USB 3.1 Host Controller [10de:1ad6] (rev a1) (prog-if 30 [XHCI])",
				"\tFlags: fast devsel, IRQ 255", "\tKernel driver in use: xhci_hcd"),
			want: []string{"0000:18:00.0 0302 10de:2335 vfio-pci group=33 numa=1", "0000:21:00.0 0c03 10de:1ad6 xhci_hcd group=unknown"},
		},
		"very verbose": {
			text: text(gpuLine, "\tControl: I/O- Mem+ BusMaster+", "\tInterrupt: pin A routed to IRQ 255", "\tNUMA node: 0", "\tIOMMU group: 0",
				"\tCapabilities: [bcc v1] Single Root I/O Virtualization (SR-IOV)", "\t\tIOVCap:\tMigration- 10BitTagReq+", "\tKernel driver in use: vfio-pci"),
			want: []string{"0000:18:00.0 0302 10de:2335 vfio-pci group=0 numa=0"},
		},
		"fell off the bus": {
			text: text("18:00.0 3D controller [0302]: NVIDIA Corporation GH100 [H200 SXM 141GB] [10de:2335] (rev ff)", "\tKernel driver in use: nvidia",
				"2a:00.0 3D controller [0302]: NVIDIA Corporation GH100 [H200 SXM 141GB] [10de:2335] (rev a1)", "\t!!! Unknown header type 7f", "\tKernel driver in use: nvidia"),
			want: []string{"0000:18:00.0 0302 10de:2335 nvidia group=unknown off-bus", "0000:2a:00.0 0302 10de:2335 nvidia group=unknown off-bus"},
		},
		"revision ff of another vendor's function is no finding of ours": {
			text: text(gpuLine, "0e:00.0 VGA compatible controller [0300]: Advanced Micro Devices, Inc. [AMD/ATI] Navi 10 [1002:731f] (rev ff)"),
			want: []string{"0000:0e:00.0 0300 1002:731f ? group=unknown", "0000:18:00.0 0302 10de:2335 ? group=unknown"},
		},
		"a name that begins like an id": {
			text: text("01:00.0 3D controller [0302]: NVIDIA Corporation [10de:2335] [1234:5678 mm]"),
			want: []string{"0000:01:00.0 0302 10de:2335 ? group=unknown"},
		},
		"id clipped": {
			text: text(gpuLine, "\tKernel driver in use: vfio-pci", "18:00.1 Audio device [0403]: NVIDIA Corporation GM107 [GeForce 940MX] [10d", "\tKernel driver in use: snd_hda_intel",
				"18:00.2 USB controller [0c03]: NVIDIA Corporation TU102 [10de:1ad6]"),
			want: []string{
				"0000:18:00.0 0302 10de:2335 vfio-pci group=unknown", "0000:18:00.1 0403 - snd_hda_intel group=unknown",
				"0000:18:00.2 0c03 10de:1ad6 - group=unknown",
			},
			wantWarnings: []string{"line 3"},
		},
		"clipped everywhere it can be": {
			text: text(gpuLine, "01:00.0 VGA compatible controller [0300]: NVIDIA Corporation GM107M [10de:1", "02:00.0 VGA compatible controller [0300]: NVIDIA Corporation GM107M [10de:1392",
				"03:00.0 VGA compatible controller [0300]", "04:00.0 VGA compatible controller [03", "05:00.0 VGA compa", "06:00.0 VGA compatible controller [0300]: NVIDIA Corporation GM107M [10de:1392]"),
			want: []string{
				"0000:01:00.0 0300 - ? group=unknown", "0000:02:00.0 0300 10de:1392 ? group=unknown", "0000:03:00.0 0300 - ? group=unknown",
				"0000:04:00.0 0000 - ? group=unknown", "0000:05:00.0 0000 - ? group=unknown", "0000:06:00.0 0300 10de:1392 ? group=unknown",
				"0000:18:00.0 0302 10de:2335 ? group=unknown",
			},
			wantWarnings: []string{"line 2", "line 4", "line 5", "line 6"},
		},
		"a number at the clip is not trusted": {
			text: clip(78,
				"18:00.0 3D controller [0302]: NVIDIA Corporation GH100 [H200 SXM 141GB] [10de:2335] (rev a1)",
				"        Flags: bus master, fast devsel, IRQ 255, NUMA node 1, IOMMU group 333333",
				"2a:00.0 3D controller [0302]: NVIDIA Corporation GH100 [10de:2335] (rev a1)",
				"        Flags: bus master, 66MHz, user-definable features, fast, NUMA node 11111",
				"3a:00.0 3D controller [0302]: NVIDIA Corporation GH100 [10de:2335] (rev a1)",
				"        Flags: bus master, NUMA node 1, IOMMU group 34"),
			want: []string{
				"0000:18:00.0 0302 - - group=unknown numa=1", "0000:2a:00.0 0302 10de:2335 - group=unknown",
				"0000:3a:00.0 0302 10de:2335 - group=34 numa=1",
			},
			wantWarnings: []string{"line 1"},
		},
		"prompts and fences around": {
			text:         text("```", "root@node:~# lspci -nnk", gpuLine, "\tKernel modules: nouveau", "```"),
			want:         []string{"0000:18:00.0 0302 10de:2335 - group=unknown"},
			wantWarnings: []string{"3 line(s)"},
		},
		"a driver cut off from its device belongs to nobody": {
			text: text(gpuLine, "\tKernel driver in use: vfio-pci", audioLine, "8:00.2 USB controller [0c03]: NVIDIA [10de:1ad6]", "\tKernel driver in use: xhci_hcd"),
			want: []string{"0000:18:00.0 0302 10de:2335 vfio-pci group=unknown", "0000:18:00.1 0403 10de:10f7 ? group=unknown"},

			wantWarnings: []string{"first line 4"},
		},
		"indented text before the first device": {
			text:         text("\tKernel driver in use: ahci", gpuLine, "\tKernel driver in use: vfio-pci"),
			want:         []string{"0000:18:00.0 0302 10de:2335 vfio-pci group=unknown"},
			wantWarnings: []string{"first line 1"},
		},
		"the list first, the details after": {
			text:         text(gpuLine, audioLine, gpuLine, "\tKernel driver in use: vfio-pci", gpuLine),
			want:         []string{"0000:18:00.0 0302 10de:2335 vfio-pci group=unknown", "0000:18:00.1 0403 10de:10f7 - group=unknown"},
			wantWarnings: []string{"line 3", "line 5"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, warnings, err := ParseLspci(tc.text)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, summary(got)); diff != "" {
				t.Errorf("ParseLspci() (-want +got):\n%s", diff)
			}
			checkParts(t, warnings, tc.wantWarnings)
		})
	}
}

func checkParts(t *testing.T, got, parts []string) {
	t.Helper()
	if len(got) != len(parts) {
		t.Fatalf("warnings %q, want %d", got, len(parts))
	}
	for i := range parts {
		if !strings.Contains(got[i], parts[i]) {
			t.Errorf("warning %q does not name %q", got[i], parts[i])
		}
	}
}

func TestParseLspciKeepsProgrammingInterface(t *testing.T) {
	got, _, err := ParseLspci(text("18:00.2 USB controller [0c03]: NVIDIA Corporation TU102 [10de:1ad6] (rev a1) (prog-if 30 [XHCI])"))
	if err != nil || got.Functions[0].Class != usb {
		t.Errorf("ParseLspci(): %v, error %v", got.Functions, err)
	}
}

func TestParseLspciErrors(t *testing.T) {
	for name, tc := range map[string]struct {
		text []byte
		want []string
	}{
		"nothing":             {text: nil, want: []string{"address", "lspci -nnk"}},
		"another command":     {text: text("Mon Nov 30 01:36:41 2026", "+-----+", "| NVIDIA-SMI 570.86 |"), want: []string{"address", "lspci -nnk"}},
		"names without ids":   {text: text("18:00.0 3D controller: NVIDIA Corporation GH100 [H200 SXM 141GB] (rev a1)", "18:00.1 Audio device: NVIDIA"), want: []string{"id", "lspci -nnk"}},
		"details only":        {text: text("\tKernel driver in use: vfio-pci"), want: []string{"lspci -nnk"}},
		"two machines":        {text: text(gpuLine, "18:00.0 3D controller [0302]: NVIDIA Corporation TU104GL [Tesla T4] [10de:1eb8] (rev a1)"), want: []string{"line 2", "line 1", "one machine"}},
		"an address, no text": {text: text("18:00.0"), want: []string{"lspci -nnk"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := ParseLspci(tc.text)
			if err == nil {
				t.Fatal("ParseLspci(): no error")
			}
			for _, part := range tc.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not name %q", err, part)
				}
			}
		})
	}
}

// clip cuts every line at a terminal's width.
func clip(width int, lines ...string) []byte {
	for i := range lines {
		lines[i] = lines[i][:min(width, len(lines[i]))]
	}
	return text(lines...)
}
