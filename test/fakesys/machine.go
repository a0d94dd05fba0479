package fakesys

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// Machine describes the machine to build.
//
// What the vocabulary calls unknown cannot be built: a function whose group is
// unknown has no iommu_group link, one whose driver is unknown is unbound, and
// a NUMA node of nil becomes the kernel's -1.
type Machine struct {
	Host gpu.Host
	// Omit names what the tree leaves out, relative to a function's directory:
	// "0000:18:00.0/modalias". Directories go with all they hold.
	Omit []string
}

// Build writes the machine's tree under dir, which should be empty.
func (m Machine) Build(dir string) error {
	t := &tree{root: dir}
	t.dir("sys/bus/pci/devices")
	t.dir("sys/bus/pci/drivers")
	for i := range m.Host.Functions {
		t.function(&m.Host, &m.Host.Functions[i])
	}
	t.mdevs(m.Host.Mdevs)
	t.vfioNodes(&m.Host)
	t.iommu(m.Host.IOMMU)
	for _, path := range m.Omit {
		t.remove(path)
	}
	if t.err != nil {
		return fmt.Errorf("build fake machine: %w", t.err)
	}
	return nil
}

// New builds a host's tree in a directory that lives as long as the test, and
// returns that directory. Paths in omit are those of Machine.Omit.
func New(tb testing.TB, h gpu.Host, omit ...string) string {
	tb.Helper()
	m := Machine{Host: h, Omit: omit}
	if dir, ok := m.inMemory(tb); ok {
		return dir
	}
	dir := tb.TempDir()
	if err := m.Build(dir); err != nil {
		tb.Fatal(err)
	}
	return dir
}

// inMemory builds the tree where Linux keeps files in memory, if it fits. The
// real /sys is in memory too, and a disk takes seconds for thousands of files.
func (m Machine) inMemory(tb testing.TB) (string, bool) {
	tb.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "fakesys") //nolint:usetesting // TempDir is on disk
	if err != nil {
		return "", false
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir, m.Build(dir) == nil
}

// numbered returns the IOMMU groups that functions of the host are in, sorted.
func numbered(h *gpu.Host) []int {
	var ids []int
	for _, f := range h.Functions {
		if id, ok := f.Group.ID(); ok {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}
