package alloc_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuctl/gpuctl/internal/alloc"
	"github.com/gpuctl/gpuctl/internal/cluster"
	"github.com/gpuctl/gpuctl/internal/gpu"
)

const (
	h200 = gpu.ResourceName("nvidia.com/GH100_H200_SXM_141GB")
	gpus = 8 // of a node
	// foreign is one node in so many that has a taint which no launcher tolerates.
	foreign = 8
)

// fleet is a cluster as the API has it and as alloc does.
type fleet struct {
	snapshot *alloc.Snapshot
	index    *cluster.NodeIndex
}

func nodeName(i int) string { return fmt.Sprintf("worker-%04d", i) }

// newFleet makes nodes, and a device of one unit for each unit that taken names.
// The foreign ones are at the numbers 0, 8 and so on.
func newFleet(nodes int, state alloc.State, taken func(node, unit int) bool) fleet {
	var objects []*corev1.Node
	var pods []*corev1.Pod
	var devices []alloc.Device
	served := make([]alloc.Node, nodes)
	for i := range nodes {
		objects = append(objects, nodeObject(i))
		served[i] = alloc.Node{Name: nodeName(i), Serves: []alloc.Served{{Resource: h200, Units: gpus, NUMA: []int64{gpus / 2, gpus / 2}}}}
		daemon := pod("1", "1Gi")
		daemon.Spec.NodeName = nodeName(i)
		pods = append(pods, daemon)
		for j := range gpus {
			if taken(i, j) {
				devices = append(devices, alloc.Device{
					UID: fmt.Sprintf("0b9d7a1c-%04x-4%03x-9f00-%012x", i, j, i*gpus+j), Resource: h200, Units: 1,
					Node: nodeName(i), State: state, Ordered: time.Unix(int64(i), 0),
				})
			}
		}
	}
	isGPU := func(name corev1.ResourceName) bool { return strings.HasPrefix(string(name), "nvidia.com/") }
	return fleet{alloc.New(served, devices), cluster.IndexNodes(objects, pods, isGPU)}
}

func none(int, int) bool { return false }
func all(int, int) bool  { return true }

// scattered takes units all over the nodes, so many of a thousand.
func scattered(permille int) func(int, int) bool {
	return func(node, unit int) bool { return (node*gpus+unit)*7919%1000 < permille }
}

// packed takes all units of the first nodes.
func packed(nodes int) func(int, int) bool {
	return func(node, _ int) bool { return node < nodes }
}

func nodeObject(i int) *corev1.Node {
	taints := []corev1.Taint{{Key: "nvidia.com/gpu", Value: "present", Effect: corev1.TaintEffectNoSchedule}}
	if i%foreign == 0 {
		taints = append(taints, corev1.Taint{Key: "dedicated", Value: "infra", Effect: corev1.TaintEffectNoSchedule})
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: nodeName(i), Labels: map[string]string{
			"kubernetes.io/hostname": nodeName(i), "kubevirt.io/schedulable": "true",
			"cpu-model.node.kubevirt.io/Skylake-Server": "true", "topology.kubernetes.io/zone": string(rune('a' + i%3)),
		}},
		Spec: corev1.NodeSpec{Taints: taints},
		Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("128"), corev1.ResourceMemory: resource.MustParse("1Ti"),
			corev1.ResourcePods: resource.MustParse("110"), "devices.kubevirt.io/kvm": resource.MustParse("1k"),
		}},
	}
}

func pod(cpu, memory string) *corev1.Pod {
	return &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory),
	}}}}}}
}

// launcher asks for what KubeVirt's launchers ask for; cpu is more than a node
// has, or not.
func launcher(cpu string) *corev1.Pod {
	p := pod(cpu, "96Gi")
	p.Spec.Containers[0].Resources.Requests["devices.kubevirt.io/kvm"] = resource.MustParse("1")
	p.Spec.NodeSelector = map[string]string{"kubevirt.io/schedulable": "true", "cpu-model.node.kubevirt.io/Skylake-Server": "true"}
	p.Spec.Tolerations = []corev1.Toleration{{Key: "nvidia.com/gpu", Operator: corev1.TolerationOpExists}}
	p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: "topology.kubernetes.io/zone", Operator: corev1.NodeSelectorOpIn, Values: []string{"a", "b"}},
		}}},
	}}}
	return p
}

// set is one order of so many units.
func set(units int) []alloc.Member {
	return []alloc.Member{{Resource: h200, Units: int64(units)}}
}

// TestFleet keeps the benchmarks from timing something else than they say.
func TestFleet(t *testing.T) {
	tests := map[string]struct {
		taken func(int, int) bool
		cpu   string
		want  string // the node, "" for none
	}{
		"empty":               {none, "12", nodeName(1)},
		"packed":              {packed(16), "12", nodeName(18)}, // 16 is foreign, 17 in another zone
		"full":                {all, "12", ""},
		"a launcher too much": {none, "200", ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFleet(24, alloc.Attached, tc.taken)
			d, err := alloc.Decide(f.snapshot, alloc.Request{Set: set(8), Fits: f.index.Fits(launcher(tc.cpu))})
			if d.Node != tc.want || (err == nil) != (tc.want != "") {
				t.Errorf("placed on %q, %v; want %q", d.Node, err, tc.want)
			}
		})
	}
}
