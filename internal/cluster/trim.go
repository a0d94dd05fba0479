package cluster

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	kubernetes "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/internal/manifest"
)

// CacheOptions make a cache hold no more than what the wiring, the Feed and placement
// follow from. Its scheme has the kinds of Kubernetes and of gpuctl.
func CacheOptions() cache.Options {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{kubernetes.AddToScheme, v1alpha1.AddToScheme} {
		utilruntime.Must(add(scheme))
	}
	return cache.Options{Scheme: scheme, ReaderFailOnMissingInformer: true, DefaultTransform: (&pool{}).transform}
}

// transform cuts an object down to what is held of it.
func (p *pool) transform(obj any) (any, error) {
	switch o := obj.(type) {
	case *metav1.PartialObjectMetadata:
		trimMetadata(o)
	case *unstructured.Unstructured:
		p.trim(o)
	case *corev1.Pod:
		return p.pod(o), nil
	case *corev1.ResourceQuota:
		return &corev1.ResourceQuota{TypeMeta: o.TypeMeta, ObjectMeta: identity(&o.ObjectMeta), Spec: corev1.ResourceQuotaSpec{Hard: o.Spec.Hard}}, nil
	case *appsv1.DaemonSet:
		return heldDaemonSet(o), nil
	case *v1alpha1.GPUDevice:
		p.device(o)
	case *v1alpha1.GPUClass:
		o.ManagedFields = nil
	}
	return obj, nil
}

// device drops of a device who wrote its fields, and shares what many say alike.
func (p *pool) device(d *v1alpha1.GPUDevice) {
	d.ManagedFields = nil
	texts := []*string{&d.Namespace, &d.Spec.ClassName}
	for i := range d.Finalizers {
		texts = append(texts, &d.Finalizers[i])
	}
	if at := d.Status.Placement; at != nil {
		texts = append(texts, &at.Node, &at.ResourceName)
	}
	for i := range d.Status.Conditions {
		c := &d.Status.Conditions[i]
		texts = append(texts, &c.Type, &c.Reason, &c.Message)
	}
	for _, s := range texts {
		*s = p.text(*s)
	}
}

// trimMetadata keeps of a namespace what says where it stands in the tree.
func trimMetadata(o *metav1.PartialObjectMetadata) {
	o.ManagedFields = nil
	if o.Kind != "Namespace" {
		o.Labels, o.Annotations = nil, nil
		return
	}
	parent, below := o.Annotations[subnamespaceOf]
	if o.Annotations = nil; below {
		o.Annotations = map[string]string{subnamespaceOf: parent}
	}
}

// identity is what tells an object from others, and its versions apart.
func identity(m *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: m.Name, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion}
}

// trim drops what nobody looks at: nearly all of a Node. What is left of nodes and of
// their inventories is shared where it is alike, and so not changed any more.
func (p *pool) trim(u *unstructured.Unstructured) {
	meta, _ := u.Object["metadata"].(map[string]any)
	spec, _ := u.Object["spec"].(map[string]any)
	status, _ := u.Object["status"].(map[string]any)
	switch u.Object["kind"] {
	case "GPUNode":
		u.Object = p.node(u.Object, only(meta, "name", "uid", "resourceVersion", "deletionTimestamp"), spec, nil)
	case "Node":
		u.Object = p.node(u.Object, only(meta, "name", "uid", "resourceVersion", "labels"), only(spec, "unschedulable", "taints"), statusOfNode(status))
	default:
		trim(u.Object)
	}
}

// trim drops of an object other than a node what nobody looks at. Who wrote which field
// stays with the objects that are wired.
func trim(obj manifest.Object) {
	meta, _ := obj["metadata"].(map[string]any)
	spec, _ := obj["spec"].(map[string]any)
	status, _ := obj["status"].(map[string]any)
	alone := func() { keep(meta, "name", "namespace", "uid", "resourceVersion") }
	switch obj["kind"] {
	case "VirtualMachineInstance":
		alone()
		keep(obj, "apiVersion", "kind", "metadata", "status")
		keep(status, "activePods", "phase")
	case "VirtualMachine":
		heldVM(obj, meta, spec, status)
	case "DeviceClass":
		alone()
		keep(spec, "extendedResourceName")
	case "HierarchyConfiguration":
		alone()
		keep(obj, "apiVersion", "kind", "metadata", "status")
		keep(status, "conditions")
	case "HelmRelease":
		alone()
		keep(obj, "apiVersion", "kind", "metadata", "spec")
		keep(spec, "values")
		values, _ := spec["values"].(map[string]any)
		keep(values, budgetsOfRelease)
	}
}

// node returns what is held of one, of its parts as they are given. But for its metadata
// it shares them with other nodes, most of which are alike.
func (p *pool) node(obj manifest.Object, meta, spec, status map[string]any) manifest.Object {
	if labels, ok := meta["labels"].(map[string]any); ok {
		meta["labels"] = p.fields(labels, p.alike)
	}
	out := only(obj, "apiVersion", "kind")
	for key, v := range out {
		out[key] = p.alike(v)
	}
	out["metadata"] = meta
	if spec != nil {
		out["spec"] = p.alike(spec)
	}
	if status != nil {
		out["status"] = p.alike(status)
	}
	return out
}

// statusOfNode returns what is held of a Node's status.
func statusOfNode(status map[string]any) map[string]any {
	out := only(status, "capacity", "allocatable")
	if capacity, ok := out["capacity"].(map[string]any); ok {
		capacity = maps.Clone(capacity)
		keepIf(capacity, extended)
		out["capacity"] = capacity
	}
	if ready := readiness(status); ready != nil {
		out["conditions"] = ready
	}
	return out
}

// only returns a map of some of the keys; nil of none.
func only(m map[string]any, keys ...string) map[string]any {
	if m == nil {
		return nil
	}
	out := make(map[string]any, len(keys))
	for _, key := range keys {
		if v, ok := m[key]; ok {
			out[key] = v
		}
	}
	return out
}

// extended reports the name of an extended resource: it has a domain.
func extended(name string) bool { return strings.Contains(name, "/") }

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
		if !reflect.DeepEqual(wired(before, path), wired(after, path)) {
			return false
		}
	}
	return notReady(&manifest.Document{Object: before.Object}) == notReady(&manifest.Document{Object: after.Object})
}

// wired returns what is at a path, of a Node as far as the wiring follows from it:
// placement needs more.
func wired(u *unstructured.Unstructured, path []string) any {
	v, _ := manifest.Lookup(u.Object, path)
	m, ok := v.(map[string]any)
	if !ok || u.GetKind() != "Node" {
		return v
	}
	m = maps.Clone(m)
	switch path[len(path)-1] {
	case "labels":
		keepIf(m, func(key string) bool { return strings.HasPrefix(key, gpu.Domain+"/") })
	case "spec":
		keep(m, "unschedulable")
	case "capacity", "allocatable":
		keepIf(m, extended)
	}
	return m
}
