package cluster

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpuctl/gpuctl/internal/manifest"
)

// Watcher holds the objects that the wiring follows from, and says when one of them
// changes: KubeVirt and HyperConverged, Nodes and GPUNodes. Kinds may come and go while
// it runs. It is safe for concurrent use.
type Watcher struct {
	client  *Client
	cache   cache.Cache
	changed func()
	log     logr.Logger
	again   chan struct{} // a CRD came or went

	mu    sync.Mutex
	kinds map[schema.GroupKind]watched
}

// watched is a kind whose objects are held.
type watched struct {
	gvk      schema.GroupVersionKind
	informer cache.Informer
}

// NewWatcher makes a watcher that keeps its objects in a cache with CacheOptions.
// changed is called from any goroutine and must not block.
func NewWatcher(c *Client, in cache.Cache, changed func(), log logr.Logger) *Watcher {
	return &Watcher{client: c, cache: in, changed: changed, log: log, again: make(chan struct{}, 1), kinds: map[schema.GroupKind]watched{}}
}

// retryKind is when a kind that has a CRD and is not served yet is asked for again.
const retryKind = time.Second

// Start watches until ctx ends. On every replica, leading or not: who takes over has
// all at hand.
func (w *Watcher) Start(ctx context.Context) error {
	definitions, err := w.definitions(ctx)
	if err != nil {
		return err
	}
	wake := func() {
		select {
		case w.again <- struct{}{}:
		default:
		}
	}
	_, err = definitions.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { wake() }, DeleteFunc: func(any) { wake() },
		UpdateFunc: func(any, any) {}, // versions of a kind are not expected to go
	})
	if err != nil {
		return fmt.Errorf("watch CustomResourceDefinitions: %w", err)
	}
	for {
		var retry <-chan time.Time
		if !w.follow(ctx) {
			retry = time.After(retryKind)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-w.again:
		case <-retry:
		}
	}
}

// definitions watches the CRDs, once the API server answers: that it does not is no
// reason to end.
func (w *Watcher) definitions(ctx context.Context) (informer cache.Informer, err error) {
	err = wait.PollUntilContextCancel(ctx, retryKind, true, func(ctx context.Context) (bool, error) {
		var err error
		if informer, err = w.cache.GetInformer(ctx, &metav1.PartialObjectMetadata{TypeMeta: definition()}); err != nil {
			w.log.Error(err, "watch CustomResourceDefinitions")
		}
		return err == nil, nil
	})
	return informer, err
}

// NeedLeaderElection tells the manager that replicas watch without leading.
func (w *Watcher) NeedLeaderElection() bool { return false }

// follow watches the kinds that are served and forgets those that are gone. done is
// false when one has a CRD and is not served yet.
func (w *Watcher) follow(ctx context.Context) (done bool) {
	done = true
	w.client.mapper.Reset()
	for _, l := range gathered() {
		kind := schema.GroupKind{Group: l.group, Kind: l.kind}
		mapping, err := w.client.mapper.RESTMapping(kind)
		switch {
		case err == nil:
			err = w.add(ctx, mapping.GroupVersionKind)
		case meta.IsNoMatchError(err):
			gone, err2 := w.remove(ctx, kind)
			if err = err2; gone {
				w.changed()
			}
			done = done && !w.defined(ctx, kind)
		}
		if err != nil {
			done = false
			w.log.Error(err, "watch", "kind", kind.String())
		}
	}
	return done
}

// defined reports a CRD of the kind.
func (w *Watcher) defined(ctx context.Context, kind schema.GroupKind) bool {
	crd := &metav1.PartialObjectMetadata{TypeMeta: definition()}
	plural, _ := meta.UnsafeGuessKindToResource(kind.WithVersion("v1"))
	return w.cache.Get(ctx, client.ObjectKey{Name: plural.Resource + "." + kind.Group}, crd) == nil
}

func definition() metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"}
}

func (w *Watcher) add(ctx context.Context, gvk schema.GroupVersionKind) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, known := w.kinds[gvk.GroupKind()]; known {
		return nil
	}
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvk)
	informer, err := w.cache.GetInformer(ctx, u, cache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { w.changed() }, DeleteFunc: func(any) { w.changed() },
		UpdateFunc: func(before, after any) {
			if !alike(before.(*unstructured.Unstructured), after.(*unstructured.Unstructured)) {
				w.changed()
			}
		},
	})
	if err != nil {
		return err
	}
	w.kinds[gvk.GroupKind()] = watched{gvk, informer}
	return nil
}

func (w *Watcher) remove(ctx context.Context, kind schema.GroupKind) (gone bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	have, known := w.kinds[kind]
	if !known {
		return false, nil
	}
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(have.gvk)
	delete(w.kinds, kind)
	return true, w.cache.RemoveInformer(ctx, u)
}

// Synced reports that all objects of the kinds that are served are held.
func (w *Watcher) Synced() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, k := range w.kinds {
		if !k.informer.HasSynced() {
			return false
		}
	}
	return len(w.kinds) > 0 // nodes are always served
}

// Documents returns what is held. The objects must not be changed.
func (w *Watcher) Documents(ctx context.Context) ([]manifest.Document, error) {
	w.mu.Lock()
	var kinds []schema.GroupVersionKind
	for _, k := range w.kinds {
		kinds = append(kinds, k.gvk)
	}
	w.mu.Unlock()
	var out []manifest.Document
	for _, gvk := range kinds {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
		if err := w.cache.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("list %s: %w", gvk.Kind, err)
		}
		for i := range list.Items {
			out = append(out, manifest.Live(w.client.server, list.Items[i].Object))
		}
	}
	return out, nil
}
