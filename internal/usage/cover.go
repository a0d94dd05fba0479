package usage

import "github.com/gpuctl/gpuctl/internal/gpu"

// Coverage says how many units of a VMI's launchers are those of its devices, and
// so no use of their own. It is capped at the units of the devices, per VMI and
// resource name: virt-controller lists any pod whose controller is the VMI,
// whoever made it, and what launchers have beyond their devices is raw.
type Coverage struct {
	names    Names
	anywhere bool // whatever node a launcher is on
	here     map[coverKey]int64
	all      map[coverKey]int64 // of all nodes; node is ""
}

type coverKey struct {
	namespace, vmi, node string
	name                 gpu.ResourceName
}

// BudgetCoverage is for budgets: every attached device covers launchers of its VMI.
// So does a lost one, since a lost device still counts itself.
func BudgetCoverage(devices []Device, n Names) Coverage {
	c := Coverage{names: n, anywhere: true, here: map[coverKey]int64{}, all: map[coverKey]int64{}}
	for i := range devices {
		if devices[i].Attached() {
			c.add(&devices[i])
		}
	}
	return c
}

// CapacityCoverage is for what nodes have free: only devices that hold units cover
// launchers, and only those on their node. A lost device holds none, so what runs
// under it counts by its pod.
func CapacityCoverage(devices []Device, n Names) Coverage {
	c := Coverage{names: n, here: map[coverKey]int64{}, all: map[coverKey]int64{}}
	for i := range devices {
		if devices[i].Attached() && devices[i].Holds() {
			c.add(&devices[i])
		}
	}
	return c
}

func (c Coverage) add(d *Device) {
	key := coverKey{d.Namespace, d.VMI, d.Node, c.names.Base(d.Resource)}
	c.here[key] = gpu.AddUnits(c.here[key], d.units())
	key.node = ""
	c.all[key] = gpu.AddUnits(c.all[key], d.units())
}

// cover takes what it covers of raw away from it and from the coverage: at the
// pod's node or, with anywhere, on any.
func (c Coverage) cover(raw *Raw, anywhere bool) {
	here := coverKey{raw.Namespace, raw.VMI, raw.Node, raw.Resource}
	all := here
	all.node = ""
	units := min(raw.Units, c.all[all])
	if !anywhere {
		units = min(units, c.here[here])
		c.here[here] -= units
	}
	c.all[all] -= units
	raw.Units -= units
}
