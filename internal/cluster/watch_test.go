package cluster

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// filled is an informer that has, or has not, fetched its objects.
type filled struct {
	cache.Informer
	synced bool
}

func (f filled) HasSynced() bool { return f.synced }

// Nothing is concluded from a part of the objects.
func TestWatcherIsNotSynced(t *testing.T) {
	tests := map[string]struct {
		followed bool
		kinds    map[string]bool // whether their objects are held
		want     bool
	}{
		"nothing is known yet":           {},
		"kinds are still being added":    {kinds: map[string]bool{"Node": true}},
		"objects are being fetched":      {followed: true, kinds: map[string]bool{"Node": true, "KubeVirt": false}},
		"all objects of all kinds there": {followed: true, kinds: map[string]bool{"Node": true, "KubeVirt": true}, want: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := NewWatcher(nil, nil, func() {}, logr.Discard())
			w.followed = tc.followed
			for kind, synced := range tc.kinds {
				w.kinds[schema.GroupKind{Kind: kind}] = watched{informer: filled{synced: synced}}
			}
			if got := w.Synced(); got != tc.want {
				t.Errorf("synced is %t, want %t", got, tc.want)
			}
			if tc.want {
				return
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel() // it does not wait
			if docs, err := w.Documents(ctx); !errors.Is(err, ErrNotSynced) {
				t.Errorf("there are %d documents, error %v", len(docs), err)
			}
		})
	}
}

// AddEventHandler implements cache.Informer.
func (f filled) AddEventHandler(toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	return registered{synced: f.synced}, nil
}

// registered says whether the first objects were handled.
type registered struct {
	toolscache.ResourceEventHandlerRegistration
	synced bool
}

func (r registered) HasSynced() bool { return r.synced }

// informers are a cache of which informers are taken only.
type informers struct {
	cache.Cache
	synced bool
}

func (i informers) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	return filled{synced: i.synced}, nil
}

func (i informers) RemoveInformer(context.Context, client.Object) error { return nil }

// Whoever has an interest in a kind is complete when its objects are handled, or it is
// not there; and hears nothing of a kind that is gone.
func TestInterests(t *testing.T) {
	const crd, builtin = "Thing", "Node"
	gvk := func(kind string) schema.GroupVersionKind { return schema.GroupVersionKind{Version: "v1", Kind: kind} }
	tests := map[string]struct {
		kind   string
		synced bool // the objects are handled, where the kind is served
		do     func(w *Watcher, k *wanted)
		want   bool
		heard  string
	}{
		"nobody has looked": {kind: crd, do: func(*Watcher, *wanted) {}},
		"not there":         {kind: crd, do: func(w *Watcher, k *wanted) { _ = w.remove(t.Context(), k, false) }, want: true},
		"defined, not served yet": {
			kind: crd, do: func(w *Watcher, k *wanted) { _ = w.remove(t.Context(), k, true) },
		},
		"being fetched": {kind: crd, do: func(w *Watcher, k *wanted) { _ = w.add(t.Context(), k, gvk(crd), true) }, heard: "came "},
		"handled":       {kind: crd, synced: true, do: func(w *Watcher, k *wanted) { _ = w.add(t.Context(), k, gvk(crd), true) }, want: true, heard: "came "},
		"gone": {
			kind: crd, synced: true, want: true, heard: "came gone ",
			do: func(w *Watcher, k *wanted) {
				_ = w.add(t.Context(), k, gvk(crd), true)
				events := k.interests[0].gate
				_ = w.remove(t.Context(), k, false)
				events.OnAdd(nil, false)
			},
		},
		"not served for a moment": {
			kind: crd, synced: true, want: true, heard: "came ",
			do: func(w *Watcher, k *wanted) {
				_ = w.add(t.Context(), k, gvk(crd), true)
				_ = w.remove(t.Context(), k, true)
			},
		},
		"Kubernetes' own, not named for a moment": {
			kind: builtin, synced: true, want: true, heard: "came ",
			do: func(w *Watcher, k *wanted) {
				_ = w.add(t.Context(), k, gvk(builtin), false)
				_ = w.remove(t.Context(), k, false)
			},
		},
		"an event": {
			kind: crd, synced: true, want: true, heard: "came put ",
			do: func(w *Watcher, k *wanted) {
				_ = w.add(t.Context(), k, gvk(crd), true)
				k.interests[0].gate.OnAdd(nil, false)
			},
		},
		"another version": {
			kind: crd, synced: true, want: true, heard: "came gone came ",
			do: func(w *Watcher, k *wanted) {
				_ = w.add(t.Context(), k, gvk(crd), true)
				_ = w.add(t.Context(), k, schema.GroupVersionKind{Version: "v2", Kind: crd}, true)
			},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := NewWatcher(nil, informers{synced: tc.synced}, func() {}, logr.Discard())
			heard := ""
			i := &interest{
				GroupKind: schema.GroupKind{Kind: tc.kind}, object: asUnstructured,
				came: func() { heard += "came " }, gone: func() { heard += "gone " },
				handler: toolscache.ResourceEventHandlerFuncs{AddFunc: func(any) { heard += "put " }},
			}
			w.watch("me", []*interest{i})
			all := w.wanted()
			k := &all[slices.IndexFunc(all, func(k wanted) bool { return k.Kind == tc.kind })]
			tc.do(w, k)
			if got := w.handled("me", nil); got != tc.want || heard != tc.heard {
				t.Errorf("complete is %t, heard were %q, want %q", got, heard, tc.heard)
			}
			if !w.handled("somebody else", nil) {
				t.Error("who has no interest is complete")
			}
		})
	}
}
