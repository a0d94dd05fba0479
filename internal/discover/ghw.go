package discover

import (
	"context"
	"log/slog"
	"strconv"

	"github.com/jaypipes/ghw"
	"github.com/jaypipes/pcidb"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// listByGHW returns ghw's PCI devices: none when ghw gave up on one of them, nor
// on another operating system than Linux, where ghw has no PCI.
//
// ghw is kept from everything but sysfs: the background context shuts out GHW_*
// variables, the empty database spares 22 ms of parsing pci.ids (and failing
// where there is none), and warnings are told here instead of on stderr. NUMA
// topology would read every CPU's caches to learn that there is more than one
// node; the node of a function is one small file.
func listByGHW(root string) []*ghw.PCIDevice {
	info, err := ghw.PCI(
		context.Background(),
		ghw.WithChroot(root),
		ghw.WithPCIDB(&pcidb.PCIDB{}),
		ghw.WithDisableTopology(),
		ghw.WithDisableTools(),
		ghw.WithLogger(slog.New(slog.DiscardHandler)),
	)
	if err != nil {
		return nil
	}
	return info.Devices
}

// fromGHW takes over what ghw has read. A modalias of the right length but with
// unreadable ids in it is no reason to lose the function.
func (s *scan) fromGHW(d *ghw.PCIDevice) (gpu.Function, error) {
	addr, err := gpu.ParseAddress(d.Address)
	if err != nil {
		return gpu.Function{}, err
	}
	f := gpu.Function{Address: addr, Driver: gpu.Driver(d.Driver), Group: groupOf(d.IOMMUGroup)}
	id, err1 := gpu.ParseID(d.Vendor.ID + ":" + d.Product.ID)
	class, err2 := gpu.ParseClass(d.Class.ID + d.Subclass.ID + d.ProgrammingInterface.ID)
	if err1 != nil || err2 != nil {
		err := s.sys.identity(&f)
		return f, err
	}
	f.ID, f.Class = id, class
	return f, nil
}

// groupOf reads the last element of an iommu_group link; "" is no link. The
// kernel numbers groups, so anything else is as good as unknown.
func groupOf(base string) gpu.Group {
	if base == "" {
		return gpu.NoGroup()
	}
	id, err := strconv.ParseUint(base, 10, 31)
	if err != nil {
		return gpu.Group{}
	}
	return gpu.InGroup(int(id))
}
