package cluster

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/internal/books"
)

// BenchmarkFeed tells a feed of 5,000 nodes with 8 GPUs each, of 40,000 devices that hold
// them, of as many pods with a GPU, and of 100,000 pods without: one operation is all of
// it. The memory is what is held in the end, objects in the cache among it.
func BenchmarkFeed(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		before := heap()
		nodes, devices, pods := fleetOf(5000, 8, 100_000)
		b.StartTimer()
		f := newTestFeed()
		onNodes, onDevices, onPods := f.nodeEvents(), f.deviceEvents(), f.podEvents()
		for _, n := range nodes {
			f.change(func() bool { return onNodes.put(nil, n) })
		}
		for _, d := range devices {
			f.change(func() bool { return onDevices.put(nil, d) })
		}
		for _, p := range pods {
			f.change(func() bool { return onPods.put(nil, p) })
		}
		f.Books(func(b *books.Books) { b.Snapshot() })
		b.StopTimer()
		b.ReportMetric(float64(heap()-before)/(1<<20), "MiB")
		runtime.KeepAlive([]any{f, nodes, devices, pods})
		b.StartTimer()
	}
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// fleetOf makes what caches hold of a cluster.
func fleetOf(nodes, perNode, others int) (ns []*unstructured.Unstructured, ds []*v1alpha1.GPUDevice, ps []*heldPod) {
	now, alike := metav1.NewMicroTime(time.Unix(1, 0)), &pool{}
	for i := range nodes {
		name := fmt.Sprintf("worker-%d", i)
		labels := map[string]any{"kubernetes.io/hostname": name, "nvidia.com/gpu.present": "true"}
		for j := range 40 {
			labels[fmt.Sprintf("cpu-feature.node.kubevirt.io/feature-%d", j)] = "true"
		}
		n := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": name, "uid": name, "resourceVersion": "1", "labels": labels},
			"status": map[string]any{
				"allocatable": map[string]any{string(h200Name): fmt.Sprint(perNode), "cpu": "128", "memory": "2Ti", "pods": "250", "devices.kubevirt.io/kvm": "1k"},
				"capacity":    map[string]any{string(h200Name): fmt.Sprint(perNode)},
				"conditions":  []any{map[string]any{"type": "Ready", "status": "True"}},
			},
		}}
		alike.trim(n)
		ns = append(ns, n)
		for j := range perNode {
			d := &v1alpha1.GPUDevice{
				ObjectMeta: metav1.ObjectMeta{
					Name: fmt.Sprintf("device-%d-%d", i, j), Namespace: fmt.Sprintf("tenant-%d", i%500), UID: types.UID(fmt.Sprintf("00000000-0000-0000-%04d-%012d", j, i)),
					ResourceVersion: "1", CreationTimestamp: metav1.Unix(int64(i), 0), Finalizers: []string{v1alpha1.FinalizerUnits},
				},
				Spec: v1alpha1.GPUDeviceSpec{ClassName: "h200", Count: 1},
				Status: v1alpha1.GPUDeviceStatus{
					State: v1alpha1.DeviceHeld, Origin: &v1alpha1.Origin{Kind: v1alpha1.OriginOrder},
					Placement: &v1alpha1.Placement{Node: name, ResourceName: string(h200Name), Units: 1, Since: now},
				},
			}
			d.Status.Conditions = []metav1.Condition{d.Status.Held("", "one unit of "+string(h200Name)+" on "+name), d.Status.Attached()}
			ds = append(ds, d)
		}
	}
	for i := range others {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pod-%d", i), Namespace: "default", UID: types.UID(fmt.Sprint(i)), ResourceVersion: "1"}}
		p.Spec.NodeName = fmt.Sprintf("worker-%d", i%nodes)
		requests := corev1.ResourceList{"cpu": resource.MustParse(fmt.Sprintf("%dm", 100+i%20)), "memory": resource.MustParse("128Mi")}
		p.Spec.Containers = []corev1.Container{{Name: "main", Image: "registry/image:v1", Resources: corev1.ResourceRequirements{Requests: requests}}}
		ps = append(ps, alike.pod(p))
	}
	for i, d := range ds {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "launcher-" + d.Name, Namespace: d.Namespace, UID: types.UID(fmt.Sprint("launcher-", i)), ResourceVersion: "1"}}
		p.Spec.NodeName = d.Status.Placement.Node
		amounts := corev1.ResourceList{corev1.ResourceName(h200Name): resource.MustParse("1"), "devices.kubevirt.io/kvm": resource.MustParse("1"), "cpu": resource.MustParse("8")}
		p.Spec.Containers = []corev1.Container{{Name: "compute", Image: "registry/virt-launcher:v1", Resources: corev1.ResourceRequirements{Limits: amounts, Requests: amounts}}}
		ps = append(ps, alike.pod(p))
	}
	return ns, ds, ps
}
