package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/test/fakesys"
)

// TestSummaryIsNotPassedOn has a termination log that cannot be written, GPU0108, and
// one that can.
func TestSummaryIsNotPassedOn(t *testing.T) {
	for name, tt := range map[string]struct {
		dir  string
		want bool
	}{
		"a folder that is not there": {"missing/log", true},
		"a folder that is":           {"log", false},
	} {
		t.Run(name, func(t *testing.T) {
			var stderr bytes.Buffer
			flags := &wireFlags{}
			flags.terminationLog = filepath.Join(t.TempDir(), tt.dir)
			l := &live{s: &streams{out: &stderr, err: &stderr}, flags: flags}
			l.mirror(t.Context(), nil)
			if got := strings.Contains(stderr.String(), "GPU0108"); got != tt.want {
				t.Errorf("GPU0108 is %v, want %v:\n%s", got, tt.want, stderr.String())
			}
		})
	}
}

// TestMissingDeviceNode takes /dev/vfio/40 from a host whose card is bound, GPU0214,
// and that of the group beside it.
func TestMissingDeviceNode(t *testing.T) {
	for gone, want := range map[string]bool{"40": true, "41": false} {
		t.Run("group "+gone, func(t *testing.T) {
			h := gpu.Host{IOMMU: gpu.Present, Functions: []gpu.Function{
				{Address: gpu.Address{Bus: 0x18}, ID: gpu.NVIDIA(0x2335), Class: 0x030200, Driver: "vfio-pci", Group: gpu.InGroup(40), VFIONode: gpu.Present},
				{Address: gpu.Address{Bus: 0x2a}, ID: gpu.NVIDIA(0x2335), Class: 0x030200, Driver: "vfio-pci", Group: gpu.InGroup(41), VFIONode: gpu.Present},
			}}
			root := fakesys.New(t, h)
			if err := os.Remove(filepath.Join(root, "dev/vfio", gone)); err != nil {
				t.Fatal(err)
			}
			found := findingsOf(t, "diagnose --root worker-1="+root)
			got := slices.ContainsFunc(found, func(f diagnose.Finding) bool {
				return f.Code == "GPU0214" && f.Object == "node/worker-1 0000:18:00.0"
			})
			if got != want {
				t.Errorf("GPU0214 on 0000:18:00.0 is %v, want %v:\n%s", got, want, list(found))
			}
		})
	}
}
