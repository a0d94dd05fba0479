package bind

import (
	"context"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/gpuctl/gpuctl/internal/cluster"
)

// answer is what the API server said to a request.
type answer int

const (
	unknown  answer = iota // nothing that counts: it may have been done, or be done yet
	done                   // it was done
	conflict               // the object is another one, or was changed
	gone                   // there is no such object
	refused                // it was not done, and will not be
)

// tooLarge reports an object that nobody can write: etcd does not take it.
func tooLarge(err error) bool {
	return apierrors.IsInternalError(err) && strings.Contains(err.Error(), "request is too large")
}

// answerOf reads the error of a request.
func answerOf(err error) answer {
	switch {
	case err == nil:
		return done
	case apierrors.IsConflict(err):
		return conflict
	case cluster.Absent(err):
		return gone
	case tooLarge(err):
		return refused
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err), apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err):
		return refused
	}
	return unknown
}

// newDelay returns the delays between tries.
func newDelay() *wait.Backoff {
	return &wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 100, Cap: 2 * time.Second}
}

// repeat tries until the answer is done or refused, or ctx ends: at once after a conflict,
// with growing delays when the outcome is not known.
func (l *Ledger) repeat(ctx context.Context, what string, try func(context.Context) (answer, error)) error {
	delay := newDelay()
	for {
		one, cancel := context.WithTimeout(ctx, l.tryFor)
		got, err := try(one)
		cancel()
		pause := time.Duration(0)
		switch got {
		case done:
			return nil
		case refused:
			return fmt.Errorf("%s: %w", what, err)
		case unknown:
			pause = delay.Step()
		}
		if !sleep(ctx, pause) {
			return fmt.Errorf("%s: its outcome is not known: %w: %w", what, context.Cause(ctx), err)
		}
	}
}

// sleep reports that it slept to the end.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return ctx.Err() == nil
	}
}
