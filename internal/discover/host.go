package discover

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// ErrNoPCI is returned when the machine shows no PCI bus at all.
var ErrNoPCI = errors.New("no PCI bus in sight")

// Host takes the PCI inventory of the machine whose root directory is root; ""
// is this machine. A container's own read-only /sys is enough.
//
// Functions of all vendors are listed, since any can block an IOMMU group. Only
// NVIDIA's carry more than address, id, class, driver and group. What cannot be
// read stays unknown; a function left out is named in a warning. The error is
// [ErrNoPCI] when there is no PCI bus to read.
func Host(root string) (gpu.Host, []string, error) {
	s := &scan{sys: newSysfs(root)}
	functions, err := s.inventory()
	if err != nil {
		return gpu.Host{}, nil, fmt.Errorf("read PCI inventory: %w", err)
	}
	s.nodes = s.sys.readNodes()
	functions = s.detail(functions)
	h := gpu.Host{
		Functions: functions,
		Mdevs:     s.readMdevs(functions),
		IOMMUFD:   s.nodes.iommufd,
		IOMMU:     cmp.Or(s.sys.iommu(), presenceOfGroups(functions)),
	}
	h.Sort()
	return h, s.warnings, nil
}

// scan is one run over a machine.
type scan struct {
	sys      sysfs
	nodes    nodes
	names    typeNames
	warnings []string
}

func (s *scan) warnf(format string, args ...any) {
	s.warnings = append(s.warnings, fmt.Sprintf(format, args...))
}

// inventory lists what every function has: from ghw, or where ghw gives up,
// from sysfs itself.
//
// One device with an unreadable modalias, or with an address ghw cannot parse,
// makes ghw return no devices and no error, so an empty list proves nothing.
func (s *scan) inventory() ([]gpu.Function, error) {
	devices := listByGHW(s.sys.root)
	if len(devices) == 0 {
		return s.listBySysfs()
	}
	functions := make([]gpu.Function, 0, len(devices))
	for _, d := range devices {
		f, err := s.fromGHW(d)
		if err != nil {
			s.warnf("skipped PCI function %s: %v", d.Address, err)
			continue
		}
		functions = append(functions, f)
	}
	return functions, nil
}

// detail adds to NVIDIA's functions what ghw lacks, and drops those that have
// vanished meanwhile.
func (s *scan) detail(functions []gpu.Function) []gpu.Function {
	var ours []int
	for i := range functions {
		if functions[i].IsNVIDIA() {
			ours = append(ours, i)
		}
	}
	gone := make([]error, len(functions))
	parallel(len(ours), func(i int) {
		r := reader{sysfs: s.sys, nodes: s.nodes, names: &s.names}
		gone[ours[i]] = r.read(&functions[ours[i]])
	})
	kept := functions[:0]
	for i, f := range functions {
		if gone[i] != nil {
			s.warnf("skipped PCI function %s: removed while it was read: %v", f.Address, gone[i])
			continue
		}
		kept = append(kept, f)
	}
	return slices.Clip(kept)
}
