package bind

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/internal/books"
	"github.com/gpuctl/gpuctl/internal/cluster"
)

// BinderOptions are what a binder needs. All are required.
type BinderOptions struct {
	Ledger *Ledger
	Feed   *cluster.Feed
	Client client.Client // writes
	Live   client.Reader // reads from etcd
	Now    func() time.Time
	Log    logr.Logger
}

// Binder gives devices their units, in the order in which they were asked for, while this
// process leads. It is a runnable of a manager.
type Binder struct {
	BinderOptions
	changed chan struct{}
	queue   queue
	nudger  nudger
}

// NewBinder makes a binder.
func NewBinder(o BinderOptions) *Binder {
	return &Binder{BinderOptions: o, changed: make(chan struct{}, 1)}
}

// Changed says that the facts have changed. It does not block.
func (b *Binder) Changed() {
	select {
	case b.changed <- struct{}{}:
	default:
	}
}

const (
	// unsynced is when it is looked again whether all is seen.
	unsynced = 50 * time.Millisecond
	// leadAgain is how long one who was deposed, and still has the Lease, waits; longer
	// each time that it comes to nothing, up to leadSeldom.
	leadAgain  = time.Second
	leadSeldom = time.Minute
)

// Start binds until ctx ends. An error that ends a leadership is logged, and the binder
// begins anew: from what the API server says, and nothing else.
func (b *Binder) Start(ctx context.Context) error {
	for pause := leadAgain; ctx.Err() == nil; pause = min(2*pause, leadSeldom) {
		led, err := b.lead(ctx)
		if err != nil && ctx.Err() == nil {
			if led {
				pause = leadAgain
			}
			b.Log.Error(err, "the binder begins anew", "after", pause.String())
			sleep(ctx, pause)
		}
	}
	return nil
}

// lead becomes leader and binds until that ends. led says that it was.
func (b *Binder) lead(ctx context.Context) (led bool, err error) {
	for !b.Feed.Synced() {
		if !sleep(ctx, unsynced) {
			return false, nil
		}
	}
	if err := b.Ledger.Lead(ctx); err != nil {
		return false, err
	}
	// Nothing of an earlier leader can come any more: what is listed now is all.
	listed := 0
	var bare []*v1alpha1.GPUDevice
	err = eachDevice(ctx, b.Live, pageSize, func(d *v1alpha1.GPUDevice) {
		listed++
		b.Feed.Assume(d)
		if isBare(d) {
			bare = append(bare, d)
		}
	})
	if err != nil {
		return false, fmt.Errorf("list GPUDevices: %w", err)
	}
	b.finalize(ctx, bare)
	b.queue, b.nudger = newQueue(), nudger{}
	b.Log.Info("the binder leads", "term", b.Ledger.Term(), "devices", listed)
	for {
		again, err := b.round(ctx)
		if err != nil {
			return true, err
		}
		timer := time.NewTimer(again)
		select {
		case <-ctx.Done():
			timer.Stop()
			return true, nil
		case <-b.changed:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// pageSize is how many devices are listed at a time.
const pageSize = 2500

// eachDevice lists all devices as they are at one moment, page by page: all at once would
// take more memory than they do afterwards. Each is the caller's to keep.
func eachDevice(ctx context.Context, live client.Reader, size int64, take func(*v1alpha1.GPUDevice)) error {
	page := &v1alpha1.GPUDeviceList{}
	for {
		if err := live.List(ctx, page, client.Limit(size), client.Continue(page.Continue)); err != nil {
			return err
		}
		for _, d := range page.Items { // a copy, which keeps no other
			take(&d)
		}
		if page.Continue == "" {
			return nil
		}
		page = &v1alpha1.GPUDeviceList{ListMeta: metav1.ListMeta{Continue: page.Continue}}
	}
}

// stalled is when the binder looks again that could write nothing of what it should.
const stalled = 200 * time.Millisecond

// answerTime is how long a write that no ledger knows may take.
const answerTime = 10 * time.Second

// resync is when the binder looks though nothing has changed.
const resync = 30 * time.Second

// round decides once, writes, and says what became of it. It returns when to look again.
func (b *Binder) round(ctx context.Context) (again time.Duration, err error) {
	now := b.Now()
	// 1. What can be given to whom.
	plan := b.decide(now)
	// 2. It is written, by the ledger.
	if err := b.prepare(ctx, plan); err != nil {
		return 0, err
	}
	entries := plan.entries()
	outcomes, err := b.Ledger.Commit(ctx, entries)
	if errors.Is(err, ErrInvalid) {
		b.Log.Error(err, "a batch was not written; this is a fault of gpuctl's")
		b.postpone(plan, now)
		return resync, nil
	}
	if err != nil {
		return 0, err
	}
	written, missed := b.learn(plan, entries, outcomes, now)
	// 3. Who got nothing is told why, and who leaves may go.
	untold, failed, err := b.tell(ctx, plan, now)
	if err != nil {
		return 0, err
	}
	if missed {
		return 0, nil // others may have what was meant for who is put off now
	}
	if failed || plan.more && !written { // whoever is in the way is so for longer than a moment
		return stalled, nil
	}
	return b.nudger.next(now, b.queue.next(now, plan.more || untold)), nil
}

// postpone puts all of a plan off.
func (b *Binder) postpone(p *plan, now time.Time) {
	for _, g := range p.granted {
		if g.demand != nil {
			b.queue.failed(g.demand, now)
		}
	}
}

// learn takes over what became of the writes, and reports that some of them were made,
// and that some requests are put off since theirs were not.
func (b *Binder) learn(p *plan, entries []Entry, outcomes []Outcome, now time.Time) (written, missed bool) {
	made := map[string]bool{}
	for i, o := range outcomes {
		uid := string(entries[i].Device.UID)
		switch {
		case o.Device != nil:
			b.Feed.Assume(o.Device)
		case o.Result == Void:
			b.Feed.Forget(uid)
		}
		if o.Result == Written {
			written, made[uid] = true, true
		}
		if o.Err != nil {
			b.Log.Error(o.Err, "a placement was refused")
		}
	}
	for _, g := range p.granted {
		switch {
		case g.demand == nil:
		case slices.ContainsFunc(g.writes, func(w books.Write) bool { return !made[w.UID] }):
			b.queue.failed(g.demand, now) // of which nothing was written, too
			missed = true
		default:
			g.demand.tries = 0
		}
	}
	return written, missed
}
