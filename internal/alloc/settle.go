package alloc

import (
	"cmp"
	"slices"
)

// Settled is what became of devices whose node serves fewer or more units than
// before.
type Settled struct {
	Moves  []Move   // reservations that have another node, by UID
	Lost   []string // UIDs of devices that lost their units, sorted
	Healed []string // UIDs of lost devices that have them again, on the same node; sorted
}

// Settle brings devices and nodes together again: units that are back heal lost
// devices, running VMs first, then the oldest; for a running VM reservations
// move. Where a node still serves fewer units than it holds, reservations move,
// the youngest first; then the youngest lose their units, running VMs last. A
// lost reservation is placed anew where there is room. may is as in a Request.
//
// Afterwards no node holds more than it serves, but for those in doubt, and
// settling again changes nothing. Settle before deciding on anything new, or
// newcomers take the units that would heal.
func Settle(s *Snapshot, may func(d Device, node string) bool) (*Snapshot, Settled) {
	if s.short.len() == 0 && s.lost.len() == 0 {
		return s, Settled{}
	}
	t := &settler{repacker: repacker{q: &query{Request: Request{May: may}}}, s: s}
	// 1. Units that are back go to those who had them.
	t.heal(false)
	// 2. Nodes that hold too much give up what they must.
	for _, p := range collect(t.s.short) {
		t.shrink(p)
	}
	// 3. What that left over, since who was lost last may have had more than was
	// missing, and what is free elsewhere goes to the lost; and what they leave
	// over in turn.
	for left := -1; left != t.s.lost.len(); {
		left = t.s.lost.len()
		t.heal(true)
	}
	return t.s, changed(s, t.s)
}

type settler struct {
	repacker
	s *Snapshot
}

// heal gives lost devices their units back; anew places the reservations among
// them elsewhere.
func (t *settler) heal(anew bool) {
	lost := collect(t.s.lost)
	slices.SortFunc(lost, func(a, b *Device) int { return losesFirst(b, a) })
	for _, d := range lost {
		back := *d
		back.Lost = false
		p, needs := t.s.pool(d.Node, d.Resource), d.Units-d.Running
		switch {
		case p != nil && !t.doubted(p) && (p.free() >= needs || d.State != Held && t.giveWay(p, needs)):
			t.s = t.s.With(PutDevice(back))
		case anew && d.State == Held:
			t.move(d)
		}
	}
}

// giveWay moves reservations, the youngest first, until a running VM's lost units
// are free on the node; or nobody, if that is not enough.
func (t *settler) giveWay(p *pool, units int64) bool {
	if p.room() < units {
		return false
	}
	was := t.s
	for _, d := range slices.SortedFunc(slices.Values(p.devices), losesFirst) {
		if d.State == Held && t.move(d) && t.s.pool(p.node, p.resource).free() >= units {
			return true
		}
	}
	t.s = was
	return false
}

// shrink takes from a node what it does not serve any more.
func (t *settler) shrink(p *pool) {
	if t.doubted(p) {
		return
	}
	young := slices.SortedFunc(slices.Values(p.devices), losesFirst)
	missing := p.over()
	for _, d := range young {
		if missing > 0 && d.State == Held && t.move(d) {
			missing -= d.Units
		}
	}
	for _, d := range young {
		if missing > 0 && !d.Lost && t.s.find(d.UID).Node == p.node {
			gone := *d
			gone.Lost = true
			t.s = t.s.With(PutDevice(gone))
			missing -= d.Units
		}
	}
}

// doubted reports that nothing is concluded from what the node serves.
func (t *settler) doubted(p *pool) bool { return t.s.at(p.node).doubted }

// move puts a reservation on the best other node that has room.
func (t *settler) move(d *Device) bool {
	x := t.s.index(d.Resource)
	if x == nil {
		return false
	}
	moved := false
	x.ranked(max(1, d.Units), func(p *pool) bool {
		if p.node == d.Node || !t.allowed(d, p.node) {
			return true
		}
		there := *d
		there.Node, there.Lost, moved = p.node, false, true
		t.s = t.s.With(PutDevice(there))
		return false
	})
	return moved
}

// changed compares the devices that were lost, or on a node that was short or
// had lost some.
func changed(before, after *Snapshot) (out Settled) {
	seen := map[string]bool{}
	look := func(was *Device) bool {
		now := after.find(was.UID)
		switch {
		case seen[was.UID]:
		case now.Node != was.Node:
			out.Moves = append(out.Moves, Move{was.UID, was.Node, now.Node})
		case now.Lost && !was.Lost:
			out.Lost = append(out.Lost, was.UID)
		case was.Lost && !now.Lost:
			out.Healed = append(out.Healed, was.UID)
		}
		seen[was.UID] = true
		return true
	}
	there := func(p *pool) bool {
		for _, d := range p.devices {
			look(d)
		}
		return true
	}
	before.short.all(there)
	before.lost.all(func(d *Device) bool {
		if p := before.pool(d.Node, d.Resource); p != nil {
			there(p)
		}
		return look(d)
	})
	slices.SortFunc(out.Moves, func(a, b Move) int { return cmp.Compare(a.UID, b.UID) })
	slices.Sort(out.Lost)
	slices.Sort(out.Healed)
	return out
}
