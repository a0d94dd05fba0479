package discover

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// sysfs reads a machine's /sys and /dev below root.
type sysfs struct{ root string }

func newSysfs(root string) sysfs {
	if root == "" {
		root = "/"
	}
	return sysfs{root: root}
}

func (s sysfs) path(elem ...string) string {
	return filepath.Join(append([]string{s.root}, elem...)...)
}

// device is the directory of one PCI function.
func (s sysfs) device(address string) string {
	return s.path("sys/bus/pci/devices", address)
}

// pageSize is the most that a sysfs attribute holds where pages are smallest.
const pageSize = 4096

// value reads a one-line file; "" when it cannot be read.
func value(path string) string {
	data, err := readFile(path, pageSize)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// number reads a file that holds one decimal number; 0 when it cannot be read.
func number(path string) int {
	n, err := strconv.Atoi(value(path))
	if err != nil {
		return 0
	}
	return n
}

// linkBase returns the last element of a symbolic link's target, "" without one.
func linkBase(path string) string {
	target, err := os.Readlink(path)
	if err != nil {
		return ""
	}
	return filepath.Base(target)
}

// listBySysfs lists functions without ghw, leaving out only those that cannot
// be read.
func (s *scan) listBySysfs() ([]gpu.Function, error) {
	dir := s.sys.path("sys/bus/pci/devices")
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w: %s does not exist; run where the host's /sys is mounted, or pass the output of lspci -nnk", ErrNoPCI, dir)
	case err != nil:
		return nil, fmt.Errorf("list PCI functions: %w", err)
	case len(entries) == 0:
		s.warnf("%s is empty: this machine shows no PCI function", dir)
	}
	functions := make([]gpu.Function, 0, len(entries))
	for _, e := range entries {
		f, err := s.sys.function(e.Name())
		if err != nil {
			s.warnf("skipped PCI function %s: %v", e.Name(), err)
			continue
		}
		functions = append(functions, f)
	}
	return functions, nil
}

// function reads what ghw would have read of one function.
func (s sysfs) function(address string) (gpu.Function, error) {
	addr, err := gpu.ParseAddress(address)
	if err != nil {
		return gpu.Function{}, err
	}
	f := gpu.Function{Address: addr}
	if err := s.identity(&f); err != nil {
		return gpu.Function{}, err
	}
	dir := s.device(address)
	f.Driver = gpu.Driver(linkBase(filepath.Join(dir, "driver")))
	f.Group = groupOf(linkBase(filepath.Join(dir, "iommu_group")))
	return f, nil
}

// identity reads id and class from the files that udev does not need.
func (s sysfs) identity(f *gpu.Function) error {
	dir := s.device(f.Address.String())
	var text [3]string
	for i, name := range []string{"vendor", "device", "class"} {
		data, err := readFile(filepath.Join(dir, name), pageSize)
		if err != nil {
			return err
		}
		text[i] = strings.TrimPrefix(strings.TrimSpace(string(data)), "0x")
	}
	id, err := gpu.ParseID(text[0] + ":" + text[1])
	if err != nil {
		return fmt.Errorf("read %s: %w", dir, err)
	}
	class, err := gpu.ParseClass(text[2])
	if err != nil {
		return fmt.Errorf("read %s: %w", dir, err)
	}
	f.ID, f.Class = id, class
	return nil
}
