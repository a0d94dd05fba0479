package diagnose

import (
	"slices"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// collision reports a GPU whose name another id of the host shares: which of the
// two the node offers is a race.
func (j *judge) collision(f *gpu.Function) (Finding, bool) {
	name := j.name(f.ID.Device).name
	if !j.sharedNames[name] {
		return Finding{}, false
	}
	for _, g := range j.registrations() {
		if g.Name == name && g.Collides() && slices.Contains(g.Functions(), f) {
			return j.collides(g), true
		}
	}
	return Finding{}, false
}

func (j *judge) collides(g gpu.Registration) Finding {
	var ids []gpu.ID
	for _, d := range g.DeviceIDs() {
		ids = append(ids, gpu.NVIDIA(d))
	}
	return New("GPU0406", nodeObject(j.host.Node), Values{
		"node": nodeName(j.host.Node), "ids": JoinIDs(ids), "release": j.release.String(), "name": string(g.Name),
	})
}

// registrations returns what the plugin makes of the host; it is asked for only
// where something hangs on it, since most hosts are plain.
func (j *judge) registrations() []gpu.Registration {
	if j.registered == nil {
		j.registered = j.release.Registrations(j.host)
	}
	return j.registered
}

// hidden reports a GPU that is ready but that the plugin's release does not
// offer under its own name.
func (j *judge) hidden(f *gpu.Function) (Finding, bool) {
	if f.Group.None() {
		return Finding{}, false
	}
	if !j.release.CountsDriver(f.Driver) {
		return j.about("GPU0413", f, Values{
			"driver": string(f.Driver), "release": j.release.String(),
			"why": "it does not know the driver", "hint": "use device plugin v1.5.0 or newer with driver nvgrace_gpu_vfio_pci",
		}), true
	}
	if j.release.ListsAddresses() {
		return Finding{}, false // every function is offered by its own address
	}
	if j.offered == nil {
		j.offered = offered(j.registrations())
	}
	if by := j.offered[f.Address]; by == "" || by == j.name(f.ID.Device).name {
		return Finding{}, false
	}
	return j.about("GPU0413", f, Values{
		"driver": string(f.Driver), "release": j.release.String(),
		"why":  "its IOMMU group is offered as " + string(j.offered[f.Address]),
		"hint": "use device plugin v1.5.0 or newer, or put the cards into groups of their own",
	}), true
}

// offered returns the name under which each function is offered: its own, or
// that of the function that stands for its whole group.
func offered(registrations []gpu.Registration) map[gpu.Address]gpu.ResourceName {
	out := map[gpu.Address]gpu.ResourceName{}
	for _, g := range registrations {
		for _, u := range g.Units {
			for _, f := range u.Group {
				if _, own := out[f.Address]; !own {
					out[f.Address] = g.Name
				}
			}
		}
		for _, u := range g.Units {
			if u.Function != nil {
				out[u.Function.Address] = g.Name
			}
		}
	}
	return out
}

func (j *judge) missingNodeEffect() string {
	if j.host.IOMMUFD == gpu.Present {
		return "from v1.4.0 the device plugin still lists it as healthy, and every allocation fails"
	}
	return "the device plugin lists it as unhealthy, so allocatable drops while capacity stays"
}
