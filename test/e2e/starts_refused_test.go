package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
)

// with puts YAML of a VMI's spec into that of a VM or of a VMI.
func (m *market) with(u *unstructured.Unstructured, spec string) *unstructured.Unstructured {
	m.t.Helper()
	path := []string{"spec"}
	if u.GetKind() != "VirtualMachineInstance" {
		path = []string{"spec", "template", "spec"}
	}
	into, _, err := unstructured.NestedMap(u.Object, path...)
	if err == nil {
		merge(into, m.Decode("{apiVersion: v1, kind: x, spec: {" + spec + "}}").Object["spec"].(map[string]any))
		err = unstructured.SetNestedMap(u.Object, into, path...)
	}
	if err != nil {
		m.t.Fatal(err)
	}
	return u
}

func merge(into, from map[string]any) {
	for key, value := range from {
		has, ok1 := into[key].(map[string]any)
		more, ok2 := value.(map[string]any)
		if ok1 && ok2 {
			merge(has, more)
		} else {
			into[key] = value
		}
	}
}

// holdings returns all devices as they are but for versions and times, and all VMIs.
func (m *market) holdings(ctx context.Context) (out []string, err error) {
	devices, err := m.devices(ctx)
	if err != nil {
		return nil, err
	}
	for name, d := range devices {
		d.Status.Conditions = nil // they say when
		status, err := json.Marshal(d.Status)
		if err != nil {
			return nil, err
		}
		out = append(out, fmt.Sprintf("%s %v %s", name, d.Finalizers, status))
	}
	vmis, err := m.Dynamic().Resource(kubevirt.GroupVersion.WithResource("virtualmachineinstances")).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, v := range vmis.Items {
		out = append(out, "VMI "+v.GetNamespace()+"/"+v.GetName())
	}
	slices.Sort(out)
	return out, nil
}

// complains returns a check that a VM says in its status and in an Event why it has no VMI.
func (m *market) complains(vm *unstructured.Unstructured, want string) func(context.Context) error {
	return func(ctx context.Context) error {
		u, err := m.Resource(vm).Get(ctx, vm.GetName(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		if got := failureOf(u); !strings.Contains(got, want) {
			return errorf("it says %q, want %q", got, want)
		}
		return m.told(vm, want)(ctx)
	}
}

// told returns a check that an Event says why a VM has no VMI.
func (m *market) told(vm *unstructured.Unstructured, want string) func(context.Context) error {
	return func(ctx context.Context) error {
		events, err := m.Clientset().CoreV1().Events(vm.GetNamespace()).List(ctx, metav1.ListOptions{FieldSelector: "reason=FailedCreate,involvedObject.name=" + vm.GetName()})
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(events.Items, func(e corev1.Event) bool { return strings.Contains(e.Message, want) }) {
			return errorf("no Event of %d says %q", len(events.Items), want)
		}
		return nil
	}
}

// settled returns the holdings at a time when nothing starts.
func (m *market) settled() []string {
	m.t.Helper()
	out, err := m.holdings(m.t.Context())
	if err != nil {
		m.t.Fatal(err)
	}
	return out
}

// refused has a VM refused, and what there was before be there when it is deleted.
func (m *market) refused(before []string, vm *unstructured.Unstructured, want string) {
	m.t.Helper()
	m.leavesNothing(before, vm, m.complains(vm, want))
}

// leavesNothing has a VM refused as the check says, and what there was before be there
// when it is deleted.
func (m *market) leavesNothing(before []string, vm *unstructured.Unstructured, refused func(context.Context) error) {
	t := m.t
	t.Helper()
	m.Create(vm)
	m.Eventually(startsIn, "VM "+vm.GetName()+" says that it is refused", refused)
	deleteAnyway(t, m.Cluster, vm)
	m.Eventually(startsIn, "nothing is left of VM "+vm.GetName(), func(ctx context.Context) error {
		after, err := m.holdings(ctx)
		if diff := cmp.Diff(before, after); diff != "" {
			return errorf("-before +after:\n%s%w", diff, err)
		}
		return err
	})
}

// empties has no VM and no device in acme any more.
func (m *market) empties() {
	m.t.Helper()
	m.stopsAll()
	err := m.Dynamic().Resource(gpuDevices).Namespace(m.acme).DeleteCollection(m.t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{})
	if err != nil {
		m.t.Fatal(err)
	}
	m.Eventually(startsIn, "all devices are gone", func(ctx context.Context) error {
		devices, err := m.devices(ctx)
		if len(devices) > 0 {
			return errorf("there are %d", len(devices))
		}
		return err
	})
}

// hogs has a pod on each node that takes most of its CPU.
func (m *market) hogs() (end func()) {
	t := m.t
	t.Helper()
	pods := m.Clientset().CoreV1().Pods(m.acme)
	zero := int64(0)
	for _, node := range m.nodes {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "hog-" + node, Labels: map[string]string{"app": "hog"}},
			Spec: corev1.PodSpec{NodeName: node, TerminationGracePeriodSeconds: &zero, Containers: []corev1.Container{{
				Name: "main", Image: "x",
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10"), corev1.ResourceMemory: resource.MustParse("40Gi")}},
			}}},
		}
		if _, err := pods.Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return func() {
		if err := pods.DeleteCollection(t.Context(), metav1.DeleteOptions{GracePeriodSeconds: &zero}, metav1.ListOptions{LabelSelector: "app=hog"}); err != nil {
			t.Error(err)
		}
	}
}

// refusesVMs has VMs refused for what they ask, where the units are free.
func (m *market) refusesVMs() {
	t := m.t
	t.Helper()
	m.class("ours", "{resourceName: "+h200+", entitlement: ours}")
	small, below := m.tenant(), m.tenant()
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "gpus"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"requests." + h200: resource.MustParse("2")}}}
	if _, err := m.Clientset().CoreV1().ResourceQuotas(small).Create(t.Context(), quota, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Clientset().CoreV1().Namespaces().Patch(t.Context(), below, types.MergePatchType, []byte(`{"metadata":{"labels":{"gpuctl.dev/parent":"`+small+`"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	m.Eventually(placedIn, "the budget is known", func(ctx context.Context) error {
		if err := m.place(ctx, m.order(below, "known", "h200", 3), true); err == nil || !strings.Contains(err.Error(), "GPU0611") {
			return errorf("the answer is %w", err)
		}
		return nil
	})
	m.Create(m.order(small, "theirs", "h200", 1))
	m.orders("one", 1)
	m.Eventually(placedIn, "the orders have their units", m.are(v1alpha1.DeviceHeld, "one"))
	(&near{Cluster: m.Cluster, t: t, ns: m.acme, live: liveClient(t, m.Cluster)}).volume("elsewhere", "elsewhere")
	defer m.hogs()()

	before := m.settled()
	const free = "GPU0704: 1 of " + h200 + " are free, but the VM cannot run there: "
	named, made := `{"devices":["one"]}`, `{"templates":[{"class":"h200"}]}`
	for name, tc := range map[string]struct{ namespace, references, spec, want string }{
		"of-another-tenant": {m.acme, `{"devices":["theirs"]}`, "", "GPU0632: there is no GPUDevice theirs in namespace " + m.acme},
		"over-its-budget":   {small, `{"templates":[{"class":"h200","count":2}]}`, "", "GPU0611: the budget of " + small + " does not allow 2 more of " + h200 + "; 1 left"},
		"over-parents":      {below, `{"templates":[{"class":"h200"},{"class":"h200"}]}`, "", "GPU0611: the budget of " + small + " does not allow 2 more of " + h200 + "; 1 left for " + below},
		"not-entitled":      {m.acme, `{"templates":[{"class":"ours"}]}`, "", "GPU0612: class ours needs the entitlement ours"},
		"not-permitted":     {m.acme, `{"templates":[{"class":"unlisted"}]}`, "", "GPU0624: no VM can use class unlisted at present"},
		"no-cpu":            {m.acme, named, "domain: {resources: {requests: {cpu: 10}}}", free + "too little cpu"},
		"no-memory":         {m.acme, made, "domain: {resources: {requests: {memory: 40Gi}}}", free + "too little memory"},
		"cpu-model":         {m.acme, named, "domain: {cpu: {model: Nowhere}}", free + "no CPU model Nowhere"},
		"far-from-all":      {m.acme, made, "affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{labelSelector: {matchLabels: {app: hog}}, topologyKey: kubernetes.io/hostname}]}}", free + "node selector or affinity does not match"},
		"its-volume":        {m.acme, named, "domain: {devices: {disks: [{name: d, disk: {}}]}}, volumes: [{name: d, persistentVolumeClaim: {claimName: elsewhere}}]", free + "node selector or affinity does not match; what PersistentVolumeClaim elsewhere is bound to keeps it to nodes where GPUDevice one cannot be had"},
	} {
		vm := m.with(m.vm(name, tc.references), tc.spec)
		vm.SetNamespace(tc.namespace)
		m.refused(before, vm, tc.want)
	}
	if err := m.Dynamic().Resource(gpuDevices).Namespace(small).Delete(t.Context(), "theirs", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}

// fills has VMs x1 to x3 run with 5 units of a node each, and orders p, q and r hold the
// other 3.
func (m *market) fills() {
	m.t.Helper()
	m.empties()
	for _, name := range []string{"x1", "x2", "x3"} {
		m.Create(m.vm(name, `{"templates":[{"class":"h200","count":5}]}`))
	}
	for _, name := range []string{"x1", "x2", "x3"} {
		m.runs(name, 5)
	}
	for _, name := range []string{"p", "q", "r"} {
		m.orders(name, 3)
	}
	m.Eventually(placedIn, "all units are given", m.are(v1alpha1.DeviceHeld, "p", "q", "r"))
}

// refusesFull has VMs refused where there is no room for what they have or ask.
func (m *market) refusesFull() {
	m.t.Helper()
	m.refused(m.settled(), m.vm("two-nodes", `{"devices":["p","q"]}`), "GPU0705: no node has 6 of "+h200+" free together now: 3 of "+h200+" too few")
	m.refused(m.settled(), m.vm("too-late", `{"templates":[{"class":"h200"}]}`), "GPU0705: no node has 1 of "+h200+" free together now: 1 of "+h200+" too few")
	devices, err := m.devices(m.t.Context())
	if err != nil {
		m.t.Fatal(err)
	}
	node := devices[m.acme+"/p"].Status.Placement.Node
	m.SetAllocatable(node, h200, 5)
	m.Eventually(placedIn, "p has lost its units", m.are(v1alpha1.DeviceLost, "p"))
	m.refused(m.settled(), m.vm("lost", `{"devices":["p"]}`), "GPU0713: the units of GPUDevice p are gone; the VM can start when they are back or replaced")
	m.SetAllocatable(node, h200, 8)
	m.Eventually(placedIn, "p has its units", m.are(v1alpha1.DeviceHeld, "p"))
}
