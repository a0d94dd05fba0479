package gpu_test

import (
	"testing"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// The list of not_gpu.tsv was made and looked through by hand, over all names
// of the six bundled snapshots and of the newest pci.ids.
func TestIsGPUDeviceOverEveryID(t *testing.T) {
	notGPU := map[gpu.DeviceID]string{}
	for _, row := range readTSV(t, "not_gpu.tsv") {
		notGPU[mustDeviceID(t, row[0])] = row[1]
	}
	for n := range 0x10000 {
		d := gpu.DeviceID(n)
		if name, not := notGPU[d]; gpu.IsGPUDevice(d) == not {
			t.Errorf("IsGPUDevice(%s) = %v; it is %q in pci.ids, %s to %s",
				d, !not, name, gpu.Newest().Name(d).Short(), gpu.Newest())
		}
	}
}

func TestIsGPUDeviceByKind(t *testing.T) {
	want := map[string]bool{
		"datacenter": true, "geforce/cmp": true, "workstation": true,
		"audio-fn": false, "usb/ucsi-fn": false, "nvswitch": false, "other": false,
	}
	for _, row := range readTSV(t, "vectors/naming_vectors.tsv") {
		if want, ok := want[row[4]]; ok && gpu.IsGPUDevice(mustDeviceID(t, row[0])) != want {
			t.Errorf("IsGPUDevice(%s) = %v; it is %s, %s", row[0], !want, row[4], row[1])
		}
	}
}

// What a device is does not depend on which release named it.
func TestMayBeGPUAgreesOverReleases(t *testing.T) {
	for _, releases := range releasesOf {
		r := mustRelease(t, releases[0])
		for n := range 0x10000 {
			d := gpu.DeviceID(n)
			if name := r.Name(d); name.MayBeGPU() != gpu.IsGPUDevice(d) {
				t.Errorf("%s: %s.MayBeGPU() = %v, IsGPUDevice(%s) = %v", r, name, name.MayBeGPU(), d, gpu.IsGPUDevice(d))
			}
		}
	}
}

func TestMayBeGPU(t *testing.T) {
	tests := map[gpu.ResourceName]bool{
		"nvidia.com/GH100_H200_SXM_141GB":                          true,
		"nvidia.com/GA107M_GEFORCE_MX570_A":                        true,
		"nvidia.com/G98_HICX16__GRAPHICS":                          true,
		"nvidia.com/NFORCE_220_420_NV1A_GEFORCE2_MX":               true,
		"nvidia.com/GA100_AX800_CONVERGED_ACCELERATOR":             true,
		"nvidia.com/2335":                                          true,
		"nvidia.com/3182":                                          true,
		"nvidia.com/ffff":                                          true,
		"nvidia.com/NVIDIA_A10-12Q":                                true,
		"nvidia.com/H100_SXM5_80GB":                                true,
		"nvidia.com/gpu_geforce_1660":                              true,
		"nvidia.com/GX999_SOMETHING_NEW":                           true,
		"nvidia.com/GA102_HIGH_DEFINITION_AUDIO_CONTROLLER":        false,
		"nvidia.com/GX999_HIGH_DEFINITION_AUDIO_CONTROLLER":        false,
		"nvidia.com/TU102_USB_TYPEC_UCSI_CONTROLLER":               false,
		"nvidia.com/GH100_H100_NVSWITCH":                           false,
		"nvidia.com/nvswitch":                                      false,
		"nvidia.com/1aef":                                          false,
		"nvidia.com/22a3":                                          false,
		"nvidia.com/22e8":                                          false, // in no release's pci.ids, audio in the newest
		"nvidia.com/2f95":                                          false, // a CPU
		"nvidia.com/NFORCE2_AGP":                                   false,
		"nvidia.com/hostdev":                                       false, // the network operator's
		"nvidia.com/gpu":                                           false,
		"nvidia.com/gpu.shared":                                    false,
		"nvidia.com/mig-1g.5gb":                                    false,
		"amd.com/gpu":                                              false,
		"devices.kubevirt.io/kvm":                                  false,
		"GH100_H200_SXM_141GB":                                     false,
		"nvidia.com/MCP78S_GEFORCE_8200_SATA_CONTROLLER_RAID_MODE": false,
	}
	for name, want := range tests {
		if got := name.MayBeGPU(); got != want {
			t.Errorf("%s.MayBeGPU() = %v, want %v", name, got, want)
		}
	}
}

func TestIsVGPU(t *testing.T) {
	tests := map[gpu.ResourceName]bool{
		"nvidia.com/GRID_T4-16Q":           true,
		"nvidia.com/NVIDIA_A10-12Q":        true,
		"nvidia.com/L40S-24Q":              true,
		"nvidia.com/NVIDIA_RTX5000-Ada-8Q": true,
		"nvidia.com/GRID_RTX6000-3Q":       true,
		"nvidia.com/P100-1B4":              true,
		"nvidia.com/GRID_M10-0B":           true,
		"nvidia.com/NVIDIA_A16-4A":         true,
		"nvidia.com/GRID_A100D-3-40C":      true,
		"nvidia.com/NVIDIA_A100-1-5CME":    true,
		"nvidia.com/NVIDIA_RTX5000-Ada":    false,
		"nvidia.com/-12Q":                  false,
		"nvidia.com/A10-Q":                 false,
		"nvidia.com/A10-12":                false,
		"nvidia.com/A10-12q":               false,
		"nvidia.com/A10-12X":               false,
		"nvidia.com/A10-12Q_":              false,
		"nvidia.com/mig-1g.5gb":            false,
		"nvidia.com/GA107GL_A2___A16":      false,
		"nvidia.com/233b":                  false,
		"nvidia.com/gpu":                   false,
		"":                                 false,
	}
	for name, want := range tests {
		if got := name.IsVGPU(); got != want {
			t.Errorf("%q.IsVGPU() = %v, want %v", name, got, want)
		}
	}
	for _, r := range []gpu.Release{{Major: 1, Minor: 2, Patch: 1}, gpu.Newest()} {
		for n := range 0x10000 {
			if name := r.Name(gpu.DeviceID(n)); name.IsVGPU() {
				t.Errorf("%s is a PCI name and looks like a vGPU", name)
			}
		}
	}
}
