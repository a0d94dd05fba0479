package discover

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// readMdevs lists the existing mediated devices whose parent is a PCI function.
func (s *scan) readMdevs(functions []gpu.Function) []gpu.Mdev {
	dir := s.sys.path("sys/bus/mdev/devices")
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) == 0 {
		return nil // no mdev bus: the usual case
	}
	parents := make(map[gpu.Address]*gpu.Function, len(functions))
	for i := range functions {
		parents[functions[i].Address] = &functions[i]
	}
	var mdevs []gpu.Mdev
	for _, e := range entries {
		m, ok := readMdev(filepath.Join(dir, e.Name()))
		if !ok {
			s.warnf("skipped mediated device %s: its parent is no PCI function", e.Name())
			continue
		}
		m.inherit(parents[m.Parent])
		mdevs = append(mdevs, m.Mdev)
	}
	return mdevs
}

// mdev is a mediated device with the directory that describes it.
type mdev struct {
	gpu.Mdev
	path string
}

func readMdev(path string) (mdev, bool) {
	target, err := os.Readlink(path)
	if err != nil {
		return mdev{}, false
	}
	// The device lives in its parent's directory.
	parent, err := gpu.ParseAddress(filepath.Base(filepath.Dir(target)))
	if err != nil {
		return mdev{}, false
	}
	return mdev{path: path, Mdev: gpu.Mdev{
		UUID:   filepath.Base(path),
		TypeID: linkBase(filepath.Join(path, "mdev_type")),
		Parent: parent,
		Group:  groupOf(linkBase(filepath.Join(path, "iommu_group"))),
	}}, true
}

// inherit takes from the parent, if it is known, what the device does not say.
func (m *mdev) inherit(parent *gpu.Function) {
	if parent != nil {
		m.NUMA = parent.NUMA
		byID := func(t gpu.MdevType, id string) int { return cmp.Compare(t.ID, id) }
		if i, ok := slices.BinarySearchFunc(parent.MdevTypes, m.TypeID, byID); ok {
			m.TypeName = parent.MdevTypes[i].Name
		}
	}
	if m.TypeName == "" {
		m.TypeName = value(filepath.Join(m.path, "mdev_type", "name"))
	}
}
