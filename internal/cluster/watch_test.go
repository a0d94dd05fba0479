package cluster

import (
	"context"
	"errors"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"
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
