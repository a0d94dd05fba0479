package cli

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/internal/gpu"
)

// TestWhatCasesAskBesides asserts what a case's report asks for and its machine
// checks do not say: which findings explain it, and which must not appear.
func TestWhatCasesAskBesides(t *testing.T) {
	tests := map[string]struct {
		want    []string // "CODE text": a finding with the code whose message or hint has the text
		wantNot []string // codes, or texts that no finding may have
	}{
		"01": {want: []string{"GPU0204 0000:08:00.2", "GPU0204 nvidia-gpu", "GPU0312 10DE:1E02"}, wantNot: []string{"GPU0308"}},
		"02": {want: []string{"GPU0315 kubevirt/kubevirt-config carries feature-gates and permittedHostDevices", "GPU0308 10DE:1EB8", "GPU0503 nvidia.com/gpu", "GPU0411 TU104GL_TESLA_T4"}, wantNot: []string{"GPU0313"}},
		"03": {want: []string{"GPU0303 spec.permittedHostDevices", "GPU0501 TU104GL_Tesla_T4"}, wantNot: []string{"GPU0319"}},
		"05": {want: []string{"GPU0303 spec.configuration.pciHostDevices", "GPU0306 white space"}},
		"06": {want: []string{"GPU0303 permittedHostDevices.gpus"}},
		"07": {want: []string{"GPU0305 10de:1db4,10de:20b0,", "GPU0307 container device plugin"}},
		"08": {want: []string{"GPU0305 8086:*"}},
		"14": {want: []string{"GPU0311 12 times"}},
		"16": {want: []string{"GPU0316 pciDeviceSelector"}},
		"21": {want: []string{}, wantNot: []string{"GPU0308", "GPU0309"}},
		"23": {want: []string{"GPU0308 L40S-24Q", "GPU0208 2 virtual functions"}},
		"24": {want: []string{"GPU0201 0000:b1:00.0", "GPU0312 AD104GL_L4"}, wantNot: []string{"GPU0410", "GPU0409"}},
		"26": {want: []string{"GPU0310 the last one gets the devices", "GPU0207 0000:03:00.0, 0000:04:00.0", "GPU0403 in-tree", "GPU0501 example.com/2080_Ti"}, wantNot: []string{"--permit"}},
		"28": {want: []string{"GPU0303 nodeMediatedDeviceTypes"}, wantNot: []string{"PCI_RESOURCE_"}},
		"30": {want: []string{`GPU0313 "hostDevices" is not HostDevices`, `GPU0313 "gpu" is not GPU`}},
		"32": {wantNot: []string{"devices.kubevirt.io", "nvme"}},
		"33": {want: []string{"GPU0402 would name it nvidia.com/TU106_GEFORCE_RTX_2060_REV__A"}, wantNot: []string{"10f9", "GPU0404"}},
		"35": {want: []string{"GPU0201 0000:02:00.0", "GPU0412 nvidia.com/2571"}},
		"37": {want: []string{"GPU0402 the bare id"}},
		"38": {want: []string{"GPU0405 GA104_RTX_A4500_EMBEDDED_GPU_"}},
		"40": {want: []string{"GPU0402 nvidia.com/20b0", "GPU0412 GA100_A100_SXM4_40GB"}},
		"42": {want: []string{"GPU0409 4 of 6 x 10DE:2204", "GPU0409 a group of its own", "GPU0207 0000:03:00.0, 0000:04:00.0", "GPU0207 0000:21:00.0, 0000:22:00.0"}},
		"43": {want: []string{"GPU0207 2 GPUs (0000:47:00.0, 0000:4d:00.0)"}, wantNot: []string{"GPU0204", "1000:c010"}},
		"44": {want: []string{"GPU0209 4 x NVSwitch (10de:22a3) on driver nvidia-nvswitch", "GPU0201 8 x 10de:2335"}},
		"46": {want: []string{"GPU0202 6 x 10de:1db4"}, wantNot: []string{"GPU0201"}},
		"47": {want: []string{"GPU0208 7 virtual functions of 0000:3b:00.0", "GPU0201 0000:3b:00.0"}},
		"49": {want: []string{"GPU0204 0000:01:00.1", "GPU0204 snd_hda_intel"}},
		"50": {want: []string{"GPU0213 pre-installed", "GPU0213 remove the label", "GPU0201 driver nvidia"}},
		"51": {want: []string{"GPU0206 0009:01:00.0", "GPU0206 SMMU", "GPU0211 10DE:2941"}, wantNot: []string{"0008:01:00.0"}},
		"52": {wantNot: []string{"marvell.com/fc", "0002:01:00"}},
		"53": {want: []string{"GPU0410 offers 2 x nvidia.com/GA102GL_A40, but its inventory shows 1", "GPU0410 restart the device plugin"}},
		"55": {want: []string{"GPU0411 NVIDIA_RTX5000-Ada-8Q", "GPU0504 NVIDIA_RTX5000-Ada-8Q"}},
		"56": {want: []string{"GPU0307 GA100GL_A30_PCIE", "GPU0503 container device plugin"}},
		"58": {want: []string{"GPU0501 AD102GL_L40S, which no node serves", "GPU0501 nvidia.com/GA102GL_A10"}, wantNot: []string{"--permit"}},
		"65": {want: []string{`GPU0502 "nvidia-a100", which has no domain prefix`, "GPU0407 10DE:20B1 and 10DE:20F1"}},
		"67": {wantNot: []string{"731f", "10de"}},
		"70": {want: []string{"GPU0212 vm-vgpu", "GPU0501 GH100_H200_SXM_141GB"}},
	}
	for id, tc := range tests {
		t.Run(id, func(t *testing.T) {
			findings := caseFindings(t, id)
			for _, want := range tc.want {
				code, text, _ := strings.Cut(want, " ")
				if !slices.ContainsFunc(findings, func(f diagnose.Finding) bool {
					return string(f.Code) == code && strings.Contains(f.Message+" "+f.Hint, text)
				}) {
					t.Errorf("no finding %s with %q in %+v", code, text, findings)
				}
			}
			for _, bad := range tc.wantNot {
				for _, f := range findings {
					if string(f.Code) == bad || strings.Contains(f.Message+" "+f.Hint, bad) {
						t.Errorf("finding with %q: %+v", bad, f)
					}
				}
			}
		})
	}
}

// caseFindings runs wire -o json on a case's first run, or on all its inputs for
// a case that has none, and returns the findings.
func caseFindings(t *testing.T, id string) []diagnose.Finding {
	t.Helper()
	dirs, err := filepath.Glob("testdata/cases/" + id + "-*")
	if err != nil || len(dirs) != 1 {
		t.Fatalf("case %s: %v, %v", id, dirs, err)
	}
	check := readChecks(t, filepath.Join(dirs[0], "checks.yaml"))[0]
	args := check.args(t)
	t.Chdir(dirs[0])
	code, stdout, stderr := run(t, append([]string{"wire", "-o", "json"}, args...)...)
	if code != 0 {
		t.Fatalf("exit %d\n%s", code, stderr)
	}
	var plan struct {
		Findings []diagnose.Finding `json:"findings"`
	}
	if err := json.Unmarshal([]byte(stdout), &plan); err != nil {
		t.Fatal(err)
	}
	return plan.Findings
}

// TestDiscoverOnCases checks roles, drivers and groups that reports got wrong.
func TestDiscoverOnCases(t *testing.T) {
	type device struct {
		Address    string
		DeviceID   string
		Driver     string
		IOMMUGroup *int
		Role       gpu.Role
		Usable     bool
	}
	group := func(n int) *int { return &n }
	card := func(address, id, driver string, group *int, usable bool) device {
		return device{address, id, driver, group, gpu.RoleGPU, usable}
	}
	vf := func(address string) device { return device{address, "2231", "nvidia", nil, gpu.RoleVF, false} }
	tests := map[string]struct {
		dir  string
		args []string
		want []device
	}{
		"a GPU without a name, and group 0": {
			dir: "37-unknown-device-text-and-group-zero", args: []string{"--lspci", "lspci.txt", "--iommu", "iommu.tsv"},
			want: []device{card("0000:01:00.0", "2235", "vfio-pci", group(0), true), card("0000:81:00.0", "2235", "vfio-pci", group(60), true)},
		},
		"no driver line means unbound, and carries nothing over": {
			dir: "46-v100-pairs-no-driver", args: []string{"--lspci", "lspci.txt", "--iommu", "iommu.tsv"},
			want: []device{
				card("0000:27:00.0", "1db4", "", group(12), false), card("0000:28:00.0", "1db4", "", group(12), false),
				card("0000:43:00.0", "1db4", "", group(30), false), card("0000:44:00.0", "1db4", "", group(30), false),
				card("0000:c3:00.0", "1db4", "", group(58), false), card("0000:c4:00.0", "1db4", "", group(58), false),
			},
		},
		"virtual functions are no cards": {
			dir: "47-a5000-virtual-functions-look-like-gpus", args: []string{"--lspci", "lspci.txt"},
			want: []device{
				card("0000:3b:00.0", "2231", "nvidia", nil, false), vf("0000:3b:00.4"), vf("0000:3b:00.5"), vf("0000:3b:00.6"),
				vf("0000:3b:00.7"), vf("0000:3b:01.0"), vf("0000:3b:01.1"), vf("0000:3b:01.2"),
			},
		},
		"a clipped line belongs to nobody": {
			dir: "49-truncated-lspci-line", args: []string{"--lspci", "lspci.txt", "--iommu", "iommu.tsv"},
			want: []device{card("0000:01:00.0", "1392", "vfio-pci", group(1), false)},
		},
		"bridges do not block a group": {
			dir: "39-smart-array-zero-and-custom-name-group-not-viable", args: []string{"--lspci", "lspci.txt", "--iommu", "iommu.tsv"},
			want: []device{
				card("0000:01:00.0", "2184", "vfio-pci", group(1), false),
				{"0000:01:00.1", "1aeb", "vfio-pci", group(1), gpu.RoleSibling, false},
				{"0000:01:00.2", "1aec", "xhci_hcd", group(1), gpu.RoleSibling, false},
				{"0000:01:00.3", "1aed", "", group(1), gpu.RoleSibling, false},
			},
		},
		"addresses with a domain": {
			dir: "52-domain-prefixed-addresses-dual-port", args: []string{"--lspci", "lspci.txt"},
			want: []device{card("0002:21:00.0", "2235", "vfio-pci", nil, true)},
		},
		"another vendor's GPU is none of ours": {
			dir: "67-amd-gpu-vm-failure-not-ours", args: []string{"--lspci", "lspci.txt"}, want: []device{},
		},
		"Grace's driver counts as vfio": {
			dir: "51-arm-grace-hopper-no-iommu-group", args: []string{"--lspci", "gb-1=lspci-gb.txt", "--iommu", "gb-1=iommu-gb.tsv"},
			want: []device{card("0008:01:00.0", "2941", "nvgrace_gpu_vfio_pci", group(9), true)},
		},
		"no IOMMU group is null": {
			dir: "51-arm-grace-hopper-no-iommu-group", args: []string{"--lspci", "lspci-gh.txt", "--iommu", "iommu-gh.tsv"},
			want: []device{card("0009:01:00.0", "2342", "nvidia", nil, false)},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Chdir(filepath.Join("testdata/cases", tc.dir))
			code, stdout, stderr := run(t, append([]string{"discover", "-o", "json"}, tc.args...)...)
			if code != 0 {
				t.Fatalf("exit %d\n%s", code, stderr)
			}
			var view struct {
				Nodes []struct{ Devices []device }
			}
			if err := json.Unmarshal([]byte(stdout), &view); err != nil || len(view.Nodes) != 1 {
				t.Fatalf("%v\n%s", err, stdout)
			}
			if diff := cmp.Diff(tc.want, view.Nodes[0].Devices); diff != "" {
				t.Errorf("devices (-want +got):\n%s", diff)
			}
		})
	}
}
