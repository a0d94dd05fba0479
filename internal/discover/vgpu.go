package discover

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// mdevTypes reads the mediated device types a function offers, sorted by id.
func (r *reader) mdevTypes() []gpu.MdevType {
	if !r.present["mdev_supported_types"] {
		return nil
	}
	dir := filepath.Join(r.dir, "mdev_supported_types")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var types []gpu.MdevType
	for _, e := range entries {
		d := filepath.Join(dir, e.Name())
		types = append(types, gpu.MdevType{
			ID:        e.Name(),
			Name:      r.names.read(e.Name(), d),
			Available: number(filepath.Join(d, "available_instances")),
		})
	}
	return types
}

// typeNames remembers the names of mediated device types. NVIDIA numbers its
// types once for all boards, so one VF's answer serves its hundreds of siblings.
type typeNames struct {
	mu    sync.Mutex
	names map[string]string
}

func (t *typeNames) read(id, dir string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if name, ok := t.names[id]; ok {
		return name
	}
	name := value(filepath.Join(dir, "name"))
	if t.names == nil {
		t.names = map[string]string{}
	}
	if name != "" {
		t.names[id] = name
	}
	return name
}

// vgpu reads the vendor VFIO framework that replaces mediated devices from the
// Ada generation on: the types a VF could carry and the one it does.
func (r *reader) vgpu() ([]gpu.VGPUType, string) {
	if !r.present["nvidia"] {
		return nil, ""
	}
	dir := filepath.Join(r.dir, "nvidia")
	types := parseVGPUTypes(value(filepath.Join(dir, "creatable_vgpu_types")))
	return types, known(value(filepath.Join(dir, "current_vgpu_type")), "0")
}

// parseVGPUTypes reads "557   : NVIDIA L40S-1B" lines below a heading.
func parseVGPUTypes(text string) []gpu.VGPUType {
	var types []gpu.VGPUType
	for line := range strings.Lines(text) {
		number, name, ok := strings.Cut(line, ":")
		id, err := strconv.Atoi(strings.TrimSpace(number))
		if !ok || err != nil {
			continue
		}
		types = append(types, gpu.VGPUType{ID: id, Name: strings.TrimSpace(name)})
	}
	return types
}
