package cluster

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/gpuctl/gpuctl/internal/alloc"
)

func decodeInto[T any](t *testing.T, text string) *T {
	t.Helper()
	out := new(T)
	if err := yaml.UnmarshalStrict([]byte(text), out); err != nil {
		t.Fatal(err)
	}
	return out
}

func isGPU(name corev1.ResourceName) bool { return strings.HasPrefix(string(name), "nvidia.com/") }

func TestFits(t *testing.T) {
	const (
		roomy    = `allocatable: {cpu: "8", memory: 64Gi, pods: "110", devices.kubevirt.io/kvm: 1k, nvidia.com/GH100: "8"}`
		affinity = `affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [%s]}}}`
		tainted  = `taints: [{key: dedicated, value: infra, effect: NoSchedule}]`
	)
	terms := func(list ...string) string { return fmt.Sprintf(affinity, strings.Join(list, ", ")) }
	expression := func(key, operator, values string) string {
		return fmt.Sprintf("{matchExpressions: [{key: %s, operator: %s, values: [%s]}]}", key, operator, values)
	}
	field := func(operator, values string) string {
		return fmt.Sprintf("{matchFields: [{key: metadata.name, operator: %s, values: [%s]}]}", operator, values)
	}
	asks := func(requests string) string {
		return fmt.Sprintf("containers: [{name: compute, resources: {requests: {%s}}}]", requests)
	}
	tests := map[string]struct {
		labels, spec, status string // of worker-1
		pod                  string // the launcher's spec
		others               []string
		want                 alloc.Verdict
	}{
		"nothing is asked": {},
		"all that is asked": {
			labels: "zone: a", spec: tainted,
			pod: "nodeSelector: {zone: a}\ntolerations: [{key: dedicated, operator: Exists}]\n" +
				asks("cpu: 8, memory: 64Gi, devices.kubevirt.io/kvm: 1, nvidia.com/GH100: 100"),
		},

		"tainted": {spec: tainted, want: "untolerated taint dedicated=infra:NoSchedule"},
		"tainted without a value": {
			spec: `taints: [{key: node.kubernetes.io/not-ready, effect: NoExecute}]`, want: "untolerated taint node.kubernetes.io/not-ready:NoExecute",
		},
		"tainted with its own name": {
			spec: `taints: [{key: only, value: for-worker-1, effect: NoSchedule}]`, want: "untolerated taint only:NoSchedule",
		},
		"better not":                   {spec: `taints: [{key: dedicated, value: infra, effect: PreferNoSchedule}]`},
		"tolerated by Equal":           {spec: tainted, pod: `tolerations: [{key: dedicated, operator: Equal, value: infra, effect: NoSchedule}]`},
		"tolerated by no operator":     {spec: tainted, pod: `tolerations: [{key: dedicated, value: infra, effect: NoSchedule}]`},
		"tolerated by Exists":          {spec: tainted, pod: `tolerations: [{key: dedicated, operator: Exists, effect: NoSchedule}]`},
		"tolerated whatever effect":    {spec: tainted, pod: `tolerations: [{key: dedicated, value: infra}]`},
		"tolerated whatever key":       {spec: tainted, pod: `tolerations: [{operator: Exists}]`},
		"another value is tolerated":   {spec: tainted, pod: `tolerations: [{key: dedicated, value: infr}]`, want: "untolerated taint dedicated=infra:NoSchedule"},
		"another key is tolerated":     {spec: tainted, pod: `tolerations: [{key: dedicate, operator: Exists}]`, want: "untolerated taint dedicated=infra:NoSchedule"},
		"another effect is tolerated":  {spec: tainted, pod: `tolerations: [{key: dedicated, operator: Exists, effect: NoExecute}]`, want: "untolerated taint dedicated=infra:NoSchedule"},
		"an unknown way of toleration": {spec: tainted, pod: `tolerations: [{key: dedicated, operator: Maybe, value: infra}]`, want: "untolerated taint dedicated=infra:NoSchedule"},
		"the second taint": {
			spec: `taints: [{key: a, effect: NoSchedule}, {key: b, effect: PreferNoSchedule}, {key: c, effect: NoExecute}, {key: d, effect: NoSchedule}]`,
			pod:  `tolerations: [{key: a, operator: Exists}]`, want: "untolerated taint c:NoExecute",
		},

		"selected":                 {labels: "cpu-model.node.kubevirt.io/Skylake: 'true'", pod: `nodeSelector: {cpu-model.node.kubevirt.io/Skylake: "true"}`},
		"another value's selected": {labels: "zone: a", pod: `nodeSelector: {zone: b}`, want: noMatch},
		"one of two is selected":   {labels: "zone: a", pod: `nodeSelector: {zone: a, rack: r}`, want: noMatch},
		"another CPU model": {
			labels: "{cpu-model.node.kubevirt.io/Haswell: 'true', kubevirt.io/schedulable: 'true'}", want: "no CPU model Skylake",
			pod: `nodeSelector: {cpu-model.node.kubevirt.io/Skylake: "true", machine-type.node.kubevirt.io/q35: "true", kubevirt.io/schedulable: "true"}`,
		},
		"a CPU model that was there": {labels: "cpu-model.node.kubevirt.io/Skylake: 'false'", pod: `nodeSelector: {cpu-model.node.kubevirt.io/Skylake: "true"}`, want: "no CPU model Skylake"},
		"no CPU feature":             {pod: `nodeSelector: {cpu-feature.node.kubevirt.io/vmx: "true", zone: a}`, want: "no CPU feature vmx"},
		"no machine type":            {pod: `nodeSelector: {machine-type.node.kubevirt.io/pc: "true"}`, want: "no machine type pc"},
		"no enlightenment":           {pod: `nodeSelector: {hyperv.node.kubevirt.io/synic: "true"}`, want: "no Hyper-V synic"},
		"no dedicated CPUs":          {pod: `nodeSelector: {kubevirt.io/cpumanager: "true"}`, want: "no dedicated CPUs"},
		"no real time":               {pod: `nodeSelector: {kubevirt.io/realtime: ""}`, want: "no CPUs for real time"},
		"another architecture":       {labels: "kubernetes.io/arch: amd64", pod: `nodeSelector: {kubernetes.io/arch: arm64}`, want: "another architecture"},
		"no virt-handler": {
			labels: "kubevirt.io/schedulable: 'false'", want: "KubeVirt runs no VMs there",
			pod: `nodeSelector: {cpu-model.node.kubevirt.io/Skylake: "true", kubevirt.io/schedulable: "true"}`,
		},
		"a CPU model that is no name": {pod: `nodeSelector: {"cpu-model.node.kubevirt.io/free: try\n": "true"}`, want: noMatch},
		"a label that begins alike":   {pod: `nodeSelector: {kubevirt.io/cpumanagers: "true"}`, want: noMatch},
		"In":                          {labels: "zone: a", pod: terms(expression("zone", "In", "b, a"))},
		"not In":                      {labels: "zone: c", pod: terms(expression("zone", "In", "b, a")), want: noMatch},
		"NotIn":                       {labels: "zone: a", pod: terms(expression("zone", "NotIn", "b")), want: ""},
		"NotIn without the label":     {pod: terms(expression("zone", "NotIn", "b"))},
		"in NotIn":                    {labels: "zone: b", pod: terms(expression("zone", "NotIn", "b")), want: noMatch},
		"Exists without the label":    {pod: terms(expression("zone", "Exists", "")), want: noMatch},
		"DoesNotExist":                {pod: terms(expression("zone", "DoesNotExist", ""))},
		"Gt":                          {labels: "cores: '65'", pod: terms(expression("cores", "Gt", "'64'"))},
		"Gt of as much":               {labels: "cores: '64'", pod: terms(expression("cores", "Gt", "'64'")), want: noMatch},
		"Gt of no number":             {labels: "cores: many", pod: terms(expression("cores", "Gt", "'64'")), want: noMatch},
		"the second term":             {labels: "zone: a", pod: terms(expression("zone", "In", "b"), expression("zone", "In", "a"))},
		"both expressions of a term": {
			labels: "zone: a", want: noMatch,
			pod: terms("{matchExpressions: [{key: zone, operator: In, values: [a]}, {key: rack, operator: Exists}]}"),
		},
		"selector and affinity":        {labels: "zone: a", pod: "nodeSelector: {zone: a}\n" + terms(expression("zone", "In", "b")), want: noMatch},
		"by name":                      {pod: terms(field("In", "worker-1"))},
		"by another name":              {pod: terms(field("In", "worker-10")), want: noMatch},
		"by any other name":            {pod: terms(field("NotIn", "worker-1")), want: noMatch},
		"no terms":                     {pod: terms(), want: noMatch},
		"an empty term":                {pod: terms("{}"), want: noMatch},
		"preferred only":               {pod: "affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: " + expression("zone", "In", "b") + "}]}}"},
		"an unknown operator":          {labels: "zone: a", pod: terms(expression("zone", "Like", "a")), want: unreadable},
		"Gt than no number":            {labels: "cores: '65'", pod: terms(expression("cores", "Gt", "many")), want: unreadable},
		"In of nothing":                {labels: "zone: a", pod: terms(expression("zone", "In", "")), want: unreadable},
		"two names":                    {pod: terms(field("In", "worker-1, worker-2")), want: unreadable},
		"malformed, and one that fits": {labels: "zone: a", pod: terms(expression("zone", "Like", "a"), expression("zone", "In", "a"))},

		"too little CPU":           {pod: asks("cpu: 8001m"), want: "too little cpu"},
		"too little memory":        {pod: asks("memory: 64Gi, cpu: 8, ephemeral-storage: 1"), others: []string{asks("memory: 1")}, want: "too little memory"},
		"memory beyond numbers":    {pod: asks("memory: 20E"), want: "too little memory"},
		"CPU before memory":        {pod: asks("memory: 65Gi, cpu: 9"), want: "too little cpu"},
		"as much as others leave":  {pod: asks("cpu: 3500m, memory: 63Gi"), others: []string{asks("cpu: 4500m"), asks("memory: 1Gi")}},
		"more than others leave":   {pod: asks("cpu: 3501m"), others: []string{asks("cpu: 4500m")}, want: "too little cpu"},
		"others have too much":     {others: []string{asks("cpu: 90")}},
		"others ask for no number": {pod: asks("cpu: 1"), others: []string{asks("cpu: 9E"), asks("cpu: 9E")}, want: "too little cpu"},
		"too many pods":            {status: `allocatable: {cpu: 8, pods: "1"}`, others: []string{""}, want: tooManyPods},
		"one more pod":             {status: `allocatable: {cpu: 8, pods: "2"}`, others: []string{""}},
		"too few devices":          {pod: asks("devices.kubevirt.io/kvm: 2"), status: `allocatable: {pods: 2, devices.kubevirt.io/kvm: 1}`, want: "too few devices.kubevirt.io/kvm"},
		"no such resource":         {pod: asks("devices.kubevirt.io/sev: 1"), want: "no devices.kubevirt.io/sev"},
		"none of a resource":       {pod: asks("devices.kubevirt.io/kvm: 1"), status: `allocatable: {pods: 2, devices.kubevirt.io/kvm: 0}`, want: "no devices.kubevirt.io/kvm"},
		"nothing of a resource":    {pod: asks("devices.kubevirt.io/sev: 0")},
		"others have what is none": {pod: asks("a.io/x: 1"), others: []string{asks("a.io/x: 1")}, want: "no a.io/x"},
		"the first by name":        {pod: asks("b.io/x: 1, a.io/x: 1, hugepages-2Mi: 2Mi"), want: "no a.io/x"},
		"huge pages": {
			pod: asks("hugepages-2Mi: 2Mi"), others: []string{asks("hugepages-2Mi: 2Mi")},
			status: `allocatable: {pods: 2, hugepages-2Mi: 2Mi}`, want: "too little hugepages-2Mi",
		},
		"a GPU is somebody else's": {pod: asks("nvidia.com/GH100: 9, nvidia.com/AD102: 1")},

		"init containers count at most once": {
			pod: "initContainers: [{name: a, resources: {requests: {cpu: 8}}}, {name: b, resources: {requests: {cpu: 8}}}]\n" + asks("cpu: 8"),
		},
		"the largest init container":     {pod: "initContainers: [{name: a, resources: {requests: {cpu: 9}}}]\n" + asks("cpu: 1"), want: "too little cpu"},
		"a sidecar counts beside others": {pod: "initContainers: [{name: a, restartPolicy: Always, resources: {requests: {cpu: 1}}}]\n" + asks("cpu: 7500m"), want: "too little cpu"},
		"overhead counts":                {pod: "overhead: {memory: 1Gi}\n" + asks("memory: 63.5Gi"), want: "too little memory"},
		"the pod as a whole":             {pod: "resources: {requests: {cpu: 9}}\n" + asks("cpu: 1"), want: "too little cpu"},

		"a taint before the selector":   {spec: tainted, pod: "nodeSelector: {zone: a}", want: "untolerated taint dedicated=infra:NoSchedule"},
		"the selector before resources": {pod: "nodeSelector: {zone: a}\n" + asks("cpu: 9"), want: noMatch},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			status := tc.status
			if status == "" {
				status = roomy
			}
			node := &corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: "worker-1", Labels: *decodeInto[map[string]string](t, tc.labels)},
				Spec:       *decodeInto[corev1.NodeSpec](t, tc.spec), Status: *decodeInto[corev1.NodeStatus](t, status),
			}
			var others []*corev1.Pod
			for _, text := range tc.others {
				spec := *decodeInto[corev1.PodSpec](t, text)
				spec.NodeName = "worker-1"
				others = append(others, &corev1.Pod{Spec: spec})
			}
			x, launcher := IndexNodes([]*corev1.Node{node}, others, isGPU), &corev1.Pod{Spec: *decodeInto[corev1.PodSpec](t, tc.pod)}
			for range 10 {
				if got := x.Fits(launcher)("worker-1"); got != tc.want {
					t.Errorf("the verdict is %q, want %q", got, tc.want)
				}
			}
		})
	}
}

// What a pod takes depends on where it is, on what became of it, and on how its
// resize goes.
func TestIndexNodes(t *testing.T) {
	tests := map[string]struct {
		pod  string
		want alloc.Verdict
	}{
		"on the node":      {pod: `{spec: {nodeName: here, containers: [{name: c, resources: {requests: {cpu: 1}}}]}}`, want: "too little cpu"},
		"it is to go":      {pod: `{metadata: {deletionTimestamp: "2026-01-01T12:00:00Z"}, spec: {nodeName: here, containers: [{name: c, resources: {requests: {cpu: 1}}}]}}`, want: "too little cpu"},
		"on no node":       {pod: `{spec: {containers: [{name: c, resources: {requests: {cpu: 1}}}]}}`},
		"on another node":  {pod: `{spec: {nodeName: there, containers: [{name: c, resources: {requests: {cpu: 1}}}]}}`},
		"it has succeeded": {pod: `{spec: {nodeName: here, containers: [{name: c, resources: {requests: {cpu: 1}}}]}, status: {phase: Succeeded}}`},
		"it has failed":    {pod: `{spec: {nodeName: here, containers: [{name: c, resources: {requests: {cpu: 1}}}]}, status: {phase: Failed}}`},
		"as a whole it's still large": {
			pod: `{spec: {nodeName: here, resources: {requests: {cpu: 1m}}, containers: [{name: c}]},
				status: {allocatedResources: {cpu: 1m}, resources: {requests: {cpu: 1}}}}`,
			want: "too little cpu",
		},
		"it is still large": {pod: `{spec: {nodeName: here, containers: [{name: c}]}, status: {containerStatuses: [{name: c, allocatedResources: {cpu: 1}}]}}`, want: "too little cpu"},
	}
	node := decodeInto[corev1.Node](t, `{metadata: {name: here}, status: {allocatable: {cpu: "1", pods: "2"}}}`)
	launcher := decodeInto[corev1.Pod](t, `{spec: {containers: [{name: c, resources: {requests: {cpu: 1m}}}]}}`)
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			x := IndexNodes([]*corev1.Node{node}, []*corev1.Pod{decodeInto[corev1.Pod](t, tc.pod)}, nil)
			if got := x.Fits(launcher)("here"); got != tc.want {
				t.Errorf("the verdict is %q, want %q", got, tc.want)
			}
			if got := x.Fits(launcher)("there"); got != notKnown {
				t.Errorf("the verdict on another node is %q", got)
			}
		})
	}
}

// A tenant reads verdicts: of taints they tell what has no node's name in it.
func TestVerdictsNameNoNode(t *testing.T) {
	for name, tc := range map[string]struct {
		taints string // of worker-7
		want   alloc.Verdict
	}{
		"in the value":         {`[{key: dedicated, value: worker-7, effect: NoSchedule}]`, "untolerated taint dedicated:NoSchedule"},
		"another's, in it":     {`[{key: dedicated, value: for.worker-8x, effect: NoSchedule}]`, "untolerated taint dedicated:NoSchedule"},
		"in capitals":          {`[{key: dedicated, value: WORKER-8, effect: NoExecute}]`, "untolerated taint dedicated:NoExecute"},
		"in the key":           {`[{key: repair.example.com/worker-7, effect: NoSchedule}]`, "untolerated taint of effect NoSchedule"},
		"in its domain":        {`[{key: gpu.rack-1.example.com/repair, value: now, effect: NoExecute}]`, "untolerated taint of effect NoExecute"},
		"another one, in both": {`[{key: spare-for.example.com/worker-8, value: worker-8, effect: NoSchedule}]`, "untolerated taint of effect NoSchedule"},
		"of no node":           {`[{key: example.com/worker, value: worker-9, effect: NoSchedule}]`, "untolerated taint example.com/worker=worker-9:NoSchedule"},
		"without a value":      {`[{key: dedicated, effect: NoSchedule}]`, "untolerated taint dedicated:NoSchedule"},
		"since another time":   {`[{key: dedicated, value: infra, effect: NoExecute, timeAdded: "2026-01-01T12:00:00Z"}]`, "untolerated taint dedicated=infra:NoExecute"},
	} {
		t.Run(name, func(t *testing.T) {
			x := IndexNodes([]*corev1.Node{
				decodeInto[corev1.Node](t, `{metadata: {name: worker-7}, spec: {taints: `+tc.taints+`}}`),
				decodeInto[corev1.Node](t, `{metadata: {name: worker-8}}`),
				decodeInto[corev1.Node](t, `{metadata: {name: rack-1.example.com}}`),
				decodeInto[corev1.Node](t, `{}`),
			}, nil, nil)
			if got := x.Fits(&corev1.Pod{})("worker-7"); got != tc.want {
				t.Errorf("the verdict is %q, want %q", got, tc.want)
			}
		})
	}
}

// A launcher's question leaves no trace in the objects it is asked with.
func TestFitsChangesNothing(t *testing.T) {
	node, pod := benchNode(1), benchLauncher()
	wantNode, wantPod := node.DeepCopy(), pod.DeepCopy()
	IndexNodes([]*corev1.Node{node}, []*corev1.Pod{pod}, isGPU).Fits(pod)(node.Name)
	if diff := cmp.Diff(wantNode, node) + cmp.Diff(wantPod, pod); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func benchNode(i int) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("worker-%04d", i), Labels: map[string]string{
			"kubernetes.io/hostname": fmt.Sprintf("worker-%04d", i), "topology.kubernetes.io/zone": "a", "kubevirt.io/schedulable": "true",
			"cpu-model.node.kubevirt.io/Skylake-Server": "true",
		}},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "nvidia.com/gpu", Value: "present", Effect: corev1.TaintEffectNoSchedule}}},
		Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("128"), corev1.ResourceMemory: resource.MustParse("1Ti"), corev1.ResourcePods: resource.MustParse("110"),
			"devices.kubevirt.io/kvm": resource.MustParse("1k"), "nvidia.com/GH100": resource.MustParse("8"),
		}},
	}
}

func benchLauncher() *corev1.Pod {
	requests := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("12"), corev1.ResourceMemory: resource.MustParse("96Gi"),
		"devices.kubevirt.io/kvm": resource.MustParse("1"), "nvidia.com/GH100": resource.MustParse("1"),
	}
	return &corev1.Pod{Spec: corev1.PodSpec{
		NodeSelector: map[string]string{"kubevirt.io/schedulable": "true", "cpu-model.node.kubevirt.io/Skylake-Server": "true"},
		Tolerations:  []corev1.Toleration{{Key: "nvidia.com/gpu", Operator: corev1.TolerationOpExists}},
		Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
				{Key: "topology.kubernetes.io/zone", Operator: corev1.NodeSelectorOpIn, Values: []string{"a", "b"}},
			}}},
		}}},
		Containers: []corev1.Container{{Name: "compute", Resources: corev1.ResourceRequirements{Requests: requests}}},
	}}
}

// BenchmarkFits asks about one node, prepares a question, and prepares nodes with
// 20 pods each.
func BenchmarkFits(b *testing.B) {
	var nodes []*corev1.Node
	var pods []*corev1.Pod
	for i := range 500 {
		nodes = append(nodes, benchNode(i))
		for range 20 {
			p := benchLauncher()
			p.Spec.NodeName = nodes[i].Name
			p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("1")
			pods = append(pods, p)
		}
	}
	x, launcher := IndexNodes(nodes, pods, isGPU), benchLauncher()
	b.Run("one node", func(b *testing.B) {
		b.ReportAllocs()
		fits := x.Fits(launcher)
		for b.Loop() {
			fits("worker-0007")
		}
	})
	b.Run("one launcher", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			x.Fits(launcher)
		}
	})
	b.Run("500 nodes", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			IndexNodes(nodes, pods, isGPU)
		}
	})
}
