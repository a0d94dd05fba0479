package cluster

import (
	"cmp"
	"maps"
	"slices"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/internal/books"
)

// View hands out the books, and the objects that they are about. Nothing changes them
// meanwhile; do must not call the feed.
func (f *Feed) View(do func(b *books.Books, v View)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do(f.books, View{f})
}

// View is the newest that is known of devices and classes. It is only good within
// [Feed.View], and what it returns is not to be changed.
type View struct{ f *Feed }

// Device returns nil for one that is not known.
func (v View) Device(uid string) *v1alpha1.GPUDevice { return v.f.devices.known[uid].device }

// Waiting returns the devices without a placement and those whose bind request has no
// answer, in any order.
func (v View) Waiting() []*v1alpha1.GPUDevice { return v.f.devices.in(v.f.devices.waiting) }

// Leaving returns the devices that are being deleted, in any order.
func (v View) Leaving() []*v1alpha1.GPUDevice { return v.f.devices.in(v.f.devices.leaving) }

// Asking returns the devices whose bind request has the id, by UID.
func (v View) Asking(requestID string) []*v1alpha1.GPUDevice {
	out := v.f.devices.in(v.f.devices.asking[requestID])
	slices.SortFunc(out, func(a, b *v1alpha1.GPUDevice) int { return cmp.Compare(a.UID, b.UID) })
	return out
}

// Classes returns all classes, in any order.
func (v View) Classes() []*v1alpha1.GPUClass { return slices.Collect(maps.Values(v.f.classes)) }

// set is one of UIDs.
type set map[string]struct{}

func (d *devices) in(s set) []*v1alpha1.GPUDevice {
	out := make([]*v1alpha1.GPUDevice, 0, len(s))
	for uid := range s {
		out = append(out, d.known[uid].device)
	}
	return out
}

// find keeps a device under what it is looked for by.
func (d *devices) find(device *v1alpha1.GPUDevice) {
	uid, s := string(device.UID), &device.Status
	d.lose(uid)
	d.sets.find(uid, device)
	q := s.BindRequest
	if s.Placement == nil || q != nil && q.Answer == nil {
		d.waiting[uid] = struct{}{}
	}
	if !device.DeletionTimestamp.IsZero() {
		d.leaving[uid] = struct{}{}
	}
	if q != nil {
		addTo(d.asking, q.RequestID, uid)
		d.asks[uid] = q.RequestID
	}
}

// lose forgets what a device is looked for by.
func (d *devices) lose(uid string) {
	d.sets.lose(uid)
	delete(d.waiting, uid)
	delete(d.leaving, uid)
	if id, ok := d.asks[uid]; ok {
		delete(d.asks, uid)
		removeFrom(d.asking, id, uid)
	}
}
