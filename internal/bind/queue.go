package bind

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/internal/cluster"
)

// demand is what the binder was asked: to place an order, or to find a node for a set.
type demand struct {
	key     string   // the order's UID, or the set's request id
	uids    []string // of its devices, sorted
	set     bool
	arrival int64 // in the order of arrival

	launcher   *corev1.PodSpec // what a set's launcher needs of a node; nil: any will do
	unreadable error           // why that cannot be read

	tries int       // in vain, one after the other
	after time.Time // it is not looked at before
	moves time.Time // reservations are not moved for it before
	told  told
}

// told is what a pending order was told last.
type told struct {
	code, text string
	at         time.Time
}

// still reports that there is nothing to add to what was told: only numbers have changed,
// and not long ago.
func (t *told) still(code, text string, now time.Time) bool {
	return t.code == code && (t.text == text || now.Before(t.at.Add(tellAgain)))
}

// queue knows the requests that wait, in the order in which this leader saw them.
type queue struct {
	waiting  map[string]*demand
	arrivals int64
}

func newQueue() queue { return queue{waiting: map[string]*demand{}} }

// find returns the requests of the devices that wait, in the order of arrival. Of a set
// of which not all have asked there is none.
func (q *queue) find(d cluster.View) []*demand {
	seen := map[string]*demand{}
	var fresh []*demand
	began := map[string]time.Time{}
	for _, device := range d.Waiting() {
		r := demandOf(device, d)
		if r == nil || seen[r.key] != nil {
			continue
		}
		if known := q.waiting[r.key]; known != nil {
			known.uids = r.uids
			seen[r.key] = known
			continue
		}
		r.read(d)
		seen[r.key], began[r.key] = r, asked(device)
		fresh = append(fresh, r)
	}
	slices.SortFunc(fresh, func(a, b *demand) int {
		return cmp.Or(began[a.key].Compare(began[b.key]), cmp.Compare(a.key, b.key))
	})
	for _, r := range fresh {
		q.arrivals++
		r.arrival = q.arrivals
	}
	q.waiting = seen
	out := make([]*demand, 0, len(seen))
	for _, r := range seen {
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b *demand) int { return cmp.Compare(a.arrival, b.arrival) })
	return out
}

// asked is when a device was ordered, or a set asked for a node.
func asked(d *v1alpha1.GPUDevice) time.Time {
	if d.Status.Attachment != nil && d.Status.BindRequest != nil {
		return d.Status.BindRequest.RequestedAt.Time
	}
	return d.CreationTimestamp.Time
}

// demandOf returns what a device that waits is waiting for; nil where that is nothing of
// the binder's: it leaves, its set is not complete, or is refused.
func demandOf(device *v1alpha1.GPUDevice, d cluster.View) *demand {
	s := &device.Status
	switch {
	case s.Attachment == nil:
		orders := s.Origin == nil && device.Labels[v1alpha1.LabelTemplateDevice] != v1alpha1.ValueTrue ||
			s.Origin != nil && s.Origin.Kind == v1alpha1.OriginOrder
		if !orders || s.Placement != nil || !device.DeletionTimestamp.IsZero() {
			return nil
		}
		return &demand{key: string(device.UID), uids: []string{string(device.UID)}}
	case s.Attachment.VMIUID != "" || s.BindRequest == nil || s.BindRequest.RequestID != s.Attachment.RequestID:
		return nil
	}
	r := &demand{key: s.Attachment.RequestID, set: true}
	for _, member := range d.Asking(r.key) {
		a, b := member.Status.Attachment, member.Status.BindRequest
		if member.Namespace != device.Namespace || a == nil || a.RequestID != r.key || a.VMIUID != "" || b.Answer != nil && b.Answer.Refusal != nil {
			return nil
		}
		r.uids = append(r.uids, string(member.UID))
	}
	if len(r.uids) != int(s.BindRequest.Devices) {
		return nil
	}
	slices.Sort(r.uids)
	return r
}

// read reads what the launcher of a set needs: the member with the lowest UID says it.
func (r *demand) read(d cluster.View) {
	if first := d.Device(r.uids[0]); r.set && first.Status.BindRequest.Launcher != "" {
		r.launcher, r.unreadable = cluster.ReadLauncher(first.Status.BindRequest.Launcher)
	}
}

const (
	// firstDelay and lastDelay bound how long a request waits whose writes came to nothing.
	firstDelay = 50 * time.Millisecond
	lastDelay  = 5 * time.Second
	// movesAgain is when reservations are looked at again for a request for which none
	// could be moved.
	movesAgain = 10 * time.Second
)

// failed puts a request off whose writes came to nothing: somebody changes its devices.
func (q *queue) failed(r *demand, now time.Time) {
	delay := firstDelay << min(r.tries, 10)
	r.after = now.Add(min(delay, lastDelay))
	r.tries++
}

// next returns when to look again; at once where there is more to do.
func (q *queue) next(now time.Time, more bool) time.Duration {
	if more {
		return 0
	}
	next := resync
	for _, r := range q.waiting {
		for _, at := range []time.Time{r.after, r.moves} {
			if wait := at.Sub(now); wait > 0 {
				next = min(next, wait)
			}
		}
	}
	return next
}
