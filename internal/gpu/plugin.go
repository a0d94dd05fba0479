package gpu

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
)

// Registration is one resource name that NVIDIA's KubeVirt device plugin
// registers on a host, with what it lists under it.
type Registration struct {
	Release Release // whose behaviour this is, never zero
	Name    ResourceName
	Units   []Unit // sorted: by group number, by address, or by UUID
	// Refused says why kubelet turns the name down; the node then shows nothing
	// under it. Nil for a good name.
	Refused error
}

// Unit is one device of a Registration as kubelet sees it.
type Unit struct {
	// ID is the device id sent to kubelet: the number of the IOMMU group before
	// v1.5.0, the PCI address from v1.5.0 on, the UUID of a mediated device.
	ID string
	// Function is the function that is counted; nil for a mediated device.
	Function *Function
	// Group holds every function of the IOMMU group that the plugin counts as
	// part of it (NVIDIA's, on a vfio driver), Function among them, by address.
	Group []*Function
	// Mdev is the mediated device; nil for passthrough.
	Mdev *Mdev
	// Unhealthy units lower allocatable and leave capacity alone.
	Unhealthy bool
	// AllocateFails is set for a unit that is listed healthy although every
	// allocation of it fails: /dev/iommu exists, the vfio device node does not.
	AllocateFails bool
}

// Registrations returns what release r of the plugin registers when it starts
// on h as h is now, sorted by name. The plugin looks at a host only once, at
// its start: what was bound later is missing until it restarts. The zero
// Release is taken for Newest.
//
// It counts every function of vendor 10de on a vfio driver (CountsDriver) that
// is in an IOMMU group, of whatever class, virtual functions included; before
// v1.5.0 only the first such function of a group, by address. A function whose
// driver is unknown is not counted. Where a host does not say what group a
// function is in (Group unknown, as opposed to none), each card is taken for a
// group of its own, and so is each virtual function; before v1.5.0 the unit's
// ID is then the slot, "0000:18:00", which no real plugin sends.
func (r Release) Registrations(h *Host) []Registration {
	r = r.orNewest()
	byName := map[ResourceName][]Unit{}
	for _, u := range r.passthroughUnits(h) {
		name := r.Name(u.Function.ID.Device)
		byName[name] = append(byName[name], u)
	}
	for i := range h.Mdevs {
		// A type without a name is skipped by the plugin.
		if m := &h.Mdevs[i]; m.TypeName != "" {
			name := MdevResource(m.TypeName)
			byName[name] = append(byName[name], Unit{ID: m.UUID, Mdev: m})
		}
	}
	var out []Registration
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		units := byName[name]
		slices.SortFunc(units, compareUnits)
		out = append(out, Registration{Release: r, Name: name, Units: units, Refused: name.Check()})
	}
	return out
}

// passthroughUnits returns a unit for each function or group that r lists, by
// address.
func (r Release) passthroughUnits(h *Host) []Unit {
	groups := map[string][]*Function{}
	counted := r.counted(h)
	for _, f := range counted {
		key := groupKey(f)
		groups[key] = append(groups[key], f)
	}
	var units []Unit
	for _, f := range counted {
		key := groupKey(f)
		u := Unit{ID: f.Address.String(), Function: f, Group: groups[key]}
		if !r.ListsAddresses() {
			if f != u.Group[0] {
				continue // hidden behind the first function of its group
			}
			u.ID = key
		}
		u.Unhealthy, u.AllocateFails = r.health(h, u.Group)
		units = append(units, u)
	}
	return units
}

// counted returns the functions of h that r knows of, by address.
func (r Release) counted(h *Host) []*Function {
	var out []*Function
	for i := range h.Functions {
		f := &h.Functions[i]
		if f.IsNVIDIA() && r.CountsDriver(f.Driver) && !f.Group.None() {
			out = append(out, f)
		}
	}
	slices.SortFunc(out, func(a, b *Function) int { return a.Address.Compare(b.Address) })
	return out
}

// groupKey is the group that f is taken to be in: see Registrations.
func groupKey(f *Function) string {
	if id, ok := f.Group.ID(); ok {
		return strconv.Itoa(id)
	}
	address := f.Address.String()
	if f.VF {
		return address
	}
	return address[:len(address)-len(".0")]
}

// health says what a missing device node does to the units of a group. Without
// iommufd the node is the group's, the plugin watches it, and its removal makes
// the units unhealthy; they stay so for a while if the node comes back. (A node
// that was missing before the plugin started goes unnoticed, and the plugin
// then does not even register again after a restart of kubelet; a host does not
// tell the two apart, and removal is the one that happens.) With iommufd the
// plugin looks for the functions' own nodes only when it allocates, and needs
// those of the whole group. Before it watched nodes, or knew iommufd, a missing
// one changed nothing.
func (r Release) health(h *Host, group []*Function) (unhealthy, allocateFails bool) {
	absent := slices.ContainsFunc(group, func(f *Function) bool { return f.VFIONode == Absent })
	if h.IOMMUFD == Present {
		return false, absent && r.usesIOMMUFD()
	}
	return absent && r.watchesNodes(), false
}

// compareUnits orders units of one name.
func compareUnits(a, b Unit) int {
	if a.Function == nil || b.Function == nil {
		return cmp.Compare(a.ID, b.ID)
	}
	groupA, okA := a.Function.Group.ID()
	groupB, okB := b.Function.Group.ID()
	if okA && okB && a.ID == strconv.Itoa(groupA) && b.ID == strconv.Itoa(groupB) {
		return cmp.Compare(groupA, groupB)
	}
	return a.Function.Address.Compare(b.Function.Address)
}
