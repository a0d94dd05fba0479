package cluster

import (
	"cmp"
	"context"
	"errors"
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
	again   chan struct{} // a CRD came, went or changed

	mu        sync.Mutex
	followed  bool // kinds has been complete once
	kinds     map[schema.GroupKind]watched
	interests []*interest // of others, beside the wiring's
}

// ErrNotSynced is returned while objects are not held yet that there are: what follows
// from the others would be wrong.
var ErrNotSynced = errors.New("not all objects are held yet")

// watched is a kind whose objects are held.
type watched struct {
	gvk      schema.GroupVersionKind
	object   client.Object // one of the kind, as the cache tells kinds apart
	informer cache.Informer
	beside   bool // the wiring does not follow from it
	custom   bool // there was a CRD of it
}

// NewWatcher makes a watcher that keeps its objects in a cache with CacheOptions.
// changed is called from any goroutine and must not block.
func NewWatcher(c *Client, in cache.Cache, changed func(), log logr.Logger) *Watcher {
	return &Watcher{client: c, cache: in, changed: changed, log: log, again: make(chan struct{}, 1), kinds: map[schema.GroupKind]watched{}}
}

const (
	// retryKind is when a kind that has a CRD and is not served yet is asked for again.
	retryKind = time.Second
	// settle is after how long at most what the API server says of its kinds follows
	// their CRDs; then it is asked for a kind that is missing as seldom as this.
	settle = 8 * time.Second
	// syncPatience is how long Documents waits for objects that are being fetched.
	syncPatience = 3 * time.Second
)

// Start watches until ctx ends. On every replica, leading or not: who takes over has
// all at hand.
func (w *Watcher) Start(ctx context.Context) error {
	definitions, err := w.definitions(ctx)
	if err != nil {
		return err
	}
	_, err = definitions.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { w.wakeUp() }, DeleteFunc: func(any) { w.wakeUp() },
		UpdateFunc: func(before, after any) { // of versions, too, one comes and another goes
			if before.(metav1.Object).GetGeneration() != after.(metav1.Object).GetGeneration() {
				w.wakeUp()
			}
		},
	})
	if err != nil {
		return fmt.Errorf("watch CustomResourceDefinitions: %w", err)
	}
	for pause := retryKind; ; {
		var retry <-chan time.Time
		// A CRD tells before the API server serves what it says.
		if !w.follow(ctx) || pause < settle {
			retry = time.After(pause)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-w.again:
			pause = retryKind
		case <-retry:
			pause = min(2*pause, settle)
		}
	}
}

// wakeUp has the kinds looked through once more.
func (w *Watcher) wakeUp() { signal(w.again) }

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

// wanted is a kind that is watched where it is served.
type wanted struct {
	schema.GroupKind
	version   string // "" for the one that the API server prefers
	object    func(schema.GroupVersionKind) client.Object
	beside    bool
	interests []*interest
}

// wanted returns the kinds to watch, each once.
func (w *Watcher) wanted() (out []wanted) {
	at := map[schema.GroupKind]int{}
	for _, l := range gathered() {
		kind := schema.GroupKind{Group: l.group, Kind: l.kind}
		at[kind] = len(out)
		out = append(out, wanted{GroupKind: kind, object: asUnstructured})
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, i := range w.interests {
		if _, known := at[i.GroupKind]; !known {
			at[i.GroupKind] = len(out)
			out = append(out, wanted{GroupKind: i.GroupKind, version: i.version, object: i.object, beside: true})
		}
		k := &out[at[i.GroupKind]]
		k.interests = append(k.interests, i)
	}
	return out
}

// follow watches the kinds that are served and forgets those that are gone. done is
// false when one of them, or of those that are read when need be, has a CRD and is not
// served yet.
func (w *Watcher) follow(ctx context.Context) (done bool) {
	w.client.mapper.Reset()
	done, failed := true, false
	for _, k := range w.wanted() {
		var versions []string
		if k.version != "" {
			versions = append(versions, k.version)
		}
		defined := w.defined(ctx, k.GroupKind)
		mapping, err := w.client.mapper.RESTMapping(k.GroupKind, versions...)
		switch {
		case err == nil:
			err = w.add(ctx, &k, mapping.GroupVersionKind, defined)
		case meta.IsNoMatchError(err):
			err = w.remove(ctx, &k, defined)
			done = done && !defined
		default: // the API server does not answer: nor would it for the next kind
			w.log.Error(err, "watch", "kind", k.GroupKind.String())
			return false
		}
		if err != nil {
			failed = true
			w.log.Error(err, "watch", "kind", k.GroupKind.String())
		}
	}
	for _, l := range workloads() {
		kind := schema.GroupKind{Group: l.group, Kind: l.kind}
		if _, err := w.client.mapper.RESTMapping(kind); meta.IsNoMatchError(err) {
			done = done && !w.defined(ctx, kind)
		}
	}
	if !failed {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.followed = true
	}
	return done && !failed
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

// add watches a kind in a version, and in that one only.
func (w *Watcher) add(ctx context.Context, k *wanted, gvk schema.GroupVersionKind, defined bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	have, known := w.kinds[k.GroupKind]
	if known && have.gvk != gvk {
		if err := w.drop(ctx, k); err != nil {
			return err
		}
		known = false
	}
	if !known {
		have = watched{gvk: gvk, object: k.object(gvk), beside: k.beside}
		var err error
		if have.informer, err = w.cache.GetInformer(ctx, have.object, cache.BlockUntilSynced(false)); err != nil {
			return err
		}
		if !k.beside {
			if err := w.tell(have.informer); err != nil {
				return err
			}
		}
	}
	have.custom = have.custom || defined
	w.kinds[k.GroupKind] = have
	for _, i := range k.interests {
		if err := i.begin(have.informer); err != nil {
			return err
		}
	}
	return nil
}

// tell has the wiring told of changes.
func (w *Watcher) tell(informer cache.Informer) error {
	_, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { w.changed() }, DeleteFunc: func(any) { w.changed() },
		UpdateFunc: func(before, after any) {
			if !alike(before.(*unstructured.Unstructured), after.(*unstructured.Unstructured)) {
				w.changed()
			}
		},
	})
	return err
}

// remove forgets a kind that is gone: its CRD is. One that the API server only does not
// name at this moment, as while it starts, is not.
func (w *Watcher) remove(ctx context.Context, k *wanted, defined bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	have, known := w.kinds[k.GroupKind]
	for _, i := range k.interests {
		i.absent = !known && !defined
	}
	if !known || defined || !have.custom {
		return nil
	}
	err := w.drop(ctx, k)
	for _, i := range k.interests {
		i.absent = true
	}
	return err
}

// drop ends the watching of a kind.
func (w *Watcher) drop(ctx context.Context, k *wanted) error {
	have := w.kinds[k.GroupKind]
	delete(w.kinds, k.GroupKind)
	for _, i := range k.interests {
		i.end()
	}
	if !have.beside {
		w.changed()
	}
	return w.cache.RemoveInformer(ctx, have.object)
}

// Synced reports that all objects of the kinds that are served are held.
func (w *Watcher) Synced() bool { return w.synced() == nil }

// synced returns ErrNotSynced, and of which kind objects are missing.
func (w *Watcher) synced() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.followed {
		return fmt.Errorf("%w: which kinds there are is not known", ErrNotSynced)
	}
	for kind, k := range w.kinds {
		if !k.beside && !k.informer.HasSynced() {
			return fmt.Errorf("%w: of kind %s", ErrNotSynced, kind)
		}
	}
	return nil
}

// Documents returns what is held. The objects must not be changed. The error is
// [ErrNotSynced] when that is not all after a moment.
func (w *Watcher) Documents(ctx context.Context) ([]manifest.Document, error) {
	ctx, cancel := context.WithTimeout(ctx, syncPatience)
	defer cancel()
	full := func(context.Context) (bool, error) { return w.Synced(), nil }
	if wait.PollUntilContextCancel(ctx, syncPatience/100, true, full) != nil {
		return nil, cmp.Or(w.synced(), ErrNotSynced)
	}
	w.mu.Lock()
	var kinds []schema.GroupVersionKind
	for _, k := range w.kinds {
		if !k.beside {
			kinds = append(kinds, k.gvk)
		}
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
