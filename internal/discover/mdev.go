package discover

import (
	"os"
	"path/filepath"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// readMdevs lists the existing mediated devices whose parent is a PCI function.
func (s *scan) readMdevs(functions []gpu.Function) []gpu.Mdev {
	dir := s.sys.path("sys/bus/mdev/devices")
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) == 0 {
		return nil // no mdev bus: the usual case
	}
	nodes := make(map[gpu.Address]*int, len(functions))
	for _, f := range functions {
		nodes[f.Address] = f.NUMA
	}
	var mdevs []gpu.Mdev
	for _, e := range entries {
		m, ok := s.readMdev(filepath.Join(dir, e.Name()))
		if !ok {
			s.warnf("skipped mediated device %s: its parent is no PCI function", e.Name())
			continue
		}
		m.NUMA = nodes[m.Parent]
		mdevs = append(mdevs, m)
	}
	return mdevs
}

func (s *scan) readMdev(path string) (gpu.Mdev, bool) {
	target, err := os.Readlink(path)
	if err != nil {
		return gpu.Mdev{}, false
	}
	// The device lives in its parent's directory.
	parent, err := gpu.ParseAddress(filepath.Base(filepath.Dir(target)))
	if err != nil {
		return gpu.Mdev{}, false
	}
	typeLink := filepath.Join(path, "mdev_type")
	id := linkBase(typeLink)
	return gpu.Mdev{
		UUID:     filepath.Base(path),
		TypeID:   id,
		TypeName: s.names.read(id, typeLink),
		Parent:   parent,
		Group:    groupOf(linkBase(filepath.Join(path, "iommu_group"))),
	}, true
}
