package usage

import (
	"cmp"
	"slices"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// Verdict says what becomes of the devices of one resource name on one node.
type Verdict struct {
	Move []string // UIDs of devices to be placed anew: nobody uses them
	Lose []string // of devices that are lost, and stay where they are
	Heal []string // of lost devices whose units are back
}

// Judge compares what a node serves with what devices hold there. Where it serves
// less, unattached devices move as far as needed; then the youngest are lost, those
// under VMs that are not final last. Where it serves more than is taken, lost devices
// are healed in the opposite order, whole ones only: what their VMs' pods have on the
// node is theirs. A node that is not Certain changes nothing.
//
// It judges the moment: kubelet shows 0 for as long as a device plugin restarts, so
// whoever acts on a loss waits until it has lasted.
func (s *Snapshot) Judge(supply Supply, name gpu.ResourceName) Verdict {
	if !supply.Certain {
		return Verdict{}
	}
	name = s.Names.Base(name)
	var holding, lost []*Device
	var held int64
	for i := range s.Devices {
		d := &s.Devices[i]
		switch {
		case d.Node != supply.Node || d.Node == "" || s.Names.Base(d.Resource) != name:
		case d.Lost:
			lost = append(lost, d)
		default:
			holding = append(holding, d)
			held = plus(held, d.units())
		}
	}
	s.byClaim(holding)
	s.byClaim(lost)
	served := supply.Units[name]
	if held > served {
		return shed(holding, served)
	}
	return Verdict{Heal: s.heal(lost, supply.Node, name, served-held)}
}

// shed keeps what fits, in order, and parts with the rest.
func shed(holding []*Device, served int64) (v Verdict) {
	for _, d := range holding {
		switch {
		case d.units() <= served:
			served -= d.units()
		case d.Attached() || d.Starting:
			v.Lose = append(v.Lose, d.UID)
		default:
			v.Move = append(v.Move, d.UID)
		}
	}
	return v
}

// heal returns the lost devices that fit into what the held ones leave.
func (s *Snapshot) heal(lost []*Device, node string, name gpu.ResourceName, room int64) (healed []string) {
	if len(lost) == 0 {
		return nil
	}
	var raw int64
	under := map[launcherKey]int64{} // raw units by VMI: those that a healed device would cover
	for _, r := range s.CapacityRaw() {
		if r.Node == node && r.Resource == name {
			raw = plus(raw, r.Units)
			own := launcherKey{r.Namespace, r.VMI}
			under[own] = plus(under[own], r.Units)
		}
	}
	room -= raw // below 0 where pods have more than there is
	for _, d := range lost {
		need := d.units()
		if d.Attached() {
			own := launcherKey{d.Namespace, d.VMI}
			covered := min(need, under[own])
			under[own] -= covered
			need -= covered
		}
		if need <= room {
			room -= need
			healed = append(healed, d.UID)
		}
	}
	return healed
}

// byClaim sorts devices by how strong their claim to units is: under a VMI that is
// not final, then taken otherwise, then unattached; the older first.
func (s *Snapshot) byClaim(devices []*Device) {
	runs := map[string]bool{}
	for i := range s.VMIs {
		runs[s.VMIs[i].UID] = !s.VMIs[i].Final
	}
	rank := func(d *Device) int {
		switch {
		case d.Attached() && runs[d.VMI]:
			return 0
		case d.Attached() || d.Starting:
			return 1
		}
		return 2
	}
	slices.SortFunc(devices, func(a, b *Device) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), a.Since.Compare(b.Since), cmp.Compare(a.UID, b.UID))
	})
}
