package discover

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// reader reads what only NVIDIA's functions are asked for.
type reader struct {
	sysfs
	nodes nodes
	names *typeNames

	dir     string
	present map[string]bool // names in dir
}

// read fills f in. It fails only when the function is no longer there.
func (r *reader) read(f *gpu.Function) error {
	r.dir = r.device(f.Address.String())
	entries, err := os.ReadDir(r.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return err
	}
	r.present = make(map[string]bool, len(entries))
	for _, e := range entries {
		r.present[e.Name()] = true
	}
	f.OffBus = r.offBus()
	f.NUMA = r.numa()
	f.DriverForced = known(r.value("driver_override"), "(null)")
	f.PowerState = known(r.value("power_state"), "unknown")
	r.link(f)
	r.sriov(f)
	f.MdevTypes = r.mdevTypes()
	f.VGPUTypes, f.CurrentVGPU = r.vgpu()
	f.VFIONode = r.vfioNode(f.Group)
	return nil
}

// value spares the system calls for a file that is known to be missing.
func (r *reader) value(name string) string {
	if !r.present[name] {
		return ""
	}
	return value(filepath.Join(r.dir, name))
}

// known returns s, or "" when s is the kernel's word for nothing.
func known(s, nothing string) string {
	if s == nothing {
		return ""
	}
	return s
}

// headerSize is how much of the configuration space the kernel shows without
// privileges. Reading on is slow: every word is a transaction on the bus.
const headerSize = 64

// offBus reports a configuration space that no device answers for. Reading it
// wakes a function in D3cold, as lspci does: one that cannot wake is lost too.
func (r *reader) offBus() bool {
	if !r.present["config"] {
		return false
	}
	header, err := readFile(filepath.Join(r.dir, "config"), headerSize)
	return err == nil && bytes.Count(header, []byte{0xff}) == headerSize
}

func (r *reader) numa() *int {
	node, err := strconv.Atoi(r.value("numa_node"))
	if err != nil || node < 0 {
		return nil
	}
	return &node
}

// link reads the state of the PCI Express link. Off the bus it would be read
// from registers full of ones.
func (r *reader) link(f *gpu.Function) {
	if f.OffBus {
		return
	}
	f.LinkSpeed = known(known(r.value("current_link_speed"), "Unknown"), "Unknown speed")
	if width, err := strconv.Atoi(r.value("current_link_width")); err == nil {
		f.LinkWidth = width
	}
}

func (r *reader) sriov(f *gpu.Function) {
	if r.present["sriov_totalvfs"] {
		f.TotalVFs = number(filepath.Join(r.dir, "sriov_totalvfs"))
		f.NumVFs = number(filepath.Join(r.dir, "sriov_numvfs"))
	}
	if !r.present["physfn"] {
		return
	}
	f.VF = true
	if pf, err := gpu.ParseAddress(linkBase(filepath.Join(r.dir, "physfn"))); err == nil {
		f.PhysFn = &pf
	}
}
