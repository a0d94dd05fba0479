package attach

import (
	"context"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpuctl/gpuctl/internal/cluster"
	"github.com/gpuctl/gpuctl/internal/diagnose"
)

// leader says whether somebody leads, by the Lease. Clocks of others count only for a
// Lease that is seen for the first time: after that it is by its changes that a leader
// is known to live. It is safe for concurrent use.
type leader struct {
	live  client.Reader
	lease types.NamespacedName
	now   func() time.Time

	mu    sync.Mutex
	seen  coordinationv1.LeaseSpec
	since time.Time // when it was first seen so
	at    time.Time // when it was last looked at
	good  time.Time // when somebody was last found to lead
}

// skew is how far apart clocks may be.
const skew = 10 * time.Second

// check refuses what needs a leader where nobody leads.
func (l *leader) check(ctx context.Context, object string) error {
	if l.lease.Name == "" {
		return nil // this process leads, whoever else there is
	}
	if l.known() {
		return nil
	}
	lease := &coordinationv1.Lease{}
	if err := l.live.Get(ctx, l.lease, lease); cluster.Absent(err) {
		return diagnose.NoLeader(object, "there is no Lease "+l.lease.String())
	} else if err != nil {
		return err
	}
	if problem := l.look(&lease.Spec); problem != "" {
		return diagnose.NoLeader(object, "Lease "+l.lease.String()+" "+problem)
	}
	return nil
}

// look says what is wrong with a Lease.
func (l *leader) look(s *coordinationv1.LeaseSpec) string {
	if s.HolderIdentity == nil || *s.HolderIdentity == "" || s.RenewTime == nil || s.LeaseDurationSeconds == nil {
		return "is held by nobody"
	}
	lasts := time.Duration(*s.LeaseDurationSeconds) * time.Second
	now := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	first := now.Sub(l.at) > lasts // or what it was before is too long ago
	l.at = now
	if first || !equality.Semantic.DeepEqual(&l.seen, s) {
		l.seen, l.since = *s.DeepCopy(), now
	}
	if first && s.RenewTime.Add(lasts+skew).Before(now) || l.since.Add(lasts).Before(now) {
		l.since = now.Add(-2 * lasts) // until it changes
		return "was not renewed by " + *s.HolderIdentity + " in time"
	}
	l.good = now
	return ""
}

// known reports that somebody has just been found to lead: of many starts at once one
// looks. Who waits for an answer looks again.
func (l *leader) known() bool {
	now := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	age := now.Sub(l.good)
	return 0 <= age && age < leaderCheck/2
}
