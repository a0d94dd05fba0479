package usage

import (
	"cmp"
	"slices"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// UnderLost returns for lost devices, by UID, how many raw units on their node are
// those of their own VMI's launchers. While the device is lost they count by the pod;
// once it is healed it covers them, and it needs so many fewer. Without that a VM
// whose units are back would be in its own way. Devices of one VMI share what its
// launchers have, the smaller UID first. Devices of which nothing runs are not in it.
func (s *Snapshot) UnderLost() map[string]int64 {
	var lost []*Device
	for i := range s.Devices {
		if d := &s.Devices[i]; d.Lost && d.Attached() {
			lost = append(lost, d)
		}
	}
	if len(lost) == 0 {
		return nil
	}
	raw := map[coverKey]int64{}
	for _, r := range s.CapacityRaw() {
		key := coverKey{r.Namespace, r.VMI, r.Node, r.Resource}
		raw[key] = gpu.AddUnits(raw[key], r.Units)
	}
	slices.SortFunc(lost, func(a, b *Device) int { return cmp.Compare(a.UID, b.UID) })
	out := map[string]int64{}
	for _, d := range lost {
		key := coverKey{d.Namespace, d.VMI, d.Node, s.Names.Base(d.Resource)}
		if units := min(d.units(), raw[key]); units > 0 {
			out[d.UID] = units
			raw[key] -= units
		}
	}
	return out
}
