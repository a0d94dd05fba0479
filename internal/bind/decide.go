package bind

import (
	"context"
	"errors"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/internal/books"
	"github.com/gpuctl/gpuctl/internal/cluster"
	"github.com/gpuctl/gpuctl/internal/diagnose"
)

// plan is what one round does.
type plan struct {
	decidedAt metav1.MicroTime
	granted   []granted
	refused   []refusal
	leaving   []*v1alpha1.GPUDevice          // whose finalizer may go
	devices   map[string]*v1alpha1.GPUDevice // as they were decided on, by UID
	more      bool                           // something is left to do at once
	nudges    []cluster.WaitingVM
}

// granted are writes for a request; nil for those that no request asks for.
type granted struct {
	demand *demand
	writes []books.Write
	answer bool // the devices of a set get the node as answer
}

// refusal is a request that cannot be met now.
type refusal struct {
	demand *demand
	why    *diagnose.Refusal
}

// decide says what can be given to whom.
func (b *Binder) decide(now time.Time) *plan {
	p := &plan{
		decidedAt: metav1.NewMicroTime(now.Truncate(time.Microsecond)), devices: map[string]*v1alpha1.GPUDevice{},
	}
	b.Feed.View(func(bk *books.Books, d cluster.View) {
		round := bk.Begin()
		defer round.Close()
		// 1. Nodes that serve more or less than they did.
		p.grant(granted{writes: round.Settle()}, d)
		b.nudger.keep(round, now)
		// 2. Who asked first.
		hopeless, room := map[ask]*diagnose.Refusal{}, d.Room()
		for _, r := range b.queue.find(d) {
			switch {
			case now.Before(r.after):
			case p.size()+len(r.uids) > v1alpha1.MaxBatch:
				p.more = true
			default:
				b.try(round, room, r, d, p, hopeless)
			}
		}
		p.more = p.more || p.size() > v1alpha1.MaxBatch
		// 3. Who waits, and could start now.
		p.nudges = b.nudger.look(round, d, now)
		// 4. Who wants to go.
		for _, device := range d.Leaving() {
			if device.Status.Attachment == nil && slices.Contains(device.Finalizers, v1alpha1.FinalizerUnits) {
				p.leaving = append(p.leaving, device)
			}
		}
	})
	return p
}

// ask is what orders that are alike ask for.
type ask struct {
	namespace, class string
	count            int32
}

// try decides about one request.
func (b *Binder) try(round *books.Round, room *cluster.Room, r *demand, d cluster.View, p *plan, hopeless map[ask]*diagnose.Refusal) {
	now := p.decidedAt.Time
	round.Effort = 0
	if now.Before(r.moves) {
		round.Effort = -1
	}
	var writes []books.Write
	var err error
	got := func(bool) {}
	if r.set {
		got = b.nudger.let(round, vmOf(d.Device(r.uids[0])), now)
		if writes, err = bind(round, room, r); err != nil {
			got(false)
		}
	} else {
		device := d.Device(r.key)
		alike := ask{device.Namespace, device.Spec.ClassName, device.Spec.Count}
		if known := hopeless[alike]; known != nil { // within a round nothing gets free
			p.refused = append(p.refused, refusal{r, known})
			return
		}
		writes, err = round.Place(r.key)
		if why := (*diagnose.Refusal)(nil); errors.As(err, &why) {
			hopeless[alike] = why
		}
	}
	if err != nil {
		if round.Effort == 0 {
			r.moves = now.Add(movesAgain)
		}
		p.refused = append(p.refused, refusal{r, diagnose.Refused(err, "")})
		return
	}
	own := len(writes) == len(r.uids) && slices.ContainsFunc(writes, func(w books.Write) bool { return w.UID == r.uids[0] })
	if !own { // others make room first
		p.more = true
		p.grant(granted{writes: writes}, d)
		return
	}
	got(true)
	if r.launcher != nil {
		room.Give(r.launcher, writes[0].Node) // nobody else of this round has it
	}
	p.grant(granted{demand: r, writes: writes, answer: r.set}, d)
}

// bind finds a node for a set on which its launcher can run.
func bind(round *books.Round, room *cluster.Room, r *demand) ([]books.Write, error) {
	if r.unreadable != nil {
		return nil, diagnose.LauncherUnreadable("the start "+r.key, r.unreadable.Error())
	}
	if r.launcher == nil {
		return round.Bind(r.uids, nil)
	}
	return round.Bind(r.uids, room.Fits(r.launcher, r.uids))
}

func (p *plan) grant(g granted, d cluster.View) {
	if len(g.writes) == 0 {
		return
	}
	for _, w := range g.writes {
		p.devices[w.UID] = d.Device(w.UID)
	}
	p.granted = append(p.granted, g)
}

func (p *plan) size() (n int) {
	for _, g := range p.granted {
		n += len(g.writes)
	}
	return n
}

// entries are the plan's writes as the ledger has them. A plan that is too large for it
// leaves the last ones out; a set is in it as a whole or not at all.
func (p *plan) entries() []Entry {
	var out []Entry
	gone := func(w books.Write) bool { return p.devices[w.UID] == nil }
	for _, g := range p.granted {
		if g.demand != nil && (len(out)+len(g.writes) > v1alpha1.MaxBatch || slices.ContainsFunc(g.writes, gone)) {
			continue
		}
		for _, w := range g.writes {
			if device := p.devices[w.UID]; device != nil && len(out) < v1alpha1.MaxBatch {
				out = append(out, p.entry(device, w, g.answer))
			}
		}
	}
	return out
}

// entry is one write. Times say since when something is so: what stays as it is keeps
// them.
func (p *plan) entry(d *v1alpha1.GPUDevice, w books.Write, answer bool) Entry {
	if w.Node == "" {
		return Entry{Device: d, Answer: answered(d)}
	}
	e := Entry{Device: d, Answer: answered(d), Placement: &v1alpha1.Placement{
		Node: w.Node, ResourceName: string(w.Resource), Units: int32(w.Units), Since: p.decidedAt,
	}}
	if was := d.Status.Placement; was != nil && was.Node == w.Node {
		e.Placement.Since = was.Since
		if w.Lost {
			e.Placement.LostSince = was.LostSince
		}
	}
	if w.Lost && e.Placement.LostSince == nil {
		e.Placement.LostSince = &p.decidedAt
	}
	if answer {
		e.Answer = &v1alpha1.BindAnswer{AnsweredAt: p.decidedAt, Node: w.Node}
	}
	return e
}

// isBare reports a device that holds units without the finalizer: an uninstall took it
// away.
func isBare(d *v1alpha1.GPUDevice) bool {
	return d.Status.Placement != nil && d.DeletionTimestamp.IsZero() && !slices.Contains(d.Finalizers, v1alpha1.FinalizerUnits)
}

// finalize writes the finalizer of devices, and returns them as they are now; nil for one
// that was changed meanwhile.
func (b *Binder) finalize(ctx context.Context, bare []*v1alpha1.GPUDevice) []*v1alpha1.GPUDevice {
	changed := make([]*v1alpha1.GPUDevice, len(bare))
	errs := make([]error, len(bare))
	workqueue.ParallelizeUntil(context.Background(), atOnce, len(bare), func(i int) {
		d := bare[i].DeepCopy()
		d.Finalizers = append(d.Finalizers, v1alpha1.FinalizerUnits)
		ctx, cancel := context.WithTimeout(ctx, answerTime)
		defer cancel()
		if errs[i] = b.Client.Update(ctx, d); errs[i] == nil {
			changed[i] = d
		}
	})
	for i, d := range bare {
		switch got := answerOf(errs[i]); {
		case changed[i] != nil:
			b.Feed.Assume(changed[i])
		case got == gone:
			b.Feed.Forget(string(d.UID))
		case got != conflict:
			b.Log.Error(errs[i], "write the finalizer", "device", d.Namespace+"/"+d.Name)
		}
	}
	return changed
}

// prepare writes what comes before a placement: the finalizer of orders. Who was changed
// meanwhile is left out of the plan, and asked about again.
func (b *Binder) prepare(ctx context.Context, p *plan) error {
	var bare []*v1alpha1.GPUDevice
	for _, g := range p.granted {
		for _, w := range g.writes {
			if d := p.devices[w.UID]; d != nil && d.Status.Placement == nil && !slices.Contains(d.Finalizers, v1alpha1.FinalizerUnits) {
				bare = append(bare, d)
			}
		}
	}
	for i, d := range b.finalize(ctx, bare) {
		if uid := string(bare[i].UID); d != nil {
			p.devices[uid] = d
		} else {
			delete(p.devices, uid)
		}
	}
	return ctx.Err()
}

// vmOf is the VM for whose start a device is taken; "" for none.
func vmOf(d *v1alpha1.GPUDevice) types.UID {
	if d == nil || d.Status.Attachment == nil {
		return ""
	}
	return d.Status.Attachment.VMUID
}
