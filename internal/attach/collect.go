package attach

import (
	"context"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/internal/books"
	"github.com/gpuctl/gpuctl/internal/cluster"
)

// Collector gives back what VMIs no longer use: those that have ended, and starts that
// came to nothing. It is a runnable of a manager, in every replica.
type Collector struct {
	Options
	leads   <-chan struct{} // closed when this replica leads
	changed chan struct{}
	since   map[string]time.Time    // when starts and devices were first seen as they are
	tidied  map[types.UID]time.Time // when spare devices were last looked at
}

// NewCollector makes a collector. leads is closed when this replica leads.
func NewCollector(o Options, leads <-chan struct{}) *Collector {
	return &Collector{Options: o, leads: leads, changed: make(chan struct{}, 1), since: map[string]time.Time{}, tidied: map[types.UID]time.Time{}}
}

const (
	// abandoned is after how long a start that no VMI has come of is given back: more
	// than a create may take, and than what it sent to etcd may. Who does not lead waits
	// longer, so that mostly one replica does it.
	abandoned = 45 * time.Second
	behind    = 5 * time.Second
	// lookAgain is how often all is looked at.
	lookAgain = 5 * time.Second
	// lookSoonest is how soon it is looked again when something has changed.
	lookSoonest = 100 * time.Millisecond
	// keepMade is for how long a VM keeps the devices that were made for it while it has
	// no VMI: longer than the back-off of one that crashes again and again.
	keepMade = 10 * time.Minute
)

// NeedLeaderElection tells the manager that every replica collects: a new leader's
// clock would begin anew.
func (c *Collector) NeedLeaderElection() bool { return false }

// Changed says that the facts have changed. It does not block.
func (c *Collector) Changed() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// Start collects until ctx ends.
func (c *Collector) Start(ctx context.Context) error {
	for {
		if c.Feed.Synced() {
			c.pass(ctx)
		}
		if !sleep(ctx, lookSoonest) {
			return nil
		}
		timer := time.NewTimer(lookAgain - lookSoonest)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-c.changed:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// pass looks once at what may have to be given back. An error of one device keeps nothing
// else from being looked at.
func (c *Collector) pass(ctx context.Context) {
	now, leads, seen := c.Now(), c.isLeader(), map[string]bool{}
	// since reports what has been so for a time, and a little longer where others come first.
	since := func(key string, wait time.Duration) bool {
		if !leads {
			wait += behind
		}
		if seen[key] = true; c.since[key].IsZero() {
			c.since[key] = now
		}
		return now.Sub(c.since[key]) >= wait
	}
	var over, dangling, unborn, spare []*v1alpha1.GPUDevice
	c.Feed.View(func(_ *books.Books, v cluster.View) {
		for _, d := range v.Ended() {
			if since("ended "+string(d.UID), 0) {
				over = append(over, d)
			}
		}
		for _, d := range v.Unclaimed() {
			if since(d.Status.Attachment.RequestID, abandoned) {
				dangling = append(dangling, d)
			}
		}
		for _, d := range v.Spare() {
			switch {
			case d.DeletionTimestamp != nil:
			case d.Status.Origin == nil:
				if since(string(d.UID), abandoned) {
					unborn = append(unborn, d)
				}
			case leads && !now.Before(c.tidied[d.UID].Add(lookAgain)):
				spare = append(spare, d)
				c.tidied[d.UID] = now
			}
		}
	})
	maps.DeleteFunc(c.since, func(key string, _ time.Time) bool { return !seen[key] })
	maps.DeleteFunc(c.tidied, func(_ types.UID, at time.Time) bool { return now.Sub(at) > 2*lookAgain })
	c.do(ctx, over, c.end)
	c.do(ctx, dangling, c.settleStart)
	c.do(ctx, unborn, c.remove)
	c.do(ctx, spare, c.tidy)
}

func (c *Collector) isLeader() bool {
	select {
	case <-c.leads:
		return true
	default:
		return false
	}
}

// collectTime is how long one device may take.
const collectTime = 10 * time.Second

func (c *Collector) do(ctx context.Context, all []*v1alpha1.GPUDevice, one func(context.Context, *v1alpha1.GPUDevice) error) {
	workqueue.ParallelizeUntil(context.Background(), atOnce, len(all), func(i int) {
		ctx, cancel := context.WithTimeout(ctx, collectTime)
		defer cancel()
		if err := one(ctx, all[i]); err != nil && ctx.Err() == nil {
			c.Log.Error(err, "collect", "device", klog.KObj(all[i]))
		}
	})
}

// end releases a device whose VMI has ended.
func (c *Collector) end(ctx context.Context, d *v1alpha1.GPUDevice) error {
	a := d.Status.Attachment
	owner, err := instance(ctx, c.Live, d.Namespace, a.VMIName)
	if err != nil || owner.is(a.VMIUID) {
		return err
	}
	done, err := c.detach(ctx, d, func(now *v1alpha1.GPUDevice) bool { return claimedBy(now, a.RequestID, a.VMIUID) })
	if done {
		c.Log.Info("a device is released: its VMI has ended", "device", klog.KObj(d), "vmi", a.VMIName, "uid", a.VMIUID)
	}
	return err
}

func claimedBy(d *v1alpha1.GPUDevice, id string, uid types.UID) bool {
	a := d.Status.Attachment
	return a != nil && a.RequestID == id && a.VMIUID == uid
}

// settleStart claims a device for the VMI that its start became, or releases it.
func (c *Collector) settleStart(ctx context.Context, d *v1alpha1.GPUDevice) error {
	a := d.Status.Attachment
	owner, err := instance(ctx, c.Live, d.Namespace, a.VMIName)
	if err != nil {
		return err
	}
	if owner != nil && !owner.final && owner.GetAnnotations()[v1alpha1.AnnotationRequestID] == a.RequestID {
		live, err := c.device(ctx, d.Namespace, d.Name)
		if err != nil || live == nil || live.UID != d.UID || !carries(live, a.RequestID) {
			return err
		}
		return c.claim(ctx, &member{name: d.Name, device: live}, a.RequestID, owner.GetUID(), false)
	}
	done, err := c.detach(ctx, d, func(now *v1alpha1.GPUDevice) bool { return carries(now, a.RequestID) })
	if done {
		c.Log.Info("a device is released: its start came to nothing", "device", klog.KObj(d), "vmi", a.VMIName, "request", a.RequestID)
	}
	return err
}
