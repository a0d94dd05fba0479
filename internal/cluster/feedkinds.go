package cluster

import (
	"reflect"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/internal/books"
	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/internal/manifest"
	"github.com/gpuctl/gpuctl/internal/patch"
	"github.com/gpuctl/gpuctl/internal/usage"
)

// treeKinds are the kinds from which the tree is built.
func treeKinds() map[string]bool {
	return map[string]bool{"Namespace": true, "ResourceQuota": true, "HierarchyConfiguration": true, "HelmRelease": true}
}

// interests are the kinds that are fed into the books.
func (f *Feed) interests() []*interest {
	of := func(group, kind, version string, object func(schema.GroupVersionKind) client.Object, e events) *interest {
		return &interest{
			GroupKind: schema.GroupKind{Group: group, Kind: kind}, version: version, object: object, handler: f.handler(&e),
			gone: func() { f.change(e.gone) },
		}
	}
	typed := func(o client.Object) func(schema.GroupVersionKind) client.Object {
		return func(schema.GroupVersionKind) client.Object { return o }
	}
	own := v1alpha1.GroupVersion.Version
	out := []*interest{
		of("", "Node", "", asUnstructured, f.nodeEvents()),
		of(v1alpha1.GroupName, "GPUNode", "", asUnstructured, f.reportEvents()),
		of("apps", "DaemonSet", "v1", typed(&appsv1.DaemonSet{}), f.pluginEvents()),
		of("", "Pod", "v1", typed(&corev1.Pod{}), f.podEvents()),
		of("kubevirt.io", "VirtualMachineInstance", "", asUnstructured, f.vmiEvents()),
		of("kubevirt.io", "VirtualMachine", "", asUnstructured, f.vmEvents()),
		of("kubevirt.io", "KubeVirt", "", asUnstructured, f.targetEvents()),
		of("hco.kubevirt.io", "HyperConverged", "", asUnstructured, f.targetEvents()),
		of(v1alpha1.GroupName, "GPUClass", own, typed(&v1alpha1.GPUClass{}), f.classEvents()),
		of(v1alpha1.GroupName, "GPUDevice", own, typed(&v1alpha1.GPUDevice{}), f.deviceEvents()),
		of("resource.k8s.io", "DeviceClass", "v1", asUnstructured, f.claimEvents()),
		of("", "Namespace", "v1", asMetadata, f.namespaceEvents()),
	}
	if f.o.Cozystack {
		return append(out, of("helm.toolkit.fluxcd.io", "HelmRelease", "", asUnstructured, f.releaseEvents()))
	}
	hnc := of("hnc.x-k8s.io", "HierarchyConfiguration", "", asUnstructured, f.hierarchyEvents())
	hnc.came = func() { f.change(f.hncCame) }
	return append(out, of("", "ResourceQuota", "v1", typed(&corev1.ResourceQuota{}), f.quotaEvents()), hnc)
}

// each drops all that a map holds.
func each[K comparable, V any](m map[K]V, drop func(K)) (some bool) {
	some = len(m) > 0
	for key := range m {
		drop(key)
	}
	clear(m)
	return some
}

func (f *Feed) document(o metav1.Object) manifest.Document {
	return manifest.Live(f.client.server, o.(*unstructured.Unstructured).Object)
}

// classOf returns what books need of a GPUClass.
func classOf(c *v1alpha1.GPUClass) books.Class {
	out := books.Class{
		Name: c.Name, Resource: gpu.ResourceName(c.Spec.ResourceName), MaxCount: c.Spec.MaxCount,
		Entitlement: c.Spec.Entitlement, Deleting: c.DeletionTimestamp != nil,
	}
	for key, value := range c.Spec.NodeSelector {
		if out.NodeSelector == nil {
			out.NodeSelector = map[string]string{}
		}
		out.NodeSelector[key] = string(value)
	}
	return out
}

func (f *Feed) classEvents() events {
	return events{
		put: func(before, now metav1.Object) bool {
			f.classes[now.GetName()] = now.(*v1alpha1.GPUClass)
			c := classOf(now.(*v1alpha1.GPUClass))
			if before != nil && reflect.DeepEqual(c, classOf(before.(*v1alpha1.GPUClass))) {
				return before.GetGeneration() != now.GetGeneration() // it is said which one was seen
			}
			f.books.PutClass(c)
			return true
		},
		drop: func(o metav1.Object) bool {
			delete(f.classes, o.GetName())
			f.books.DropClass(o.GetName())
			return true
		},
		gone: func() bool { return each(f.classes, f.books.DropClass) },
	}
}

// targets are the objects that may have the host device table, by kind and name.
type targets map[string]manifest.Document

func (f *Feed) targetEvents() events {
	key := func(o metav1.Object) string { d := f.document(o); return d.Ref() }
	mine := map[string]bool{}
	return events{
		put: func(before, now metav1.Object) bool {
			if before != nil && alike(before.(*unstructured.Unstructured), now.(*unstructured.Unstructured)) {
				return false
			}
			mine[key(now)] = true
			f.table[key(now)] = f.document(now)
			return f.readTable()
		},
		drop: func(o metav1.Object) bool {
			delete(mine, key(o))
			delete(f.table, key(o))
			return f.readTable()
		},
		gone: func() bool {
			return each(mine, func(key string) { delete(f.table, key) }) && f.readTable()
		},
	}
}

// readTable reads what may be given to VMs from the object that the wiring would write.
// Where that is not certain, the table is as it was.
func (f *Feed) readTable() bool {
	table, err := gpu.Table{}, error(nil)
	if len(f.table) > 0 {
		var docs []manifest.Document
		for _, d := range f.table {
			docs = append(docs, d)
		}
		var target patch.Target
		if target, err = patch.Choose(docs); err == nil {
			table, err = patch.TableOf(&target, target.Object)
		}
	}
	f.unreadable("the host device table", err)
	if err != nil || reflect.DeepEqual(table, f.books.Table()) {
		return false
	}
	f.books.SetTable(table)
	return true
}

// claims are DeviceClasses by name.
type claims map[string]usage.DeviceClass

func claimOf(d *manifest.Document) usage.DeviceClass {
	return usage.DeviceClass{Name: d.Meta("name"), Extended: gpu.ResourceName(text(d.Object, "spec", "extendedResourceName"))}
}

func (f *Feed) claimEvents() events {
	tell := func() bool {
		var all []usage.DeviceClass
		for _, c := range f.claims {
			all = append(all, c)
		}
		f.books.SetNames(f.o.Listed, all)
		return true
	}
	return events{
		put: func(_, now metav1.Object) bool {
			d := f.document(now)
			c := claimOf(&d)
			if was, known := f.claims[c.Name]; known && was == c {
				return false
			}
			f.claims[c.Name] = c
			return tell()
		},
		drop: func(o metav1.Object) bool { delete(f.claims, o.GetName()); return tell() },
		gone: func() bool { clear(f.claims); return tell() },
	}
}
