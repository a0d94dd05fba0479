package usage

import (
	"cmp"
	"slices"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// Snapshot is all that uses GPUs at one moment.
type Snapshot struct {
	Names   Names
	Devices []Device
	VMIs    []VMI
	Pods    []Pod
}

// BudgetRaw returns the raw use that counts for budgets.
func (s *Snapshot) BudgetRaw() []Raw {
	return RawUse(s.Pods, LaunchersOf(s.VMIs), BudgetCoverage(s.Devices, s.Names))
}

// CapacityRaw returns the raw use that counts for nodes; that of pods without a node
// is among it.
func (s *Snapshot) CapacityRaw() []Raw {
	return RawUse(s.Pods, LaunchersOf(s.VMIs), CapacityCoverage(s.Devices, s.Names))
}

// BudgetUse returns what each namespace has: every device that exists, pending and
// lost ones too, and the raw use beside them. Amounts are sorted by resource name
// and class, each pair once.
func (s *Snapshot) BudgetUse() map[string][]gpu.Amount {
	sums := map[string]map[gpu.Amount]int64{}
	add := func(namespace string, a gpu.Amount, units int64) {
		if sums[namespace] == nil {
			sums[namespace] = map[gpu.Amount]int64{}
		}
		sums[namespace][a] = gpu.AddUnits(sums[namespace][a], units)
	}
	for i := range s.Devices {
		d := &s.Devices[i]
		add(d.Namespace, gpu.Amount{Resource: s.Names.Base(d.Resource), Class: d.Class}, d.units())
	}
	for _, r := range s.BudgetRaw() {
		add(r.Namespace, gpu.Amount{Resource: r.Resource}, r.Units)
	}
	out := map[string][]gpu.Amount{}
	for namespace, amounts := range sums {
		for a, units := range amounts {
			a.Units = units
			out[namespace] = append(out[namespace], a)
		}
		slices.SortFunc(out[namespace], func(a, b gpu.Amount) int {
			return cmp.Or(cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Class, b.Class))
		})
	}
	return out
}

// Taken is what is taken of one resource name on one node.
type Taken struct {
	Held int64 // by devices that hold units, attached or not
	Raw  int64 // by pods, beyond what those devices cover
	// Under is how much of Raw is what still runs of lost devices.
	Under int64
}

// Free returns how many of the served units nobody has taken.
func (t Taken) Free(served int64) int64 { return max(0, served-gpu.AddUnits(t.Held, t.Raw)) }

// CapacityUse returns what is taken of each node's units, by node and resource name.
// A lost device takes nothing; the pod that runs under it does.
func (s *Snapshot) CapacityUse() map[string]map[gpu.ResourceName]Taken {
	out := map[string]map[gpu.ResourceName]Taken{}
	add := func(node string, name gpu.ResourceName, more Taken) {
		if out[node] == nil {
			out[node] = map[gpu.ResourceName]Taken{}
		}
		t := out[node][name]
		out[node][name] = Taken{gpu.AddUnits(t.Held, more.Held), gpu.AddUnits(t.Raw, more.Raw), gpu.AddUnits(t.Under, more.Under)}
	}
	running := s.Running()
	for i := range s.Devices {
		switch d := &s.Devices[i]; {
		case d.Holds():
			add(d.Node, s.Names.Base(d.Resource), Taken{Held: d.units()})
		case running[d.UID] > 0:
			add(d.Node, s.Names.Base(d.Resource), Taken{Under: running[d.UID]})
		}
	}
	for _, r := range s.CapacityRaw() {
		if r.Node != "" {
			add(r.Node, r.Resource, Taken{Raw: r.Units})
		}
	}
	return out
}
