package binding

import (
	"fmt"
	"slices"
)

// mistake is one that is known, to be seeded.
type mistake string

const (
	noLedger        mistake = "no ledger"
	notCarried      mistake = "term checked but not carried"
	byName          mistake = "re-invocation by name"
	ageAlone        mistake = "collection by age alone"
	readAlone       mistake = "collection by a read alone"
	spendsFreed     mistake = "a batch spends what it frees"
	takesUnclaimed  mistake = "takeover of a start that is not claimed"
	blindAttach     mistake = "a webhook attaches without resourceVersion"
	blindBinder     mistake = "the binder writes without resourceVersion"
	batchForgotten  mistake = "a new leader forgets the batch"
	noCollector     mistake = "nothing is collected"
	movesWhatStarts mistake = "the binder moves what a start was promised"
)

// world is what does not change during a run.
type world struct {
	room    [nodes + 1]int // units a node serves
	sets    [vms][]uint8   // the devices each VM wants, in UID order
	budget  int            // for all devices together
	starts  [vms]int       // how often a VM is started
	faults  uint8
	forged  bool // a tenant makes a VM's second start with the id of the first
	mistake mistake
}

// Ranks of steps: what goes on by itself comes before what only happens.
const (
	working   uint8 = iota // a process goes on
	deliver                // the API server or virt-controller does
	lead                   // somebody becomes leader
	decide                 // the binder decides
	collect                // the collector
	giveUp                 // a wait ends, a set is refused
	happening              // VMs, tenants and other admission; never needed for progress
	fault
)

// step names what happened, for traces.
type step struct {
	what      string
	who       uint8
	id        start
	dev, node uint8
}

func (t step) String() string {
	text := t.what
	if t.who != 0 {
		text = fmt.Sprintf("%d: %s", t.who, text)
	}
	if t.id != 0 {
		text += fmt.Sprintf(", start %d", t.id)
	}
	if t.dev != 0 {
		text += fmt.Sprintf(", device %d", t.dev-1)
	}
	if t.node != 0 {
		text += fmt.Sprintf(", node %d", t.node)
	}
	return text
}

// emit takes a state that can come next.
type emit func(next state, rank uint8, t step)

// next emits all that can come after s.
func (w *world) next(s *state, out emit) {
	for v := range s.vmi {
		w.vm(s, v, out)
	}
	for h := range s.hooks {
		w.hook(s, h, out)
	}
	for i := start(1); i <= starts; i++ {
		w.apiServer(s, i, out)
	}
	for l := range s.leaders {
		w.leader(s, l, out)
	}
	for d := range uint8(devices) {
		w.collector(s, d, out)
		w.tenant(s, d, out)
	}
	w.faulty(s, out)
}

// vm is the VM controller, and the launcher's creation by virt-controller.
func (w *world) vm(s *state, v int, out emit) {
	h := s.idleHook()
	if i := s.vmi[v]; i != 0 {
		n := *s
		n.vmi[v] = 0
		out(n, happening, step{what: "VMI ends", id: i})
		if some, all := s.wanted(i); h >= 0 && some {
			rank := deliver
			if !all {
				rank = happening // it will be refused
			}
			n = *s
			n.hooks[h] = webhook{at: claiming, id: i}
			out(n, rank, step{what: "launcher is created, VMI read live", id: i})
		}
	}
	for k := range w.starts[v] {
		i := start(2*v + k + 1)
		if h < 0 || s.create[i] != unused {
			continue
		}
		n := *s
		n.create[i] = open
		n.hooks[h] = webhook{at: checking, id: i}
		out(n, happening, step{what: "VMI is created", id: i})
		break
	}
}

func (s *state) idleHook() int {
	for h := range s.hooks {
		if s.hooks[h].at == idle {
			return h
		}
	}
	return -1
}

// wanted reports whether some of the VMI's set is there to be claimed, and whether all
// that is not claimed is.
func (s *state) wanted(i start) (some, all bool) {
	all = true
	for _, m := range s.members(i) {
		d := s.dev[m]
		carries := d.phase >= live && d.att == s.carried(i)
		some = some || carries && d.claim == 0
		all = all && carries && (d.claim == 0 || d.claim == i)
	}
	return some, all
}

// free reports that start i may take the device.
func (w *world) free(s *state, m uint8, i start) bool {
	d := s.dev[m]
	if d.phase != live {
		return false
	}
	if d.att == 0 || d.claim != 0 && d.claim.vm() == i.vm() && s.vmi[i.vm()] != d.claim {
		return true
	}
	return w.mistake == takesUnclaimed && d.claim == 0 && d.att.vm() == i.vm()
}

func (w *world) hook(s *state, h int, out emit) {
	j := s.hooks[h]
	n := *s
	to := &n.hooks[h]
	what := step{id: j.id}
	switch j.at {
	case idle:
		return
	case checking:
		what.what = w.check(s, &n, to)
	case creating:
		what.what = "template device is there"
		*to = webhook{at: attaching, id: j.id}
		if n.dev[template].phase == absent {
			what.what = "creates the template device"
			n.dev[template] = device{phase: bare, att: j.id}
			n.wrote(template)
		}
	case attaching:
		m := s.members(j.id)[j.k]
		what.dev, what.what = m+1, "attaches"
		made := s.dev[m].phase == bare && s.dev[m].att == j.id
		if !made && !w.free(s, m, j.id) && (w.mistake != blindAttach || s.dev[m].phase != live) {
			*to = webhook{at: undoing, id: j.id}
			what.what = "finds it taken"
			break
		}
		n.dev[m] = device{phase: live, node: s.dev[m].node, att: j.id}
		n.wrote(m)
		to.k++
		if int(to.k) == len(s.members(j.id)) {
			*to = webhook{at: waiting, id: j.id}
		}
	case waiting:
		w.wait(s, h, out)
		return
	case undoing:
		what.what = s.undo(&n, to)
	case claiming:
		m := s.members(j.id)[j.k]
		what.dev, what.what = m+1, "claims"
		d := &n.dev[m]
		if d.phase < live || d.att != s.carried(j.id) || d.claim != 0 && d.claim != j.id {
			*to = webhook{}
			what.what = "refuses the launcher"
			break
		}
		if d.claim == 0 {
			d.claim = j.id
			n.wrote(m)
		}
		to.k++
		if int(to.k) == len(s.members(j.id)) {
			*to = webhook{}
		}
	}
	out(n, working, what)
}

// check is all that a webhook looks at before it writes.
func (w *world) check(s, n *state, to *webhook) string {
	i := to.id
	set := s.members(i)
	if j := s.dev[set[0]].att; w.recognised(s, i, j) {
		n.create[i], n.adopted[i] = again, true
		*to = webhook{}
		return "takes it for a re-invocation"
	}
	ok := s.vmi[i.vm()] == 0
	for _, m := range set {
		ok = ok && (w.free(s, m, i) || m == template && s.dev[m].phase == absent)
	}
	if !ok {
		n.answer(to, over)
		return "refuses at once"
	}
	to.at = attaching
	if slices.Contains(set, template) {
		to.at = creating
	}
	return "checks"
}

// recognised reports that start i is taken for start j, come again. A call that is one goes
// by apiServer: here it is a mistake, or a forgery that cannot be told from one.
func (w *world) recognised(s *state, i, j start) bool {
	if w.mistake != byName && !w.forged || s.create[i] != open || j == 0 || j == i || j.vm() != i.vm() {
		return false
	}
	yes, _ := s.answered(j)
	return yes && s.mine(j) && s.vmi[i.vm()] == 0
}

// answer ends a webhook's call. Who paused for too long answers nobody.
func (s *state) answer(h *webhook, a uint8) {
	if s.create[h.id] == open {
		s.create[h.id] = a
	}
	*h = webhook{}
}

func (w *world) wait(s *state, h int, out emit) {
	i := s.hooks[h].id
	n := *s
	switch yes, no := s.answered(i); {
	case yes:
		n.answer(&n.hooks[h], admitted)
		out(n, working, step{what: "allows", id: i})
	case no:
		n.hooks[h].at = undoing
		out(n, working, step{what: "is refused", id: i})
		return
	}
	n = *s
	n.hooks[h].at = undoing
	out(n, giveUp, step{what: "has waited long enough", id: i})
}

// answered reports what a waiting webhook sees.
func (s *state) answered(i start) (yes, no bool) {
	set := s.members(i)
	yes = true
	for _, m := range set {
		d := s.dev[m]
		no = no || d.phase < live || d.att != i || d.answer == refused
		yes = yes && d.answer != 0 && d.answer == d.node && d.node == s.dev[set[0]].node
	}
	return yes && !no, no
}

// undo takes one member back, or says that all are.
func (s *state) undo(n *state, to *webhook) string {
	for _, m := range s.members(to.id) {
		if d := s.dev[m]; d.phase != absent && d.att == to.id && d.claim == 0 {
			n.detach(m)
			if m == template {
				n.remove(m)
			}
			return "rolls back"
		}
	}
	n.answer(to, over)
	return "has rolled back"
}

func (s *state) detach(m uint8) {
	d := &s.dev[m]
	d.att, d.claim, d.answer = 0, 0, 0
	s.wrote(m)
}

// remove deletes a device: at once if no finalizer holds it. That of a template device
// is counted as that of an order, from its placement on.
func (s *state) remove(m uint8) {
	if d := &s.dev[m]; d.node == 0 {
		*d = device{}
	} else {
		d.phase = deleting
	}
	s.wrote(m)
}

// apiServer goes on with a create that the webhook let pass.
func (w *world) apiServer(s *state, i start, out emit) {
	if s.create[i] != admitted && s.create[i] != again {
		return
	}
	n := *s
	n.create[i] = over
	out(n, happening, step{what: "somebody else denies the VMI", id: i})
	n = *s
	if s.create[i] == admitted {
		n.create[i] = again
		what := "called again, knows its id"
		if !s.mine(i) {
			n.create[i] = over
			what = "called again, refuses"
		}
		out(n, deliver, step{what: what, id: i})
		return
	}
	n.create[i] = over
	if s.vmi[i.vm()] != 0 {
		out(n, deliver, step{what: "VMI exists already", id: i})
		return
	}
	n.vmi[i.vm()] = i
	out(n, deliver, step{what: "VMI is stored", id: i})
}

// mine reports that the whole set carries the start's id, and nobody has claimed it.
func (s *state) mine(i start) bool {
	for _, m := range s.members(i) {
		if d := s.dev[m]; d.phase < live || d.att != i || d.claim != 0 {
			return false
		}
	}
	return true
}

// collector gives back what nobody will use.
func (w *world) collector(s *state, m uint8, out emit) {
	if w.mistake == noCollector {
		return
	}
	d := s.dev[m]
	n := *s
	switch {
	case d.phase == absent:
	case d.phase == bare:
		if s.create[d.att] == over {
			n.remove(m)
			out(n, collect, step{what: "collector deletes a template device without origin", dev: m + 1})
		}
	case d.att == 0:
		switch {
		case d.phase == deleting:
			n.dev[m] = device{}
			n.wrote(m)
			out(n, collect, step{what: "finalizer is taken off", dev: m + 1})
		case m == template:
			n.remove(m)
			out(n, collect, step{what: "collector deletes an unused template device", dev: m + 1})
		}
	case d.claim != 0:
		if s.vmi[d.claim.vm()] != d.claim {
			n.detach(m)
			out(n, collect, step{what: "collector releases", id: d.att, dev: m + 1})
		}
	case s.create[d.att] == over || w.mistake == readAlone:
		i := s.vmi[d.att.vm()]
		if i != 0 && s.carried(i) == d.att && w.mistake != ageAlone {
			n.dev[m].claim = i
			n.wrote(m)
			out(n, collect, step{what: "collector claims", id: i, dev: m + 1})
			return
		}
		n.detach(m)
		out(n, collect, step{what: "collector gives back", id: d.att, dev: m + 1})
	}
}

// tenant does what a tenant may: delete a device, and edit it, which costs an entry.
func (w *world) tenant(s *state, m uint8, out emit) {
	if m == 1 && s.dev[m].phase == live {
		n := *s
		n.remove(m)
		out(n, happening, step{what: "tenant deletes", dev: m + 1})
	}
	n := *s
	n.wrote(m)
	if n != *s {
		out(n, happening, step{what: "tenant edits", dev: m + 1})
	}
}

// faulty are pauses and crashes.
func (w *world) faulty(s *state, out emit) {
	if s.faults == w.faults {
		return
	}
	for l := range s.leaders {
		who := uint8(l + 1)
		if s.leaders[l].at == candidate {
			continue
		}
		n := *s
		n.faults++
		if s.lease == who {
			n.lease = 0
			out(n, fault, step{what: "leader pauses, its Lease runs out", who: who})
		}
		n.leaders[l] = leader{}
		out(n, fault, step{what: "leader crashes", who: who})
	}
	for h, j := range s.hooks {
		if j.at == idle {
			continue
		}
		n := *s
		n.faults++
		if j.at != claiming && s.create[j.id] == open {
			n.create[j.id] = over
			out(n, fault, step{what: "webhook pauses, the create ends", id: j.id})
		}
		n.hooks[h] = webhook{}
		out(n, fault, step{what: "webhook crashes", id: j.id})
	}
}
