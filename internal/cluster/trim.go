package cluster

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/gpuctl/gpuctl/internal/manifest"
)

// CacheOptions make a cache hold no more than what the wiring follows from.
func CacheOptions() cache.Options {
	return cache.Options{ReaderFailOnMissingInformer: true, DefaultTransform: func(obj any) (any, error) {
		switch o := obj.(type) {
		case *metav1.PartialObjectMetadata:
			o.Labels, o.Annotations, o.ManagedFields = nil, nil, nil
		case *unstructured.Unstructured:
			trim(o.Object)
		}
		return obj, nil
	}}
}

// trim drops what nobody looks at: nearly all of a Node. Who wrote which field stays
// with the objects that are wired.
func trim(obj manifest.Object) {
	meta, _ := obj["metadata"].(map[string]any)
	switch obj["kind"] {
	case "GPUNode":
		delete(meta, "managedFields")
	case "Node":
		labels, _ := meta["labels"].(map[string]any)
		status, _ := obj["status"].(map[string]any)
		keep(meta, "name", "uid", "resourceVersion", "labels")
		keepIf(labels, func(key string) bool { return strings.HasPrefix(key, "nvidia.com/") })
		if spec, _ := obj["spec"].(map[string]any); spec != nil {
			keep(spec, "unschedulable")
		}
		if status == nil {
			return
		}
		keep(status, "capacity", "allocatable", "conditions")
		for _, amounts := range []string{"capacity", "allocatable"} {
			m, _ := status[amounts].(map[string]any)
			keepIf(m, func(key string) bool { return strings.Contains(key, "/") })
		}
		status["conditions"] = readiness(status)
	}
}

// readiness returns a node's condition Ready, without its times.
func readiness(status map[string]any) []any {
	list, _ := status["conditions"].([]any)
	for _, item := range list {
		if c, _ := item.(map[string]any); c["type"] == "Ready" {
			return []any{map[string]any{"type": "Ready", "status": c["status"]}}
		}
	}
	return nil
}

func keep(m map[string]any, keys ...string) {
	keepIf(m, func(key string) bool { return slices.Contains(keys, key) })
}

func keepIf(m map[string]any, want func(string) bool) {
	maps.DeleteFunc(m, func(key string, _ any) bool { return !want(key) })
}

// alike reports that nothing the wiring follows from has changed. A KubeVirt's status
// changes often, and says little.
func alike(before, after *unstructured.Unstructured) bool {
	for _, path := range [][]string{
		{"metadata", "labels"},
		{"metadata", "annotations"},
		{"metadata", "ownerReferences"},
		{"metadata", "deletionTimestamp"},
		{"metadata", "uid"},
		{"spec"},
		{"status", "phase"},
		{"status", "observedKubeVirtVersion"},
		{"status", "capacity"},
		{"status", "allocatable"},
	} {
		a, _ := manifest.Lookup(before.Object, path)
		b, _ := manifest.Lookup(after.Object, path)
		if !reflect.DeepEqual(a, b) {
			return false
		}
	}
	return notReady(&manifest.Document{Object: before.Object}) == notReady(&manifest.Document{Object: after.Object})
}
