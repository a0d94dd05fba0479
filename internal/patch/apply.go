package patch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/internal/manifest"
)

// Store reads and writes the target of a plan. An update of an object that
// somebody else has changed since it was read is a conflict.
type Store interface {
	Get(ctx context.Context, d *manifest.Document) (manifest.Object, error)
	// Update returns the object as it was stored.
	Update(ctx context.Context, d *manifest.Document, obj manifest.Object) (manifest.Object, error)
}

// Planner is Plan or Remove.
type Planner func(Input) (Result, error)

// Applied is a plan that was carried out: Before is the object it was made of, Stored
// what the API server made of the write, nil when its answer was lost.
type Applied struct {
	Result
	Before, Stored manifest.Object
}

// Apply carries a plan out: it reads the target anew, plans, writes, and looks at what
// was stored to see that the write stuck. A conflict and an API server or webhook that
// does not answer are tried again, with back-off, until ctx ends; the error then
// tells the last reason. When an answer was lost and the next look finds nothing
// left to do, the lost write is what was applied.
func Apply(ctx context.Context, store Store, in Input, plan Planner) (Applied, error) {
	var done, lost Applied
	err := persist(ctx, func(ctx context.Context) error {
		now, err := planAnew(ctx, store, in, plan)
		if err != nil {
			return err
		}
		done = now
		if len(done.Edits) == 0 {
			if len(lost.Edits) > 0 {
				done = lost
			}
			return nil
		}
		lost = Applied{}
		if done.Stored, err = store.Update(ctx, &in.Target.Document, done.Object); err != nil {
			if !apierrors.IsConflict(err) {
				lost = done
			}
			return fmt.Errorf("update %s: %w", in.Target.Ref(), err)
		}
		return nil
	})
	if err != nil || done.Stored == nil {
		return done, err
	}
	in.Target.Object = done.Stored
	return done, stuck(in, plan)
}

// planAnew reads the target and plans for it as it is.
func planAnew(ctx context.Context, store Store, in Input, plan Planner) (Applied, error) {
	obj, err := store.Get(ctx, &in.Target.Document)
	if err != nil {
		return Applied{}, fmt.Errorf("read %s: %w", in.Target.Ref(), err)
	}
	in.Target.Object = obj
	result, err := plan(in)
	return Applied{Result: result, Before: obj}, err
}

// stuck plans for what was stored: the API server drops what the served version of
// the kind has no field for, and still reports success.
func stuck(in Input, plan Planner) error {
	again, err := plan(in)
	if err != nil {
		return err
	}
	if len(again.Changes) == 0 {
		return nil
	}
	var lost []string
	for _, c := range again.Changes {
		lost = appendNew(lost, c.Path)
	}
	r := refuse("GPU0325", in.Target.Ref(), diagnose.Values{
		"object": in.Target.Ref(), "paths": strings.Join(lost, ", "), "version": in.Target.APIVersion(),
	})
	r.Written = true
	return r
}

// persist calls do until it succeeds, fails for good, or ctx ends.
func persist(ctx context.Context, do func(context.Context) error) error {
	backoff := wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.3, Steps: 20, Cap: 3 * time.Second}
	var last error
	for {
		err := do(ctx)
		if err == nil || !Transient(err) {
			return err
		}
		if last == nil || ctx.Err() == nil { // an attempt cut short says less than the one before
			last = err
		}
		timer := time.NewTimer(backoff.Step())
		select {
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("gave up, %w: the last attempt: %w", context.Cause(ctx), last)
		case <-timer.C:
		}
	}
}

// Transient reports an error that may be gone next time: somebody else wrote
// first, the API server is overloaded or away, or virt-operator's validator does
// not answer. What is refused stays refused.
func Transient(err error) bool {
	switch {
	case apierrors.IsConflict(err), apierrors.IsServerTimeout(err), apierrors.IsTimeout(err), apierrors.IsTooManyRequests(err), apierrors.IsServiceUnavailable(err):
		return true
	case apierrors.IsInternalError(err):
		return strings.Contains(err.Error(), "failed calling webhook")
	case utilnet.IsConnectionRefused(err), utilnet.IsConnectionReset(err), utilnet.IsProbableEOF(err), utilnet.IsTimeout(err):
		return true
	}
	var op *net.OpError
	return errors.As(err, &op)
}
