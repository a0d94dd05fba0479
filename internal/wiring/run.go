package wiring

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/internal/patch"
)

// task is what the controller's queue holds. There are two, so that waiting for others
// to follow a write delays no other write.
type task string

const (
	toWire   task = "wire"
	toFollow task = "follow"
)

const (
	// gather is how long a change waits for others that come with it.
	gather = 100 * time.Millisecond
	// stuck is after how long a look that does not end is taken for dead.
	stuck = 5 * time.Minute
	// askAgain is when virt-api is asked again about a gate that it had closed, and when
	// VMs that hold the first entry back are looked at again.
	askAgain = time.Minute
)

// follower holds what is to follow the last write, and the queue.
type follower struct {
	mu     sync.Mutex
	queue  workqueue.TypedRateLimitingInterface[task]
	target *patch.Target
}

// due makes it follow.
func (f *follower) due(t *patch.Target) {
	f.mu.Lock()
	defer f.mu.Unlock()
	copied := *t
	f.target = &copied
	if f.queue != nil {
		f.queue.Add(toFollow)
	}
}

func (f *follower) of() *patch.Target {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.target == nil {
		return nil
	}
	copied := *f.target
	return &copied
}

// followed has what follows a write, or a look at a target that needs none, done. What
// was found of another target says nothing about this one.
func (c *Controller) followed(t *patch.Target) {
	if before := c.after.of(); before == nil || before.Meta("uid") != t.Meta("uid") {
		c.gate.Store(nil)
	}
	c.after.due(t)
}

// Changed says that something may have changed that the wiring follows from. While
// another replica leads, nothing comes of it.
func (c *Controller) Changed() {
	c.after.mu.Lock()
	defer c.after.mu.Unlock()
	if c.after.queue != nil {
		c.after.queue.AddAfter(toWire, gather)
	}
}

// SetupWithManager makes the manager run the controller while it leads.
func (c *Controller) SetupWithManager(m manager.Manager) error {
	loop, err := controller.NewTyped("wiring", m, controller.TypedOptions[task]{
		MaxConcurrentReconciles: 2, // one a task
		Reconciler:              reconcile.TypedFunc[task](c.reconcile),
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[task](200*time.Millisecond, 30*time.Second),
	})
	if err != nil {
		return err
	}
	return loop.Watch(source.TypedFunc[task](func(_ context.Context, queue workqueue.TypedRateLimitingInterface[task]) error {
		c.after.mu.Lock()
		defer c.after.mu.Unlock()
		c.after.queue = queue
		queue.Add(toWire)
		return nil
	}))
}

func (c *Controller) reconcile(ctx context.Context, t task) (reconcile.Result, error) {
	if t == toFollow {
		again, err := c.follow(ctx)
		return reconcile.Result{RequeueAfter: again}, err
	}
	again, err := c.wire(ctx)
	return reconcile.Result{RequeueAfter: again}, err
}

// follow does what follows a write.
func (c *Controller) follow(ctx context.Context) (again time.Duration, err error) {
	target := c.after.of()
	if target == nil {
		return 0, nil
	}
	// It may have changed since, or be gone: then what was written is no matter.
	if target.Object, err = c.Client.Get(ctx, &target.Document); err != nil {
		return 0, client.IgnoreNotFound(err)
	}
	findings, err := Follow(ctx, c.Client, target, target.Object, true)
	for _, f := range findings {
		c.Log.Info(f.Message, "code", string(f.Code), "object", f.Object)
	}
	if refusal, ok := errors.AsType[*patch.Refusal](err); ok {
		c.closed(&refusal.Findings[0])
		return askAgain, nil
	}
	if err != nil {
		return 0, err
	}
	if i := slices.IndexFunc(findings, func(f diagnose.Finding) bool { return f.Code == "GPU0327" }); i >= 0 {
		c.closed(&findings[i]) // a change of the KubeVirt CR is another reason to ask again
		return askAgain, nil
	}
	c.closed(nil)
	return 0, nil
}

// closed remembers whether virt-api refuses host devices, and has that said.
func (c *Controller) closed(f *diagnose.Finding) {
	if before := c.gate.Swap(f); (before == nil) != (f == nil) || before != nil && before.Code != f.Code {
		c.Changed()
	}
}

// Alive fails when a look does not end.
func (c *Controller) Alive() error {
	began := c.busy.Load()
	if began == 0 {
		return nil
	}
	if lasts := c.Now().Sub(time.Unix(0, began)); lasts > stuck {
		return fmt.Errorf("a look at the wiring has lasted for %s", lasts.Round(time.Second))
	}
	return nil
}
