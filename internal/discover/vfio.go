package discover

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// nodes is what /dev shows of VFIO.
type nodes struct {
	iommufd gpu.Presence
	visible bool            // /dev/vfio is there: this is the host's /dev
	groups  map[string]bool // names in /dev/vfio
	devices map[string]bool // names in /dev/vfio/devices
}

// readNodes looks at the device nodes. A container has a /dev of its own, so a
// missing node means something only where /dev/vfio exists.
func (s sysfs) readNodes() nodes {
	var n nodes
	groups, err := os.ReadDir(s.path("dev/vfio"))
	n.visible = err == nil
	n.groups = nameSet(groups)
	if n.groups["devices"] {
		devices, _ := os.ReadDir(s.path("dev/vfio/devices"))
		n.devices = nameSet(devices)
	}
	n.iommufd = s.iommufd(n.visible)
	return n
}

// iommufd asks for /dev/iommu, or where /dev is not the host's, for the
// driver's entry in sysfs.
func (s sysfs) iommufd(hostDev bool) gpu.Presence {
	if exists(s.path("dev/iommu")) {
		return gpu.Present
	}
	if hostDev {
		return gpu.Absent
	}
	if exists(s.path("sys/class/misc/iommu")) {
		return gpu.Present
	}
	return gpu.PresenceUnknown
}

// vfioNode says whether the node that a VM would open exists, whatever driver
// the function is on.
func (r *reader) vfioNode(group gpu.Group) gpu.Presence {
	if !r.nodes.visible {
		return gpu.PresenceUnknown
	}
	if r.nodes.iommufd == gpu.Present {
		return presence(r.nodes.devices[r.vfioDev()])
	}
	id, ok := group.ID()
	return presence(ok && r.nodes.groups[strconv.Itoa(id)])
}

// vfioDev returns the name of the function's VFIO device, "vfio3", or "".
func (r *reader) vfioDev() string {
	if !r.present["vfio-dev"] {
		return ""
	}
	entries, _ := os.ReadDir(filepath.Join(r.dir, "vfio-dev"))
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "vfio") {
			return e.Name()
		}
	}
	return ""
}

// iommu says whether the kernel drives any IOMMU.
func (s sysfs) iommu() gpu.Presence {
	units, err := os.ReadDir(s.path("sys/class/iommu"))
	if err != nil {
		return gpu.PresenceUnknown
	}
	return presence(len(units) > 0)
}

func presence(is bool) gpu.Presence {
	if is {
		return gpu.Present
	}
	return gpu.Absent
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func nameSet(entries []os.DirEntry) map[string]bool {
	set := make(map[string]bool, len(entries))
	for _, e := range entries {
		set[e.Name()] = true
	}
	return set
}
