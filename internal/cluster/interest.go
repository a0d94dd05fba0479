package cluster

import (
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// interest is that of somebody other than the wiring in the objects of a kind. Kinds
// that the wiring follows from are held unstructured.
type interest struct {
	schema.GroupKind
	version string // "" for the one that the API server prefers
	object  func(schema.GroupVersionKind) client.Object
	handler toolscache.ResourceEventHandler
	came    func() // before the first object; may be nil
	gone    func() // all objects are; nothing is handled afterwards

	// Guarded by the watcher.
	owner  any
	gate   *gate
	held   toolscache.ResourceEventHandlerRegistration
	absent bool // it was looked for, and is not there
}

func asUnstructured(gvk schema.GroupVersionKind) client.Object {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvk)
	return u
}

func asMetadata(gvk schema.GroupVersionKind) client.Object {
	m := &metav1.PartialObjectMetadata{}
	m.SetGroupVersionKind(gvk)
	return m
}

// watch adds interests. They are followed as the wiring's kinds are, whether the
// watcher runs already or not.
func (w *Watcher) watch(owner any, interests []*interest) {
	w.mu.Lock()
	for _, i := range interests {
		i.owner = owner
		w.interests = append(w.interests, i)
	}
	w.mu.Unlock()
	w.wakeUp()
}

// handled reports that all objects of the kinds that are there have been handled: of
// those that an owner has an interest in, or of some of them.
func (w *Watcher) handled(owner any, of func(*interest) bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, i := range w.interests {
		if i.owner != owner || of != nil && !of(i) {
			continue
		}
		if i.held == nil && !i.absent || i.held != nil && !i.held.HasSynced() {
			return false
		}
	}
	return true
}

func (i *interest) begin(informer cache.Informer) (err error) {
	if i.held != nil {
		return nil
	}
	i.absent, i.gate = false, &gate{handler: i.handler}
	if i.came != nil {
		i.came()
	}
	i.held, err = informer.AddEventHandler(i.gate)
	return err
}

func (i *interest) end() {
	if i.held == nil {
		return
	}
	i.gate.close()
	i.held = nil
	i.gone()
}

// gate passes events on until it is closed.
type gate struct {
	mu      sync.Mutex
	handler toolscache.ResourceEventHandler
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.handler = nil
}

func (g *gate) pass(on func(toolscache.ResourceEventHandler)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.handler != nil {
		on(g.handler)
	}
}

// OnAdd implements ResourceEventHandler.
func (g *gate) OnAdd(obj any, initial bool) {
	g.pass(func(h toolscache.ResourceEventHandler) { h.OnAdd(obj, initial) })
}

// OnUpdate implements ResourceEventHandler.
func (g *gate) OnUpdate(before, after any) {
	g.pass(func(h toolscache.ResourceEventHandler) { h.OnUpdate(before, after) })
}

// OnDelete implements ResourceEventHandler.
func (g *gate) OnDelete(obj any) {
	g.pass(func(h toolscache.ResourceEventHandler) { h.OnDelete(obj) })
}
