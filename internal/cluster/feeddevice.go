package cluster

import (
	"context"
	"reflect"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/internal/alloc"
	"github.com/gpuctl/gpuctl/internal/books"
	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/internal/usage"
)

// DeviceOf returns what books need of a GPUDevice.
func DeviceOf(d *v1alpha1.GPUDevice) books.Device {
	out := books.Device{
		Device:  usage.Device{UID: string(d.UID), Namespace: d.Namespace, Name: d.Name, Class: d.Spec.ClassName, Units: int64(d.Spec.Count)},
		State:   alloc.Bound,
		Ordered: d.CreationTimestamp.Time,
	}
	if p := d.Status.Placement; p != nil {
		out.Node, out.Resource, out.Units, out.Lost = p.Node, gpu.ResourceName(p.ResourceName), int64(p.Units), p.LostSince != nil
	}
	switch a := d.Status.Attachment; {
	case a != nil && a.VMIUID != "":
		out.VMI, out.State = string(a.VMIUID), alloc.Attached
	case a == nil && d.DeletionTimestamp == nil && out.Node != "":
		out.State = alloc.Held
	}
	return out
}

// counts reports a device that is in the books. A template device without an origin is
// being made, or was left behind: the binder leaves it alone.
func counts(d *v1alpha1.GPUDevice) bool {
	_, template := d.Labels[v1alpha1.LabelTemplateDevice]
	return !template || d.Status.Origin != nil
}

// devices are those that exist, as they were last seen or assumed.
type devices struct {
	known map[string]known // by UID
	gone  graves

	waiting, leaving set
	asking           map[string]set    // by the id of their bind requests
	asks             map[string]string // these ids, by UID
	sets             sets
}

type known struct {
	device  *v1alpha1.GPUDevice
	assumed time.Time // when it was assumed; zero once the watch has seen a device of the UID
}

func newDevices() devices {
	return devices{
		known: map[string]known{}, gone: newGraves(8192), waiting: set{}, leaving: set{}, asking: map[string]set{}, asks: map[string]string{}, sets: newSets(),
	}
}

// Assume takes what the API server answered to an own write; nobody changes it
// afterwards. A watch event of an older version does not undo it.
func (f *Feed) Assume(d *v1alpha1.GPUDevice) {
	f.change(func() bool {
		k := known{device: d, assumed: time.Now()}
		if was, ok := f.devices.known[string(d.UID)]; ok {
			k.assumed = was.assumed
		}
		return f.putDevice(k)
	})
}

// Forget takes a device away that a live answer says is gone.
func (f *Feed) Forget(uid string) { f.change(func() bool { return f.dropDevice(uid) }) }

func (f *Feed) deviceEvents() events {
	return events{
		put:  func(_, now metav1.Object) bool { return f.putDevice(known{device: now.(*v1alpha1.GPUDevice)}) },
		drop: func(o metav1.Object) bool { return f.dropDevice(string(o.GetUID())) },
		gone: func() bool {
			return each(f.devices.known, func(uid string) {
				f.devices.lose(uid)
				f.room.leave(uid)
				f.books.DropDevice(uid)
			})
		},
	}
}

// putDevice takes a device, unless a newer version of it is known or it is gone.
func (f *Feed) putDevice(k known) bool {
	uid := string(k.device.UID)
	if f.devices.gone.has(uid) {
		return false
	}
	if was, ok := f.devices.known[uid]; ok && !newer(k.device.ResourceVersion, was.device.ResourceVersion) {
		was.assumed = k.assumed
		f.devices.known[uid] = was
		return false
	}
	f.devices.known[uid] = k
	f.devices.find(k.device)
	f.claimant(k.device)
	f.unreadable(launcherRef(k.device), f.room.device(k.device))
	if !counts(k.device) {
		f.books.DropDevice(uid)
		return true
	}
	now := DeviceOf(k.device)
	if was, ok := f.books.Device(uid); !ok || !reflect.DeepEqual(was, now) {
		f.books.PutDevice(now)
	}
	return true
}

func (f *Feed) dropDevice(uid string) bool {
	f.devices.gone.add(uid)
	was, had := f.devices.known[uid]
	if had {
		f.unreadable(launcherRef(was.device), nil)
	}
	delete(f.devices.known, uid)
	f.devices.lose(uid)
	f.room.leave(uid)
	f.books.DropDevice(uid)
	return had
}

// newer reports that a resource version is later than another one. Versions that are no
// numbers, which no API server of Kubernetes has, are taken as they come.
func newer(version, than string) bool {
	order, err := resourceversion.CompareResourceVersion(version, than)
	return err != nil && version != than || order > 0
}

// buryUnseen asks for devices that were assumed and that no watch has seen: one that was
// deleted while the watch was interrupted is never told of.
func (f *Feed) buryUnseen(ctx context.Context) {
	before := time.Now().Add(-askEvery)
	f.mu.Lock()
	var unseen []*v1alpha1.GPUDevice
	for _, k := range f.devices.known {
		if !k.assumed.IsZero() && k.assumed.Before(before) {
			unseen = append(unseen, k.device)
		}
	}
	f.mu.Unlock()
	for _, d := range unseen {
		u, err := f.client.dynamic.Resource(v1alpha1.GroupVersion.WithResource("gpudevices")).Namespace(d.Namespace).Get(ctx, d.Name, metav1.GetOptions{})
		if Absent(err) || err == nil && u.GetUID() != d.UID {
			f.Forget(string(d.UID))
		}
	}
}

// Absent reports the answer that an object does not exist, of a kind that is served.
func Absent(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// graves remember the UIDs that went last.
type graves struct {
	of   map[string]bool
	ring []string
	next int
}

func newGraves(size int) graves { return graves{of: map[string]bool{}, ring: make([]string, size)} }

func (g *graves) has(uid string) bool { return g.of[uid] }

func (g *graves) add(uid string) {
	if g.of[uid] {
		return
	}
	delete(g.of, g.ring[g.next])
	g.of[uid], g.ring[g.next] = true, uid
	g.next = (g.next + 1) % len(g.ring)
}
