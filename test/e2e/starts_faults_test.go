package e2e

import (
	"context"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
)

// forges has a tenant try to get the devices of a VM that runs, and to take them from it.
func (m *market) forges() {
	t := m.t
	t.Helper()
	m.empties()
	m.orders("d", 1)
	m.Create(m.vm("victim", `{"devices":["d"],"templates":[{"class":"h200"}]}`))
	m.runs("victim", 2)
	v, err := m.instance(t.Context(), "victim")
	if err != nil {
		t.Fatal(err)
	}
	before := m.stored()
	m.forgesPods(v)

	vmis := m.edit.objects.Resource(kubevirt.GroupVersion.WithResource("virtualmachineinstances")).Namespace(m.acme)
	for name, patch := range map[string]string{
		"without the label":      `{"metadata":{"labels":{"gpuctl.dev/device-reference":null}}}`,
		"without the annotation": `{"metadata":{"annotations":{"gpuctl.dev/devices":null}}}`,
		"with another id":        `{"metadata":{"annotations":{"gpuctl.dev/request-id":"00000000000000000000000000000000"}}}`,
	} {
		if _, err := vmis.Patch(t.Context(), "victim", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err == nil || !strings.Contains(err.Error(), "of an instance stay as they are") {
			t.Errorf("an instance %s: %v", name, err)
		}
	}

	u, err := vmis.Get(t.Context(), "victim", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	u.SetResourceVersion("")
	u.SetUID("")
	unstructured.RemoveNestedField(u.Object, "status")
	for name, change := range map[string]func(){
		"as it is":         func() {},
		"without its gpus": func() { unstructured.RemoveNestedField(u.Object, "spec", "domain", "devices", "gpus") },
		"without its VM":   func() { u.SetOwnerReferences(nil) },
	} {
		change()
		if _, err := m.vms("virtualmachineinstances").Create(t.Context(), u.DeepCopy(), metav1.CreateOptions{}); err == nil || !strings.Contains(err.Error(), "GPU06") {
			t.Errorf("the instance again, %s: %v", name, err)
		}
	}
	if diff := cmp.Diff(before, m.stored()); diff != "" {
		t.Errorf("what was tried left something (-before +after):\n%s", diff)
	}
	m.migrates()
}

// forgesPods has the tenant make pods that look like a launcher of an instance.
func (m *market) forgesPods(v *kubevirt.VirtualMachineInstance) {
	t := m.t
	t.Helper()
	yes := true
	owned := []metav1.OwnerReference{{APIVersion: "kubevirt.io/v1", Kind: "VirtualMachineInstance", Name: v.Name, UID: v.UID, Controller: &yes}}
	launcher := map[string]string{"kubevirt.io": "virt-launcher", "kubevirt.io/created-by": string(v.UID), "vm.kubevirt.io/name": v.Name}
	all := map[string]string{v1alpha1.LabelDeviceReference: v1alpha1.ValueTrue}
	maps.Copy(all, launcher)
	pods := m.edit.objects.Resource(corev1.SchemeGroupVersion.WithResource("pods")).Namespace(m.acme)
	for name, tc := range map[string]struct {
		labels map[string]string
		owners []metav1.OwnerReference
		want   string // "" for one that is taken
	}{
		"all":          {all, owned, "GPU0646"},
		"no-owner":     {all, nil, "GPU0646"},
		"no-reference": {launcher, owned, "are made by KubeVirt only"},
		"no-label":     {nil, owned, "are made by KubeVirt only"},
		"labels-only":  {launcher, nil, ""},
	} {
		pod := &corev1.Pod{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
			ObjectMeta: metav1.ObjectMeta{Name: "forged-" + name, Labels: tc.labels, OwnerReferences: tc.owners},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "compute", Image: "x"}}},
		}
		object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pod)
		if err != nil {
			t.Fatal(err)
		}
		got, err := pods.Create(t.Context(), &unstructured.Unstructured{Object: object}, metav1.CreateOptions{})
		if tc.want != "" {
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("a forged launcher, %s: %v, want %s", name, err, tc.want)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, has, _ := unstructured.NestedMap(got.Object, "spec", "affinity"); has {
			t.Errorf("a forged launcher, %s, is pinned: %v", name, got.Object)
		}
		if now, err := m.instance(t.Context(), v.Name); err != nil || now.Status.ActivePods[got.GetUID()] != "" {
			t.Errorf("a forged launcher, %s, is the instance's: %v, %v", name, now, err)
		}
		if err := pods.Delete(t.Context(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
			t.Error(err)
		}
	}
}

// migrates has the victim's migration refused, and nothing change.
func (m *market) migrates() {
	m.t.Helper()
	before := m.ofVM("victim")
	migration := m.Create(m.Decode("{apiVersion: kubevirt.io/v1, kind: VirtualMachineInstanceMigration, metadata: {name: away, namespace: " + m.acme + "}, spec: {vmiName: victim}}"))
	m.Eventually(startsIn, "an Event says why it does not migrate", func(ctx context.Context) error {
		events, err := m.Clientset().CoreV1().Events(m.acme).List(ctx, metav1.ListOptions{FieldSelector: "reason=FailedCreate,involvedObject.name=victim"})
		if err == nil && !slices.ContainsFunc(events.Items, func(e corev1.Event) bool { return strings.Contains(e.Message, "GPU0647: ") }) {
			err = errorf("there are %d: %v", len(events.Items), events.Items)
		}
		return err
	})
	deleteAnyway(m.t, m.Cluster, migration)
	if diff := cmp.Diff(before, m.ofVM("victim")); diff != "" {
		m.t.Errorf("the devices of a VM that cannot migrate (-before +after):\n%s", diff)
	}
}

// dies has launchers end in many ways: the VM's next instance has the same devices.
func (m *market) dies() {
	t := m.t
	t.Helper()
	set := `{"devices":["d2"],"templates":[{"class":"h200","count":2}]}`
	m.orders("d2", 1)
	m.Create(m.vm("unlucky", set))
	m.Eventually(startsIn, "it has its devices", func(context.Context) error {
		if got := m.ofVM("unlucky"); len(got) != 2 {
			return errorf("it has %v", got)
		}
		return nil
	})
	before, first := m.ofVM("unlucky"), m.LauncherPod(m.acme, "unlucky")
	m.rejected(first)

	had := m.ofVM("victim")
	m.replaced("victim", func() {
		zero := int64(0)
		if err := m.Clientset().CoreV1().Pods(m.acme).Delete(t.Context(), m.LauncherPod(m.acme, "victim").Name, metav1.DeleteOptions{GracePeriodSeconds: &zero}); err != nil {
			t.Fatal(err)
		}
	})
	m.runs("victim", 2)
	if diff := cmp.Diff(had, m.ofVM("victim")); diff != "" {
		t.Errorf("devices after the launcher was deleted by force (-before +after):\n%s", diff)
	}

	m.Eventually(soon, "it has another instance", func(ctx context.Context) error {
		v, err := m.instance(ctx, "unlucky")
		if err == nil && metav1.IsControlledBy(first, v) {
			err = errorf("it is %s", v.Status.Phase)
		}
		return err
	})
	if node := m.runs("unlucky", 3); node != first.Spec.NodeName {
		t.Errorf("it was on %s, and is on %s", first.Spec.NodeName, node)
	}
	if diff := cmp.Diff(before, m.ofVM("unlucky")); diff != "" {
		t.Errorf("devices after kubelet has refused a launcher (-before +after):\n%s", diff)
	}
	m.vanishes()
}

// rejected has a launcher's kubelet find that its GPUs are not there.
func (m *market) rejected(launcher *corev1.Pod) {
	m.t.Helper()
	status := `{"status":{"phase":"Failed","reason":"UnexpectedAdmissionError","message":"Allocate failed due to requested number of devices unavailable"}}`
	if _, err := m.Clientset().CoreV1().Pods(m.acme).Patch(m.t.Context(), launcher.Name, types.MergePatchType, []byte(status), metav1.PatchOptions{}, "status"); err != nil {
		m.t.Fatal(err)
	}
}

// vanishes has VMs deleted while they start.
func (m *market) vanishes() {
	t := m.t
	t.Helper()
	before := m.settled()
	m.orders("d3", 1)
	m.Eventually(placedIn, "d3 is held", m.are(v1alpha1.DeviceHeld, "d3"))
	vm := m.vm("vanishing", `{"devices":["d3"],"templates":[{"class":"h200"}]}`)
	for range 5 {
		m.Create(vm)
		deleteAnyway(t, m.Cluster, vm)
		m.Eventually(startsIn, "the VM is gone", func(ctx context.Context) error {
			if _, err := m.vms("virtualmachines").Get(ctx, "vanishing", metav1.GetOptions{}); err == nil {
				return errorf("it is there")
			}
			return nil
		})
	}
	m.Eventually(startsIn, "the device is held", m.are(v1alpha1.DeviceHeld, "d3"))
	m.deletes("d3")
	m.Eventually(startsIn, "nothing is left", func(ctx context.Context) error {
		after, err := m.holdings(ctx)
		if diff := cmp.Diff(before, after); diff != "" {
			return errorf("-before +after:\n%s", diff)
		}
		return err
	})
}

// follows has a device follow its VM's volume, where there is room.
func (m *market) follows() {
	t := m.t
	t.Helper()
	m.empties()
	n := &near{Cluster: m.Cluster, t: t, ns: m.acme, live: liveClient(t, m.Cluster)}
	n.volume("disk", "worker-1")
	m.SetAllocatable("worker-1", h200, 0)
	m.orders("far", 2)
	m.orders("far-too", 1)
	m.Eventually(placedIn, "they are held elsewhere", m.are(v1alpha1.DeviceHeld, "far", "far-too"))
	m.SetAllocatable("worker-1", h200, 8)
	disk := "domain: {devices: {disks: [{name: d, disk: {}}]}}, volumes: [{name: d, persistentVolumeClaim: {claimName: disk}}]"
	m.Create(m.with(m.vm("rooted", `{"devices":["far"]}`), disk))
	if node := m.runs("rooted", 2); node != "worker-1" {
		t.Errorf("the VM runs on %s, its volume is on worker-1", node)
	}
	m.Create(m.with(m.vm("neighbour", `{"templates":[{"class":"h200","count":6}]}`), "nodeSelector: {kubernetes.io/hostname: worker-1}"))
	m.runs("neighbour", 6)
	devices, err := m.devices(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	other := devices[m.acme+"/far-too"].Status.Placement.Node
	m.refused(m.settled(), m.with(m.vm("uprooted", `{"devices":["far-too"]}`), disk), "GPU070")
	pod, _ := m.leader()
	log, err := m.Clientset().CoreV1().Pods(m.namespace).GetLogs(pod.Name, &corev1.PodLogOptions{}).Stream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	text, err := io.ReadAll(log)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, "a start is refused") && strings.Contains(line, "uprooted") && strings.Contains(line, "worker-1 would do") && strings.Contains(line, "it has units on "+other) {
			return
		}
	}
	t.Errorf("the leader does not say why the device on %s cannot be used on worker-1:\n%s", other, text)
}
