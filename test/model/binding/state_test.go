package binding

import (
	"fmt"
	"strings"
)

// start is a request id, or none.
type start uint8

const (
	devices  = 3
	vms      = 2
	starts   = 4
	template = 2 // the device that VM 1's webhook makes
	nodes    = 2 // 1 and 2; 0 is none
)

func (i start) vm() int { return int(i-1) / 2 }

// phase is whether a device exists.
type phase uint8

const (
	absent   phase = iota
	bare           // a template device without origin; att is the start that made it
	live           //
	deleting       // the finalizer keeps it
)

// device is the status of a GPUDevice.
type device struct {
	phase  phase
	node   uint8 // placement
	att    start // attachment and bind request, which are always written together
	claim  start // the attachment's vmiUID
	answer uint8 // a node, or refused
}

const refused = 3

// entry is what a batch has for a device: a node, with or without an answer.
type entry uint8

func place(node uint8) entry  { return entry(node) }
func bind(node uint8) entry   { return entry(nodes + node) }
func (e entry) node() uint8   { return (uint8(e)-1)%nodes + 1 }
func (e entry) answers() bool { return e > nodes }
func (e entry) none() bool    { return e == 0 }

func (e entry) String() string {
	switch {
	case e.none():
		return "-"
	case e.answers():
		return fmt.Sprintf("bind%d", e.node())
	}
	return fmt.Sprintf("node%d", e.node())
}

func none(b [devices]entry) bool { return b == [devices]entry{} }

// Where a leader stands.
const (
	candidate uint8 = iota
	deciding        // it has seen all devices live
	decided         // it has a batch that is not swapped
	applying        // its own batch, or its predecessor's
)

type leader struct {
	at    uint8
	fresh bool // nobody else has written the ledger since it did
	batch [devices]entry
}

// Where a webhook stands.
const (
	idle uint8 = iota
	checking
	creating
	attaching
	waiting
	undoing
	claiming
)

type webhook struct {
	at uint8
	id start
	k  uint8 // the next member
}

// Where the create of a VMI stands in the API server.
const (
	unused   uint8 = iota
	open           // the webhook has it
	admitted       // the webhook said yes
	again          // and once more, when it was called again
	over           // stored, refused, or nobody waits for it any more
)

// state is the whole world.
type state struct {
	dev     [devices]device
	ledger  [devices]entry
	lease   uint8 // leader 1 or 2, or nobody
	leaders [2]leader
	hooks   [2]webhook
	create  [starts + 1]uint8
	adopted [starts + 1]bool // it carries the id of the VM's other start: a mistake
	vmi     [vms]start       // what is stored under the VM's name
	faults  uint8
	w       *world
}

// members are the devices of the start's set.
func (s *state) members(i start) []uint8 { return s.w.sets[i.vm()] }

// carried is the id that is written in the VMI which start i makes.
func (s *state) carried(i start) start {
	if s.adopted[i] {
		return (i - 1) ^ 1 + 1
	}
	return i
}

// wrote says that a device has another resourceVersion now.
func (s *state) wrote(d uint8) {
	if s.w.mistake == blindBinder {
		return
	}
	s.ledger[d] = 0
	for l := range s.leaders {
		s.leaders[l].batch[d] = 0
	}
}

// key is a state in few bits.
type key [2]uint64

type packer struct {
	key key
	n   uint
}

func (p *packer) put(v uint8, bits uint) {
	if p.n < 64 && p.n+bits > 64 {
		p.n = 64
	}
	p.key[p.n/64] |= uint64(v) << (p.n % 64)
	p.n += bits
}

type unpacker struct {
	key key
	n   uint
}

func (u *unpacker) get(bits uint) uint8 {
	if u.n < 64 && u.n+bits > 64 {
		u.n = 64
	}
	v := u.key[u.n/64] >> (u.n % 64) & (1<<bits - 1)
	u.n += bits
	return uint8(v)
}

func bit(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}

// rank orders leaders, to have one state for two that differ in their names.
func (l leader) rank(leads bool) int {
	return int(l.at) | int(bit(l.fresh))<<2 | int(bit(leads))<<3 | int(l.batch[0])<<4 | int(l.batch[1])<<7 | int(l.batch[2])<<10
}

func (w webhook) rank() int { return int(w.at) | int(w.id)<<3 | int(w.k)<<6 }

// canonical swaps what may be swapped.
func (s *state) canonical() {
	if s.hooks[0].rank() < s.hooks[1].rank() {
		s.hooks[0], s.hooks[1] = s.hooks[1], s.hooks[0]
	}
	if s.leaders[0].rank(s.lease == 1) < s.leaders[1].rank(s.lease == 2) {
		s.leaders[0], s.leaders[1] = s.leaders[1], s.leaders[0]
		if s.lease != 0 {
			s.lease = 3 - s.lease
		}
	}
}

func (s *state) pack() key {
	var p packer
	for _, d := range s.dev {
		p.put(uint8(d.phase), 2)
		p.put(d.node, 2)
		p.put(uint8(d.att), 3)
		p.put(uint8(d.claim), 3)
		p.put(d.answer, 2)
	}
	for _, e := range s.ledger {
		p.put(uint8(e), 3)
	}
	p.put(s.lease, 2)
	for _, l := range s.leaders {
		p.put(l.at, 2)
		p.put(bit(l.fresh), 1)
		for _, e := range l.batch {
			p.put(uint8(e), 3)
		}
	}
	for _, w := range s.hooks {
		p.put(w.at, 3)
		p.put(uint8(w.id), 3)
		p.put(w.k, 1)
	}
	for i := 1; i <= starts; i++ {
		p.put(s.create[i], 3)
		p.put(bit(s.adopted[i]), 1)
	}
	for _, i := range s.vmi {
		p.put(uint8(i), 3)
	}
	p.put(s.faults, 2)
	return p.key
}

func (w *world) unpack(k key) state {
	s := state{w: w}
	u := unpacker{key: k}
	for d := range s.dev {
		s.dev[d] = device{phase(u.get(2)), u.get(2), start(u.get(3)), start(u.get(3)), u.get(2)}
	}
	for d := range s.ledger {
		s.ledger[d] = entry(u.get(3))
	}
	s.lease = u.get(2)
	for l := range s.leaders {
		s.leaders[l].at, s.leaders[l].fresh = u.get(2), u.get(1) == 1
		for d := range s.leaders[l].batch {
			s.leaders[l].batch[d] = entry(u.get(3))
		}
	}
	for w := range s.hooks {
		s.hooks[w] = webhook{u.get(3), start(u.get(3)), u.get(1)}
	}
	for i := 1; i <= starts; i++ {
		s.create[i], s.adopted[i] = u.get(3), u.get(1) == 1
	}
	for v := range s.vmi {
		s.vmi[v] = start(u.get(3))
	}
	s.faults = u.get(2)
	return s
}

// String shows the devices, what is stored, and which writes are to come, in one line.
func (s *state) String() string {
	var b strings.Builder
	for d, v := range s.dev {
		fmt.Fprintf(&b, "d%d:%s ", d, v)
	}
	for v, i := range s.vmi {
		if i != 0 {
			fmt.Fprintf(&b, "vmi%d=start%d ", v, i)
		}
	}
	if !none(s.ledger) {
		fmt.Fprintf(&b, "ledger=%v ", s.ledger)
	}
	for l, v := range s.leaders {
		if !none(v.batch) && (v.at == decided || v.batch != s.ledger) {
			fmt.Fprintf(&b, "leader%d=%v ", l+1, v.batch)
		}
	}
	return b.String()
}

func (d device) String() string {
	switch d.phase {
	case absent:
		return "-"
	case bare:
		return fmt.Sprintf("bare(start%d)", d.att)
	}
	text := "pending"
	if d.node != 0 {
		text = fmt.Sprintf("node%d", d.node)
	}
	if d.phase == deleting {
		text += ",deleting"
	}
	switch {
	case d.claim != 0:
		text += fmt.Sprintf(",start%d,vmi%d", d.att, d.claim)
	case d.att != 0:
		text += fmt.Sprintf(",start%d", d.att)
	}
	if d.answer == refused {
		text += ",refused"
	} else if d.answer != 0 {
		text += fmt.Sprintf(",bound%d", d.answer)
	}
	return text
}
