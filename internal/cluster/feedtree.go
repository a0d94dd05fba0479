package cluster

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/gpuctl/gpuctl/internal/manifest"
	"github.com/gpuctl/gpuctl/internal/tenant"
)

const (
	// subnamespaceOf is HNC's annotation on a namespace that it made below another one.
	subnamespaceOf = "hnc.x-k8s.io/subnamespace-of"
	// budgetsOfRelease is the only value of a tenant's HelmRelease that is read.
	budgetsOfRelease = "resourceQuotas"
	tenantRelease    = "tenant-"
)

// tree is what the tree is built from, by name, or namespace and name.
type tree struct {
	namespaces map[string]tenant.Namespace
	quotas     map[string]tenant.Quota
	releases   map[string]tenant.Release
	halted     map[string]bool // namespaces whose HierarchyConfiguration says so
	hnc        bool            // HNC is installed

	stale bool // something changed since it was built
	whole bool // it was built of all there is
	turn  int  // how often a kind came or went
}

func newTree() tree {
	return tree{
		namespaces: map[string]tenant.Namespace{}, quotas: map[string]tenant.Quota{}, releases: map[string]tenant.Release{},
		halted: map[string]bool{}, stale: true,
	}
}

// changed says that a kind came or went.
func (t *tree) changed() {
	t.stale, t.whole = true, false
	t.turn++
}

// keepTree builds the tree when it is due, until ctx ends.
func (f *Feed) keepTree(ctx context.Context) {
	tick := time.NewTicker(treeEvery)
	defer tick.Stop()
	kinds := treeKinds()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		f.mu.Lock()
		due, turn := f.tree.stale, f.tree.turn
		f.mu.Unlock()
		if due && f.watcher.handled(f, func(i *interest) bool { return kinds[i.Kind] }) {
			f.buildTree(turn)
		}
	}
}

// buildTree builds the tree, of all there is unless a kind has come or gone since the
// turn; not under the lock, for that takes a while.
func (f *Feed) buildTree(turn int) {
	f.mu.Lock()
	namespaces, provider := f.tree.input(f.o.Cozystack)
	f.tree.stale = false
	f.mu.Unlock()
	built := tenant.Build(namespaces, provider, func(n tenant.Namespace) bool { return f.o.Tenants.Matches(labels.Set(n.Labels)) })
	f.change(func() bool {
		f.tree.whole = f.tree.turn == turn
		f.books.SetTree(built)
		return true
	})
}

// input returns what a tree is built from.
func (t *tree) input(cozystack bool) ([]tenant.Namespace, tenant.Provider) {
	var namespaces []tenant.Namespace
	for _, ns := range t.namespaces {
		ns.HNCHalted = t.halted[ns.Name]
		namespaces = append(namespaces, ns)
	}
	if cozystack {
		return namespaces, tenant.Cozystack(slices.Collect(maps.Values(t.releases)))
	}
	return namespaces, tenant.Labels(slices.Collect(maps.Values(t.quotas)), t.hnc)
}

// entries are the events of a kind that the tree is built from. now returns the key of
// an object and what is kept of it; ok is false when that is nothing.
func entries[V any](f *Feed, into map[string]V, now func(metav1.Object) (key string, v V, ok bool)) events {
	drop := func(key string) bool {
		_, had := into[key]
		delete(into, key)
		f.tree.stale = f.tree.stale || had
		return false // the tree says so when it is built
	}
	return events{
		put: func(_, o metav1.Object) bool {
			key, v, ok := now(o)
			if !ok {
				return drop(key)
			}
			if was, had := into[key]; !had || !reflect.DeepEqual(was, v) {
				into[key], f.tree.stale = v, true
			}
			return false
		},
		drop: func(o metav1.Object) bool { return drop(nameOf(o)) },
		gone: func() bool {
			clear(into)
			f.tree.changed()
			return true
		},
	}
}

// nameOf returns the namespace and the name of an object, or its name alone.
func nameOf(o metav1.Object) string {
	if o.GetNamespace() == "" {
		return o.GetName()
	}
	return o.GetNamespace() + "/" + o.GetName()
}

func (f *Feed) namespaceEvents() events {
	return entries(f, f.tree.namespaces, func(o metav1.Object) (string, tenant.Namespace, bool) {
		return nameOf(o), namespaceOf(o), true
	})
}

// namespaceOf returns what the tree needs of a Namespace.
func namespaceOf(o metav1.Object) tenant.Namespace {
	return tenant.Namespace{
		Name: o.GetName(), UID: string(o.GetUID()), Labels: o.GetLabels(), Terminating: o.GetDeletionTimestamp() != nil,
		SubnamespaceOf: o.GetAnnotations()[subnamespaceOf],
	}
}

func (f *Feed) quotaEvents() events {
	return entries(f, f.tree.quotas, func(o metav1.Object) (string, tenant.Quota, bool) {
		return nameOf(o), quotaOf(o.(*corev1.ResourceQuota)), true
	})
}

// quotaOf returns what the tree needs of a ResourceQuota.
func quotaOf(q *corev1.ResourceQuota) tenant.Quota {
	out := tenant.Quota{Namespace: q.Namespace, Name: q.Name, Hard: map[string]string{}}
	for key, amount := range q.Spec.Hard {
		out.Hard[string(key)] = amount.String()
	}
	return out
}

// hncCame makes HNC's labels count: it is installed.
func (f *Feed) hncCame() bool {
	f.tree.hnc = true
	f.tree.changed()
	return true
}

func (f *Feed) hierarchyEvents() events {
	e := entries(f, f.tree.halted, func(o metav1.Object) (string, bool, bool) {
		d := f.document(o)
		halted, err := haltedBy(&d)
		f.unreadable(d.Ref(), err)
		return o.GetNamespace(), true, halted
	})
	e.drop = func(o metav1.Object) bool {
		d := f.document(o)
		f.unreadable(d.Ref(), nil)
		f.tree.stale = f.tree.stale || f.tree.halted[o.GetNamespace()]
		delete(f.tree.halted, o.GetNamespace())
		return false
	}
	gone := e.gone
	e.gone = func() bool {
		f.tree.hnc = false
		return gone()
	}
	return e
}

// haltedBy reports that a HierarchyConfiguration halts its namespace. One that cannot be
// read does.
func haltedBy(d *manifest.Document) (bool, error) {
	v, _ := manifest.Lookup(d.Object, manifest.Path{"status", "conditions"})
	list, ok := v.([]any)
	if !ok && v != nil {
		return true, errors.New("status.conditions is no list")
	}
	for _, item := range list {
		c, ok := item.(map[string]any)
		if !ok {
			return true, errors.New("a condition is no mapping")
		}
		if c["type"] == "ActivitiesHalted" && c["status"] != "False" {
			return true, nil
		}
	}
	return false, nil
}

func (f *Feed) releaseEvents() events {
	return entries(f, f.tree.releases, func(o metav1.Object) (string, tenant.Release, bool) {
		d := f.document(o)
		return nameOf(o), releaseFrom(&d), strings.HasPrefix(o.GetName(), tenantRelease)
	})
}

// releaseFrom returns what the tree needs of a HelmRelease. Values that are no mapping
// are taken for a budget, which then cannot be read.
func releaseFrom(d *manifest.Document) tenant.Release {
	out := tenant.Release{Namespace: d.Meta("namespace"), Name: d.Meta("name")}
	v, _ := manifest.Lookup(d.Object, manifest.Path{"spec", "values"})
	values, ok := v.(map[string]any)
	if !ok && v != nil {
		values = map[string]any{budgetsOfRelease: "values that are no mapping"}
	}
	out.Values = values
	return out
}
