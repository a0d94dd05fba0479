package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
)

// template returns the one of a VM, with one label more.
func template(vm *unstructured.Unstructured, label string) map[string]any {
	t := vm.Object["spec"].(map[string]any)["template"].(map[string]any)
	t["metadata"].(map[string]any)["labels"].(map[string]any)["of"] = label
	return t
}

// sets has instances that are alike start together: each gets devices of its own.
func (m *market) sets() {
	t := m.t
	t.Helper()
	m.empties()
	group := m.Decode("{apiVersion: kubevirt.io/v1, kind: VirtualMachineInstanceReplicaSet, metadata: {name: group, namespace: " + m.acme + "}, spec: {replicas: 4, selector: {matchLabels: {of: group}}}}")
	group.Object["spec"].(map[string]any)["template"] = template(m.vm("group", `{"templates":[{"class":"h200","count":2},{"class":"h200"}]}`), "group")
	pool := m.Decode("{apiVersion: pool.kubevirt.io/v1beta1, kind: VirtualMachinePool, metadata: {name: pool, namespace: " + m.acme + "}, spec: {replicas: 2, selector: {matchLabels: {of: pool}}, virtualMachineTemplate: {metadata: {labels: {of: pool}}, spec: {runStrategy: Always}}}}")
	if err := unstructured.SetNestedMap(pool.Object, template(m.vm("pool", `{"templates":[{"class":"h200","count":3}]}`), "pool"), "spec", "virtualMachineTemplate", "spec", "template"); err != nil {
		t.Fatal(err)
	}
	m.Create(group)
	m.Create(pool)
	names := m.alike("group", 4)
	m.own(names, 3, 2)
	m.own(m.alike("pool", 2), 3, 1)

	if err := m.vms("virtualmachineinstances").Delete(t.Context(), names[0], metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	m.Eventually(startsIn, "the one that was deleted is gone", func(ctx context.Context) error {
		if _, err := m.instance(ctx, names[0]); err == nil {
			return errorf("it is there")
		}
		return nil
	})
	m.own(slices.DeleteFunc(m.alike("group", 4), func(name string) bool { return slices.Contains(names, name) }), 3, 2)
	for _, u := range []*unstructured.Unstructured{group, pool} {
		deleteAnyway(t, m.Cluster, u)
	}
	m.Eventually(startsIn, "nothing is left of them", m.amount(v1alpha1.DeviceAttached, none))
	m.Eventually(startsIn, "nothing is left of them", m.amount(v1alpha1.DeviceHeld, none))
}

// alike waits until there are so many instances with a label, and returns their names.
func (m *market) alike(label string, want int) (names []string) {
	m.t.Helper()
	m.Eventually(startsIn, fmt.Sprintf("%d instances of %s are there", want, label), func(ctx context.Context) error {
		list, err := m.Dynamic().Resource(kubevirt.GroupVersion.WithResource("virtualmachineinstances")).Namespace(m.acme).List(ctx, metav1.ListOptions{LabelSelector: "of=" + label})
		if err != nil {
			return err
		}
		names = nil
		for _, v := range list.Items {
			if v.GetDeletionTimestamp() == nil {
				names = append(names, v.GetName())
			}
		}
		if len(names) != want {
			return errorf("there are %q", names)
		}
		return nil
	})
	return names
}

// own has instances run, each with devices that no other has.
func (m *market) own(names []string, units, devices int) {
	m.t.Helper()
	seen := map[string]string{}
	for _, name := range names {
		made := m.attached(name, m.runs(name, units), devices)
		if len(made) != devices {
			m.t.Errorf("%s has the devices %q, want %d", name, made, devices)
		}
		for _, d := range made {
			if seen[d] != "" {
				m.t.Errorf("%s is of %s and of %s", d, seen[d], name)
			}
			seen[d] = name
		}
	}
}

// flavoured has VMs start that get some of what they ask for from elsewhere, unless
// that is GPUs.
func (m *market) flavoured() {
	t := m.t
	t.Helper()
	for name, gpus := range map[string]string{"with-gpu": ", gpus: [{name: x, deviceName: " + h200 + "}]", "without": ""} {
		m.Create(m.Decode("{apiVersion: instancetype.kubevirt.io/v1beta1, kind: VirtualMachineInstancetype, metadata: {name: " + name + ", namespace: " + m.acme + "}, spec: {cpu: {guest: 1}, memory: {guest: 64Mi}" + gpus + "}}"))
	}
	for name, more := range map[string]string{"cpu": "cpu: 2", "gpu": h200 + ": 1"} {
		m.Create(m.Decode("{apiVersion: kubevirt.io/v1, kind: VirtualMachineInstancePreset, metadata: {name: " + name + ", namespace: " + m.acme + "}, spec: {selector: {matchLabels: {of: " + name + "}}, domain: {devices: {}, resources: {requests: {memory: 64Mi, " + more + "}}}}}"))
	}
	m.Eventually(startsIn, "presets are applied", m.presets)
	one := `{"templates":[{"class":"h200"}]}`
	typed := func(name string) *unstructured.Unstructured {
		vm := m.vm(name, one)
		unstructured.RemoveNestedField(vm.Object, "spec", "template", "spec", "domain", "resources")
		err := unstructured.SetNestedStringMap(vm.Object, map[string]string{"kind": "VirtualMachineInstancetype", "name": name}, "spec", "instancetype")
		if err != nil {
			t.Fatal(err)
		}
		return vm
	}
	preset := func(name string) *unstructured.Unstructured {
		vm := m.with(m.vm(name, one), "domain: {memory: {guest: 64Mi}}")
		unstructured.RemoveNestedField(template(vm, name), "spec", "domain", "resources") // a preset gives all of them, or none
		return vm
	}
	// Its status keeps KubeVirt's first error, which is another one.
	m.leavesNothing(m.settled(), typed("with-gpu"), m.told(typed("with-gpu"), "GPU0638: x asks for "+h200))
	m.Create(typed("without"))
	m.Create(preset("cpu"))
	m.runs("without", 1)
	m.runs("cpu", 1)
	if pod := m.LauncherPod(m.acme, "cpu"); !slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Resources.Requests.Cpu().Value() == 2 }) {
		t.Errorf("the preset is not of use: %+v", pod.Spec.Containers)
	}
	m.driesRun()
}

// presets reports that virt-api does not know the presets yet.
func (m *market) presets(ctx context.Context) error {
	for _, name := range []string{"cpu", "gpu"} {
		u := m.with(vmi(m.Cluster, m.acme, "preset", "gpus", h200), "domain: {memory: {guest: 64Mi}}")
		unstructured.RemoveNestedField(u.Object, "spec", "domain", "resources")
		u.SetLabels(map[string]string{"of": name})
		got, err := m.vms("virtualmachineinstances").Create(ctx, u, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			return err
		}
		if requests, _, _ := unstructured.NestedMap(got.Object, "spec", "domain", "resources", "requests"); len(requests) < 2 {
			return errorf("%s is not: %v", name, requests)
		}
	}
	return nil
}

// driesRun has instances judged that are not to be stored, also when a preset changes
// them after gpuctl has seen them: nothing is taken.
func (m *market) driesRun() {
	t := m.t
	t.Helper()
	before := m.stored()
	for name, tc := range map[string]struct{ label, want string }{
		"nothing more": {"", ""},
		"more CPU":     {"cpu", ""},
		"a GPU more":   {"gpu", "GPU0511"},
	} {
		u := m.with(m.vmi("dry", `{"templates":[{"class":"h200","count":2}]}`), "domain: {memory: {guest: 64Mi}}")
		unstructured.RemoveNestedField(u.Object, "spec", "domain", "resources")
		labels := u.GetLabels()
		labels["of"] = tc.label
		u.SetLabels(labels)
		_, err := m.vms("virtualmachineinstances").Create(t.Context(), u, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("a dry run that gets %s: %v, want %q", name, err, tc.want)
		}
	}
	if diff := cmp.Diff(before, m.stored()); diff != "" {
		t.Errorf("dry runs leave something (-before +after):\n%s", diff)
	}
}

// liveUpdates has the affinity of a VM's template change while it runs: KubeVirt writes it
// into the instance, and neither GPUs nor launcher change.
func (m *market) liveUpdates() {
	t := m.t
	t.Helper()
	m.Create(m.vm("live", `{"templates":[{"class":"h200","count":2}]}`))
	node := m.runs("live", 2)
	devices, pod := m.ofVM("live"), m.LauncherPod(m.acme, "live")
	before, err := m.instance(t.Context(), "live")
	if err != nil {
		t.Fatal(err)
	}
	patch := `{"spec":{"template":{"spec":{"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"kubernetes.io/hostname","operator":"NotIn","values":["` + node + `"]}]}]}}}}}}}`
	if _, err := m.vms("virtualmachines").Patch(t.Context(), "live", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	m.Eventually(startsIn, "the instance has the affinity", func(ctx context.Context) error {
		after, err := m.instance(ctx, "live")
		if err != nil || after.Spec.Affinity == nil || after.Spec.Affinity.NodeAffinity == nil {
			return errorf("it has %+v: %w", after.Spec.Affinity, err)
		}
		if diff := cmp.Diff(before.Spec.Domain.Devices.GPUs, after.Spec.Domain.Devices.GPUs); diff != "" || before.UID != after.UID {
			t.Errorf("the gpus of instance %s (-before +after):\n%s", after.UID, diff)
		}
		return nil
	})
	if now := m.LauncherPod(m.acme, "live"); now.UID != pod.UID || !cmp.Equal(now.Spec.Affinity, pod.Spec.Affinity) {
		t.Errorf("another launcher: %s %+v", now.Name, now.Spec.Affinity)
	}
	if diff := cmp.Diff(devices, m.ofVM("live")); diff != "" {
		t.Errorf("its devices (-before +after):\n%s", diff)
	}
}
