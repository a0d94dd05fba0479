package binding

import "math/bits"

// view is where the units of each device may be, as a leader counts them: a bit a node.
type view [devices]uint8

func (v view) used(node uint8) (n int) {
	for _, at := range v {
		n += int(at >> node & 1)
	}
	return n
}

func (v view) placed() (n int) {
	for _, at := range v {
		n += int(bit(at != 0))
	}
	return n
}

// move returns the view with a device on a node, too. That it leaves the old one is not
// counted before it was seen, unless that is the mistake.
func (w *world) move(v view, d, node uint8) view {
	if w.mistake == spendsFreed {
		v[d] = 0
	}
	v[d] |= 1 << node
	return v
}

// fits reports that no subset of what the view has is too much.
func (w *world) fits(v view) bool {
	for n := uint8(1); n <= nodes; n++ {
		if v.used(n) > w.room[n] {
			return false
		}
	}
	return v.placed() <= w.budget
}

// look is a live list of all devices.
func (s *state) look() (v view) {
	for d, dev := range s.dev {
		if dev.node != 0 {
			v[d] = 1 << dev.node
		}
	}
	return v
}

// leader is a binder: what it does next, from where it stands.
func (w *world) leader(s *state, l int, out emit) {
	who := uint8(l + 1)
	n := *s
	me := &n.leaders[l]
	switch me.at {
	case candidate:
		if s.lease != 0 {
			return
		}
		n.lease = who
		me.fresh = true
		n.leaders[1-l].fresh = false
		me.at = applying // nothing to apply: it decides
		if w.mistake != batchForgotten {
			me.batch = n.ledger
		} else {
			n.ledger = [devices]entry{}
		}
		out(n, lead, step{what: "leads: swaps the term, sees the batch", who: who})
	case deciding:
		w.batches(s, s.look(), [devices]entry{}, 2, func(b [devices]entry) {
			n := *s
			n.leaders[l].batch = b
			n.leaders[l].at = decided
			if w.mistake == noLedger {
				n.leaders[l].at = applying
			}
			out(n, decide, step{what: "decides", who: who})
		})
		w.refuse(s, who, out)
	case decided:
		if !me.fresh {
			return // the swap would conflict: settle has it leave
		}
		me.at = applying
		if w.mistake == notCarried {
			out(n, working, step{what: "sees that the term is its own", who: who})
			return
		}
		n.ledger = me.batch
		out(n, working, step{what: "swaps the ledger", who: who})
	case applying:
		for d, e := range me.batch {
			if e == 0 {
				continue
			}
			n := *s
			n.apply(uint8(d), e)
			n.leaders[l].batch[d] = 0
			out(n, working, step{what: "writes", who: who, dev: uint8(d) + 1, node: e.node()})
		}
	}
}

// apply is an entry's write. The resourceVersion is the one of the decision, or the entry
// would not be there.
func (s *state) apply(d uint8, e entry) {
	dev := &s.dev[d]
	if s.w.mistake == blindBinder && dev.phase != live {
		return
	}
	before := *dev
	dev.node = e.node()
	if e.answers() {
		dev.answer = e.node()
	}
	if *dev != before {
		s.wrote(d)
	}
}

// settle lets leaders go on who have nothing left to write, and those leave who would
// only see that their swap conflicts.
func (w *world) settle(s *state) {
	for l := range s.leaders {
		me := &s.leaders[l]
		if me.at == candidate || me.at == applying && !none(me.batch) || me.at == decided && me.fresh && !none(me.batch) {
			continue
		}
		if me.fresh || w.mistake == noLedger && me.at != applying {
			me.at = deciding
			continue
		}
		*me = leader{}
	}
}

// refuse is a leader's refusal of a set, for whatever reason, at any time.
func (w *world) refuse(s *state, who uint8, out emit) {
	for v := range w.sets {
		m := s.w.sets[v][0]
		i := s.dev[m].att
		if i == 0 || !s.asks(i, v) {
			continue
		}
		n := *s
		n.dev[m].answer = refused
		n.wrote(m)
		out(n, giveUp, step{what: "refuses", who: who, id: i})
	}
}

// asks reports that all of a VM's set asks by this id, and waits for an answer.
func (s *state) asks(i start, v int) bool {
	all := true
	for _, m := range s.w.sets[v] {
		d := s.dev[m]
		if d.phase < live || d.att != i || d.claim != 0 || d.answer == refused {
			return false
		}
		all = all && d.answer != 0 && d.answer == d.node && d.node == s.dev[s.w.sets[v][0]].node
	}
	return !all
}

// batches calls f with each batch of up to depth decisions that the rules allow.
func (w *world) batches(s *state, v view, b [devices]entry, depth int, f func([devices]entry)) {
	next := func(v view, b [devices]entry) {
		f(b)
		if depth > 1 {
			w.batches(s, v, b, depth-1, f)
		}
	}
	for node := uint8(1); node <= nodes; node++ {
		for vm := range w.sets {
			if v, b, ok := w.bindSet(s, v, b, vm, node); ok {
				next(v, b)
			}
		}
		for d := range uint8(template) {
			if dev := s.dev[d]; dev.phase != live || dev.att != 0 || dev.node != 0 || b[d] != 0 {
				continue
			}
			if v := w.move(v, d, node); w.fits(v) {
				b := b
				b[d] = place(node)
				next(v, b)
			}
		}
	}
	w.repack(s, v, b, next)
}

// bindSet answers a set that asks with a node.
func (w *world) bindSet(s *state, v view, b [devices]entry, vm int, node uint8) (view, [devices]entry, bool) {
	i := s.dev[w.sets[vm][0]].att
	if i == 0 || !s.asks(i, vm) {
		return v, b, false
	}
	for _, m := range w.sets[vm] {
		if b[m] != 0 || s.dev[m].phase != live {
			return v, b, false
		}
		b[m] = bind(node)
		v = w.move(v, m, node)
	}
	return v, b, w.fits(v)
}

// repack moves a reservation out of the way of a set that fits nowhere.
func (w *world) repack(s *state, v view, b [devices]entry, next func(view, [devices]entry)) {
	for vm := range w.sets {
		i := s.dev[w.sets[vm][0]].att
		if i == 0 || !s.asks(i, vm) || w.fitsAnywhere(s, v, b, vm) {
			continue
		}
		for d := range uint8(devices) {
			dev := s.dev[d]
			promised := dev.att != 0 && (w.mistake != movesWhatStarts || dev.claim != 0 || dev.att == i)
			if dev.phase != live || promised || bits.OnesCount8(v[d]) != 1 || b[d] != 0 || dev.node == 0 {
				continue
			}
			to := 3 - dev.node
			moved, without := w.move(v, d, to), v
			without[d] = 1 << to
			if !w.fits(moved) || !w.fitsAnywhere(s, without, b, vm) {
				continue
			}
			b := b
			b[d] = place(to)
			next(moved, b)
		}
	}
}

func (w *world) fitsAnywhere(s *state, v view, b [devices]entry, vm int) bool {
	for node := uint8(1); node <= nodes; node++ {
		if _, _, ok := w.bindSet(s, v, b, vm, node); ok {
			return true
		}
	}
	return false
}
