package patch

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/internal/manifest"
)

// places lists the fields that people put in the wrong place, and where they
// belong.
func (s schema) places(kind string) map[string]manifest.Path {
	out := map[string]manifest.Path{
		"permittedHostDevices": s.table,
		"pciHostDevices":       s.list(gpu.ListPCI),
		"mediatedDevices":      s.list(gpu.ListMdev),
		"usbHostDevices":       s.list(gpu.ListUSB),
	}
	if kind == KindKubeVirt {
		out["nodeMediatedDeviceTypes"] = manifest.Path{"spec", "configuration", "mediatedDevicesConfiguration", "nodeMediatedDeviceTypes"}
		out["developerConfiguration"] = s.gates[:len(s.gates)-1]
		out["featureGates"] = s.gates
		out["disabledFeatureGates"] = s.disabled
	}
	return out
}

// misplaced reports device lists and gates that stand where the kind has no such
// field. They are left where they are.
func (s schema) misplaced(t *Target, object string) []diagnose.Finding {
	places := s.places(t.Kind())
	var out []diagnose.Finding
	report := func(at, right manifest.Path) {
		out = append(out, diagnose.New("GPU0303", object, diagnose.Values{"path": at.String(), "right": right.String(), "kind": t.Kind()}))
	}
	var walk func(m map[string]any, at manifest.Path)
	walk = func(m map[string]any, at manifest.Path) {
		for _, key := range slices.Sorted(maps.Keys(m)) {
			here := join(at, key)
			if len(at) == 0 && (key == "metadata" || key == "status") {
				continue
			}
			right, watched := places[key]
			if watched && here.String() != right.String() {
				report(here, right)
				continue
			}
			if here.String() == s.table.String() {
				s.strayLists(m[key], here, report, places)
				continue
			}
			if next, ok := m[key].(map[string]any); ok {
				walk(next, here)
			}
		}
	}
	walk(t.Object, nil)
	return out
}

// strayLists reports what stands in the table and is none of its lists.
func (s schema) strayLists(table any, at manifest.Path, report func(at, right manifest.Path), places map[string]manifest.Path) {
	m, _ := table.(map[string]any)
	known := slices.Collect(maps.Values(s.lists))
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if slices.Contains(known, key) {
			continue
		}
		right, ok := places[key]
		if !ok {
			right = s.list(gpu.ListPCI)
		}
		report(join(at, key), right)
	}
}

// misspeltGates reports gates that differ a little from the real ones.
func misspeltGates(gates []string, object string) []diagnose.Finding {
	var out []diagnose.Finding
	for _, g := range gates {
		for _, right := range []string{gate, "GPU"} {
			if diagnose.Misspelt(g, right) {
				out = append(out, diagnose.New("GPU0313", object, diagnose.Values{"gate": g, "right": right}))
			}
		}
	}
	return out
}

// permitFlag returns the flag that permits a name for an id.
func permitFlag(id gpu.ID, name gpu.ResourceName) string {
	return fmt.Sprintf("--permit %s=%s", id.Selector(), name)
}

// permitHint returns flags for a name that can be pasted: for every GPU that
// carries it, or for a vGPU its profile. The id of any other name is for the
// operator to fill in, which note then says.
func permitHint(name gpu.ResourceName) (flags, note string) {
	var all []string
	for _, d := range gpu.DeviceIDs(name) {
		if gpu.IsGPUDevice(d) {
			all = append(all, permitFlag(gpu.NVIDIA(d), name))
		}
	}
	switch {
	case len(all) > 0:
		return strings.Join(all, " "), ""
	case name.IsNVIDIA() && name.IsVGPU():
		return fmt.Sprintf("--permit %q", strings.ReplaceAll(name.Short(), "_", " ")+"="+string(name)), " (check the profile's exact name)"
	default:
		return "--permit VENDOR:DEVICE=" + string(name), " (VENDOR:DEVICE is the id that lspci -nn shows)"
	}
}

// permitText is permitHint in one piece.
func permitText(name gpu.ResourceName) string {
	flags, note := permitHint(name)
	return flags + note
}
