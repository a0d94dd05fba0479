package discover

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// seed adds one file of every pasted machine.
func seed(f *testing.F, name string) {
	f.Helper()
	files, err := filepath.Glob("testdata/pasted/*.txtar")
	if err != nil || len(files) == 0 {
		f.Fatalf("no pasted text: %v", err)
	}
	for _, path := range files {
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		if text, ok := sections(string(data))[name]; ok {
			f.Add(text)
		}
	}
}

// FuzzParseLspci checks that nothing is reported that the text does not hold.
func FuzzParseLspci(f *testing.F) {
	seed(f, "lspci.txt")
	f.Add(text(gpuLine, "\tFlags: fast devsel, NUMA node 1, IOMMU group 33", "\t!!! Unknown header type 7f", "x", "Kernel driver in use:"))
	f.Add(text("18:00.0 0302: 10de:2335 (rev ff)", "\tKernel driver in use: vfio-pci"))
	f.Fuzz(func(t *testing.T, data []byte) {
		h, _, err := ParseLspci(data)
		if err != nil {
			if len(h.Functions) > 0 {
				t.Errorf("ParseLspci() returns functions with error %v", err)
			}
			return
		}
		lower := strings.ToLower(string(data))
		seen := map[gpu.Address]bool{}
		for _, fn := range h.Functions {
			short := strings.TrimPrefix(fn.Address.String(), "0000:")
			if seen[fn.Address] || !strings.Contains(lower, short[len(short)-len("00:00.0"):]) {
				t.Errorf("%s is there twice, or not in the text", fn.Address)
			}
			seen[fn.Address] = true
			if fn.ID.Known() && !strings.Contains(lower, fn.ID.String()) {
				t.Errorf("%s: id %s is not in the text", fn.Address, fn.ID)
			}
			if fn.DriverUnknown && fn.Driver != "" || !strings.Contains(string(data), string(fn.Driver)) {
				t.Errorf("%s: driver %q is unknown, or not in the text", fn.Address, fn.Driver)
			}
		}
		GuessVFs(&h)
	})
}

// FuzzApplyIOMMU checks that a refused text changes nothing, that an accepted
// one settles every group, and that no function gets lost.
func FuzzApplyIOMMU(f *testing.F) {
	seed(f, "iommu.tsv")
	f.Add(text("IOMMU Group 13:", "\t01:00.0 VGA", "/sys/kernel/iommu_groups/13/devices/0000:00:01.0"))
	f.Add(text("address group", "01:00.0 none # x"))
	f.Fuzz(func(t *testing.T, data []byte) {
		h := card()
		_, err := ApplyIOMMU(&h, data)
		if err != nil {
			if diff := cmp.Diff(card(), h, compareGroups()); diff != "" {
				t.Errorf("a refused text changes the host (-want +got):\n%s", diff)
			}
			return
		}
		seen := map[gpu.Address]bool{}
		for _, fn := range h.Functions {
			if !fn.Group.Known() || seen[fn.Address] {
				t.Errorf("%s is there twice, or in an unknown group", fn.Address)
			}
			seen[fn.Address] = true
		}
		for _, fn := range card().Functions {
			if !seen[fn.Address] {
				t.Errorf("%s got lost", fn.Address)
			}
		}
	})
}

// FuzzApplyVF checks that a refused text changes nothing and that an accepted
// one makes no function its own physical function.
func FuzzApplyVF(f *testing.F) {
	seed(f, "vf.tsv")
	f.Add(text("address physfn", "/sys/bus/pci/devices/0000:3b:00.0/virtfn1 -> ../0000:3b:01.0", "3b:00.4"))
	f.Fuzz(func(t *testing.T, data []byte) {
		h := a5000()
		_, err := ApplyVF(&h, data)
		if err != nil {
			if diff := cmp.Diff(a5000(), h, compareGroups()); diff != "" {
				t.Errorf("a refused text changes the host (-want +got):\n%s", diff)
			}
			return
		}
		for _, fn := range h.Functions {
			if fn.PhysFn != nil && (!fn.VF || *fn.PhysFn == fn.Address) {
				t.Errorf("%s: VF %v, physical function %s", fn.Address, fn.VF, fn.PhysFn)
			}
		}
	})
}
