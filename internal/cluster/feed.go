package cluster

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/internal/books"
	"github.com/gpuctl/gpuctl/internal/gpu"
)

// FeedOptions are what settings say.
type FeedOptions struct {
	Namespace string             // gpuctl's own
	Listed    []gpu.ResourceName // gpu.resourceNames
	Tenants   labels.Selector    // tenantNamespaceSelector; nil: nobody is a tenant
	Cozystack bool               // provider "cozystack" instead of "labels"
	Changed   func()             // something changed; called from any goroutine, must not block; may be nil
	Log       logr.Logger
}

// Feed keeps books of what the API server holds, in every replica, leading or not. It
// is safe for concurrent use.
//
// What cannot be read never counts as nothing. A Node or a GPUNode closes its node, and
// nothing is concluded there. A HelmRelease, a HierarchyConfiguration refuse their
// level. A KubeVirt or a HyperConverged leaves the table as it was.
type Feed struct {
	client  *Client
	watcher *Watcher
	o       FeedOptions
	ask     chan struct{} // for the agents, before it is time
	changed chan struct{}

	mu         sync.Mutex
	books      *books.Books
	devices    devices
	classes    map[string]*v1alpha1.GPUClass // by name
	nodes      nodes
	room       room
	tree       tree
	table      targets
	claims     claims
	running    map[types.UID]bool // VMIs that have not ended
	waitingVMs map[types.UID]WaitingVM
	next       chan struct{}     // closed at the next change; nil: nobody waits for it
	said       map[string]string // what was logged of objects that cannot be read
	pool       pool
}

// NewFeed makes a feed, and has the watcher follow its kinds: both are to be started.
func NewFeed(c *Client, w *Watcher, o FeedOptions) *Feed {
	if o.Tenants == nil {
		o.Tenants = labels.Nothing()
	}
	f := &Feed{
		client: c, watcher: w, o: o, ask: make(chan struct{}, 1), changed: make(chan struct{}, 1), books: books.New(),
		devices: newDevices(), classes: map[string]*v1alpha1.GPUClass{}, nodes: newNodes(), room: newRoom(), tree: newTree(),
		table: targets{}, claims: claims{}, running: map[types.UID]bool{}, waitingVMs: map[types.UID]WaitingVM{}, said: map[string]string{},
	}
	f.books.SetNames(o.Listed, nil)
	w.watch(f, f.interests())
	return f
}

// Start asks for the agents, builds the tree and says what changes until ctx ends.
func (f *Feed) Start(ctx context.Context) error {
	var running sync.WaitGroup
	running.Go(func() { f.keepTelling(ctx) })
	running.Go(func() { f.keepTree(ctx) })
	running.Go(func() { f.keepAsking(ctx) })
	running.Wait()
	return nil
}

// NeedLeaderElection tells the manager that every replica feeds its books.
func (f *Feed) NeedLeaderElection() bool { return false }

// Synced reports that all objects of the kinds that are there are in the books.
func (f *Feed) Synced() bool {
	if !f.watcher.handled(f, nil) {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.tree.whole && f.nodes.asked
}

// Books hands the books out. Nothing changes them meanwhile.
func (f *Feed) Books(do func(b *books.Books)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do(f.books)
}

// Device returns a device as it was last seen by the watch or assumed. It is not to be
// changed.
func (f *Feed) Device(uid string) (*v1alpha1.GPUDevice, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	k, ok := f.devices.known[uid]
	return k.device, ok
}

// Devices returns all devices, by UID. They are not to be changed.
func (f *Feed) Devices() []*v1alpha1.GPUDevice {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make([]*v1alpha1.GPUDevice, 0, len(f.devices.known))
	for _, uid := range slices.Sorted(maps.Keys(f.devices.known)) {
		out = append(out, f.devices.known[uid].device)
	}
	return out
}

// change does something under the lock, and says so when that changed something.
func (f *Feed) change(do func() bool) {
	f.mu.Lock()
	changed := do()
	if changed {
		f.announce()
	}
	f.mu.Unlock()
	if changed {
		signal(f.changed)
	}
}

// keepTelling says that something changed until ctx ends; not where it changes, for there
// locks of the watcher are held.
func (f *Feed) keepTelling(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.changed:
		}
		if f.o.Changed != nil {
			f.o.Changed()
		}
	}
}

// signal sends to a channel that holds one signal, unless it does.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// events are what becomes of the objects of a kind, and whether that changed something.
// They are called under the lock.
type events struct {
	put  func(before, now metav1.Object) bool // before is nil for one that is new
	drop func(metav1.Object) bool
	gone func() bool // all of them are
}

// handler has the events called.
func (f *Feed) handler(e *events) toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			f.change(func() bool { return e.put(nil, obj.(metav1.Object)) })
		},
		UpdateFunc: func(before, now any) {
			b, n := before.(metav1.Object), now.(metav1.Object)
			f.change(func() bool {
				if b.GetUID() == n.GetUID() {
					return e.put(b, n)
				}
				dropped := e.drop(b) // another one of the same name
				return e.put(nil, n) || dropped
			})
		},
		DeleteFunc: func(obj any) {
			if unknown, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
				obj = unknown.Obj
			}
			if o, ok := obj.(metav1.Object); ok {
				f.change(func() bool { return e.drop(o) })
			}
		},
	}
}

// unreadable logs an object that cannot be read, once for what is wrong with it; a nil
// err says that it can be read again.
func (f *Feed) unreadable(object string, err error) {
	if err == nil {
		delete(f.said, object)
		return
	}
	if text := err.Error(); f.said[object] != text {
		f.said[object] = text
		f.o.Log.Info("an object cannot be read", "object", object, "reason", text)
	}
}

const (
	// askEvery is how often the agents' Leases are read: there are as many as nodes, and
	// each changes all the time, so they are not watched.
	askEvery = 30 * time.Second
	// askSoonest is after how long they may be asked for before it is time.
	askSoonest = 3 * time.Second
	// treeEvery is how often the tree is built at most.
	treeEvery = 100 * time.Millisecond
)
