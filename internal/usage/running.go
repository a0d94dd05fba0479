package usage

import (
	"cmp"
	"slices"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// Running returns for attached devices, by UID, how many units its VMI's launchers
// have on the device's node; at most the device's own. Devices of one VMI share what its
// launchers have: those that hold units first, then the smaller UID. Devices of which
// nothing runs are not in it.
//
// While a device is lost, what runs of it counts by the pod; once it is healed it covers
// the pod, and needs so many fewer. Without that a VM whose units are back would be in
// its own way.
func (s *Snapshot) Running() map[string]int64 {
	var attached []*Device
	for i := range s.Devices {
		if d := &s.Devices[i]; d.Attached() && d.Node != "" {
			attached = append(attached, d)
		}
	}
	if len(attached) == 0 {
		return nil
	}
	launched := map[coverKey]int64{}
	for _, r := range RawUse(s.Pods, LaunchersOf(s.VMIs), CapacityCoverage(nil, s.Names)) {
		key := coverKey{r.Namespace, r.VMI, r.Node, r.Resource}
		launched[key] = gpu.AddUnits(launched[key], r.Units)
	}
	slices.SortFunc(attached, func(a, b *Device) int {
		if a.Lost != b.Lost {
			return after(a.Lost)
		}
		return cmp.Compare(a.UID, b.UID)
	})
	out := map[string]int64{}
	for _, d := range attached {
		key := coverKey{d.Namespace, d.VMI, d.Node, s.Names.Base(d.Resource)}
		if units := min(d.units(), launched[key]); units > 0 {
			out[d.UID] = units
			launched[key] -= units
		}
	}
	return out
}

func after(last bool) int {
	if last {
		return 1
	}
	return -1
}
