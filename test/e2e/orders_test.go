package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
)

// Orders are met by the chart's own pods: two replicas, of which one leads, and is killed.
func TestOrders(t *testing.T) {
	m := newMarket(t)
	m.Eventually(repair, "the class says what there is", m.offers(v1alpha1.ClassUnits{Total: 24, Free: 24}, metav1.ConditionTrue, metav1.ConditionTrue))
	m.shows([]string{"classes"}, "h200", h200, "24", "24", "0", "0", "True")
	m.orders("train-a", 4)
	m.Eventually(placedIn, "train-a has its units", m.are(v1alpha1.DeviceHeld, "train-a"))
	m.shows([]string{"devices", "-n", m.acme}, "train-a", "h200", "4", "Held")
	m.Eventually(repair, "the class counts them", m.offers(v1alpha1.ClassUnits{Total: 24, Free: 20, Held: 4}, metav1.ConditionTrue, metav1.ConditionTrue))

	m.refuses()
	m.attempt(m.deedsOfOrders())
	m.keepsNames()
	m.rests()
	m.losesTheLeader()
	m.losesUnits()
	m.losesTheClass()
	m.losesTheName()
	m.losesAll()
	m.leaves()
}

// refuses has orders refused at once, in a dry run, too, and nothing of them left.
func (m *market) refuses() {
	t := m.t
	t.Helper()
	m.class("big", "{resourceName: "+h200+", maxCount: 64}")
	m.class("ours", "{resourceName: "+h200+", entitlement: ours}")
	m.class("unserved", "{resourceName: nvidia.com/NOBODY_HAS_IT}")
	small, below := m.tenant(), m.tenant()
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "gpus"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"requests." + h200: resource.MustParse("2")}}}
	_, err1 := m.Clientset().CoreV1().ResourceQuotas(small).Create(t.Context(), quota, metav1.CreateOptions{})
	_, err2 := m.Clientset().CoreV1().Namespaces().Patch(t.Context(), below, types.MergePatchType, []byte(`{"metadata":{"labels":{"gpuctl.dev/parent":"`+small+`"}}}`), metav1.PatchOptions{})
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	m.Eventually(placedIn, "the budget is known", func(ctx context.Context) error {
		if err := m.place(ctx, m.order(below, "refused", "h200", 3), true); !apierrors.IsForbidden(err) {
			return errorf("the answer is %w", err)
		}
		return nil
	})
	for name, tc := range map[string]struct {
		namespace, class string
		count            int
		want             string
	}{
		"an unknown class":         {m.acme, "nothing", 1, "GPU0620: there is no class nothing"},
		"more than an order has":   {m.acme, "h200", 9, "GPU0623: a device of class h200 may have 8 units at most, and 9 are asked for"},
		"more than a node has":     {m.acme, "big", 9, "GPU0703: no node is large enough for 9 of " + h200},
		"what nobody serves":       {m.acme, "unserved", 1, "GPU0702: no node has nvidia.com/NOBODY_HAS_IT"},
		"over the own budget":      {small, "h200", 3, "GPU0611: the budget of " + small + " does not allow 3 more of " + h200 + "; 2 left"},
		"over the parent's budget": {below, "h200", 3, "GPU0611: the budget of " + small + " does not allow 3 more of " + h200 + "; 2 left for " + below},
		"not entitled":             {m.acme, "ours", 1, "GPU0612: class ours needs the entitlement ours"},
	} {
		for _, dry := range []bool{true, false} {
			err := m.place(t.Context(), m.order(tc.namespace, "refused", tc.class, tc.count), dry)
			if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `denied the request: `+tc.want) {
				t.Errorf("%s, dry run %t: %v, want %s", name, dry, err, tc.want)
			}
		}
		if _, err := m.Dynamic().Resource(gpuDevices).Namespace(tc.namespace).Get(t.Context(), "refused", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("%s: a device is left: %v", name, err)
		}
	}
	if err := m.place(t.Context(), m.order(below, "fits", "h200", 2), true); err != nil {
		t.Errorf("what the parent's budget allows: %v", err)
	}
}

// keepsNames has an upgrade put the chart's names into the settings, and the controller
// its own back.
func (m *market) keepsNames() {
	t := m.t
	t.Helper()
	names := func(ctx context.Context) error {
		settings, err := m.Clientset().CoreV1().ConfigMaps(m.namespace).Get(ctx, v1alpha1.SettingsName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		got, err := v1alpha1.DecodeResourceNames(settings.Data)
		if err == nil && !slices.Contains(got, h200) {
			err = errorf("the names are %q", got)
		}
		return err
	}
	m.Eventually(repair, "the names that count are in the settings", names)
	if code, _, _ := m.gpuctl("upgrade"); code != 0 {
		t.Fatalf("upgrade: exit %d", code)
	}
	began := time.Now()
	m.Eventually(2*repair, "they are after an upgrade", names)
	t.Logf("the names are back after %s", time.Since(began).Round(time.Millisecond))
}

// rests has nothing happen, and nothing written.
func (m *market) rests() {
	t := m.t
	t.Helper()
	versions := func() map[string]string {
		devices, err1 := m.Dynamic().Resource(gpuDevices).List(t.Context(), metav1.ListOptions{})
		classes, err2 := m.Dynamic().Resource(gpuClasses).List(t.Context(), metav1.ListOptions{})
		settings, err3 := m.Clientset().CoreV1().ConfigMaps(m.namespace).List(t.Context(), metav1.ListOptions{})
		if err := errors.Join(err1, err2, err3); err != nil {
			t.Fatal(err)
		}
		out := map[string]string{}
		for _, u := range append(devices.Items, classes.Items...) {
			out[u.GetKind()+" "+u.GetName()] = u.GetResourceVersion()
		}
		for i := range settings.Items {
			out["ConfigMap "+settings.Items[i].Name] = settings.Items[i].ResourceVersion
		}
		return out
	}
	before := versions()
	time.Sleep(6 * time.Second)
	if diff := cmp.Diff(before, versions()); diff != "" {
		t.Errorf("written though nothing happens (-before +after):\n%s", diff)
	}
}

// losesTheLeader kills it while orders come. The next one places all of them, and the one
// for which there is nothing left when somebody else goes.
func (m *market) losesTheLeader() {
	t := m.t
	t.Helper()
	pod, before := m.leader()
	m.KillPod(pod, syscall.SIGKILL)
	killed := time.Now()
	var all sync.WaitGroup
	var names []string
	for i := range 20 {
		name := fmt.Sprintf("batch-%02d", i)
		names = append(names, name)
		all.Go(func() {
			for ctx := t.Context(); time.Since(killed) < placedIn; { // the killed one is asked, too, at first
				if _, err := m.edit.in(m.acme).Create(ctx, m.order(m.acme, name, "h200", 1), metav1.CreateOptions{}); err == nil || apierrors.IsAlreadyExists(err) {
					return
				}
			}
			t.Errorf("%s is not taken", name)
		})
	}
	all.Wait()
	t.Logf("20 orders are taken %s after the leader was killed", time.Since(killed).Round(time.Millisecond))
	time.Sleep(1100 * time.Millisecond) // creation is told in seconds, and goes by them
	m.orders("waits", 4)
	time.Sleep(1100 * time.Millisecond)
	m.orders("waits-on", 4)
	m.Eventually(handedOver-time.Since(killed), "the next leader has placed all", m.are(v1alpha1.DeviceHeld, names...))
	t.Logf("all are placed %s after the leader was killed", time.Since(killed).Round(time.Millisecond))
	if _, now := m.leader(); now == before {
		t.Errorf("%s leads before and after", now)
	}
	m.Eventually(placedIn, "nothing is left", m.are(v1alpha1.DevicePending, "waits", "waits-on"))
	m.Eventually(repair, "the class has none left", m.offers(v1alpha1.ClassUnits{Total: 24, Held: 24}, metav1.ConditionTrue, metav1.ConditionFalse))
	if err := m.place(t.Context(), m.order(m.acme, "late", "h200", 1), false); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "GPU0705") {
		t.Errorf("an order of what is not free: %v", err)
	}
	m.deletes("train-a")
	m.Eventually(placedIn, "who has waited longest gets what another one had", func(ctx context.Context) error {
		return errors.Join(m.are(v1alpha1.DeviceHeld, "waits")(ctx), m.are(v1alpha1.DevicePending, "waits-on")(ctx), m.gone("train-a")(ctx))
	})
}

// losesUnits has a node serve one GPU less: where there is no room one is lost until the
// GPU is back, else a reservation moves.
func (m *market) losesUnits() {
	m.t.Helper()
	m.SetAllocatable("worker-1", h200, 7)
	m.Eventually(placedIn, "units are lost", m.amount(v1alpha1.DeviceLost, some))
	if _, screen, _ := gpuctl(m.Cluster, "status"); !strings.Contains(screen, " in use   1 pending   1 lost: "+m.acme+"/") {
		m.t.Errorf("status does not say what is lost:\n%s", screen)
	}
	m.SetAllocatable("worker-1", h200, 8)
	m.Eventually(placedIn, "they are healed", m.amount(v1alpha1.DeviceLost, none))

	devices, err := m.devices(m.t.Context())
	if err != nil {
		m.t.Fatal(err)
	}
	for _, d := range devices {
		if p := d.Status.Placement; p != nil && p.Units == 1 && p.Node != "worker-1" {
			m.deletes(d.Name)
			m.Eventually(placedIn, "one unit is free", m.gone(d.Name))
			break
		}
	}
	m.SetAllocatable("worker-1", h200, 7)
	m.Eventually(placedIn, "a reservation moves", func(ctx context.Context) error {
		devices, err := m.devices(ctx)
		if err != nil {
			return err
		}
		there := int32(0)
		for _, d := range devices {
			if p := d.Status.Placement; p != nil && p.Node == "worker-1" {
				there += p.Units
			}
		}
		if there != 7 {
			return errorf("worker-1 serves 7 units, and gives %d", there)
		}
		return m.amount(v1alpha1.DeviceLost, none)(ctx)
	})
	m.SetAllocatable("worker-1", h200, 8)
}

// losesTheClass deletes it: who has units keeps them, and nobody gets new ones.
func (m *market) losesTheClass() {
	t := m.t
	t.Helper()
	before, err := m.devices(t.Context())
	if err = errors.Join(err, m.Dynamic().Resource(gpuClasses).Delete(t.Context(), "h200", metav1.DeleteOptions{})); err != nil {
		t.Fatal(err)
	}
	m.Eventually(placedIn, "orders are refused", func(ctx context.Context) error {
		if err := m.place(ctx, m.order(m.acme, "none", "h200", 1), true); err == nil || !strings.Contains(err.Error(), "GPU0620") {
			return errorf("the answer is %v", err)
		}
		return nil
	})
	m.Always(2*time.Second, "devices keep what they have", func(ctx context.Context) error {
		after, err := m.devices(ctx)
		for name, d := range before {
			if was, is := d.Status.Placement, after[name].Status.Placement; err == nil && !cmp.Equal(was, is) {
				return errorf("%s had %+v, has %+v", name, was, is)
			}
		}
		return err
	})
	m.class("h200", "{resourceName: "+h200+", maxCount: 8}")
	m.Eventually(repair, "the class is there again", m.offers(v1alpha1.ClassUnits{Total: 24, Free: 1, Held: 23}, metav1.ConditionTrue, metav1.ConditionTrue))
}

// losesTheName has the device plugin of a node rename its resource: devices there have
// lost their units under the old name, which is theirs.
func (m *market) losesTheName() {
	t := m.t
	t.Helper()
	const renamed = "nvidia.com/2335"
	m.SetAllocatable("worker-3", h200, 0)
	m.SetAllocatable("worker-3", renamed, 8)
	m.Eventually(placedIn, "what was there is lost", func(ctx context.Context) error {
		devices, err := m.devices(ctx)
		for name, d := range devices {
			if p := d.Status.Placement; p != nil && p.Node == "worker-3" && (p.LostSince == nil || p.ResourceName != h200) {
				return errorf("%s has %+v", name, p)
			}
		}
		return err
	})
	m.SetAllocatable("worker-3", renamed, 0)
	m.SetAllocatable("worker-3", h200, 8)
	m.Eventually(placedIn, "the name is back", m.amount(v1alpha1.DeviceLost, none))
}

// losesAll has no replica left: nothing new is ordered, who holds units keeps them, who
// holds none can go, and nobody else is affected. Then all goes on.
func (m *market) losesAll() {
	t := m.t
	t.Helper()
	m.scale(0)
	if err := m.place(t.Context(), m.order(m.acme, "during", "h200", 1), false); err == nil || !strings.Contains(err.Error(), `failed calling webhook "gpudevices.gpuctl.dev"`) {
		t.Errorf("a new order is answered with %v", err)
	}
	m.deletes("waits-on")
	m.Eventually(placedIn, "what holds nothing is gone", m.gone("waits-on"))
	m.deletes("waits")
	m.Always(time.Second, "what holds units waits", m.are(v1alpha1.DeviceHeld, "waits"))
	vm := m.Create(machine(m.Cluster, m.acme, "goes-on", entries("gpus", h200, 1)))
	t.Cleanup(func() { deleteAnyway(t, m.Cluster, vm) })
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "goes-on"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "x"}}}}
	if _, err := m.Clientset().CoreV1().Pods(m.acme).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
	deleteAnyway(t, m.Cluster, vm)
	m.scale(2)
	m.Eventually(handedOver, "what was deleted is gone", m.gone("waits"))
	m.orders("after", 2)
	m.Eventually(placedIn, "an order is met", m.are(v1alpha1.DeviceHeld, "after"))
}

// uses has a VMI use a device.
func (m *market) uses(name string) (vmi *unstructured.Unstructured) {
	m.t.Helper()
	vmi = m.Create(m.Decode("{apiVersion: kubevirt.io/v1, kind: VirtualMachineInstance, metadata: {name: vm, namespace: " + m.acme + "}, spec: {domain: {devices: {}, resources: {requests: {memory: 64Mi}}}}}"))
	patch := fmt.Sprintf(`{"status":{"state":"Attached","attachment":{"vmiName":"vm","vmiUID":%q,"requestID":"0123456789abcdef0123456789abcdef","since":%q}}}`, vmi.GetUID(), placedAt)
	if _, err := m.Dynamic().Resource(gpuDevices).Namespace(m.acme).Patch(m.t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status"); err != nil {
		m.t.Fatal(err)
	}
	return vmi
}

// leaves uninstalls the release, which is refused while a VM uses a device: devices stay
// as they are, and nothing hangs.
func (m *market) leaves() {
	t := m.t
	t.Helper()
	vmi := m.uses("after")
	if code, _, stderr := m.gpuctl("uninstall"); code != 1 || !strings.Contains(stderr, "VMs use the GPUDevices "+m.acme+"/after: stop them first, or uninstall with --force") {
		t.Errorf("uninstall while a VM uses a device: exit %d\n%s", code, stderr)
	}
	deleteAnyway(t, m.Cluster, vmi)
	m.Eventually(handedOver, "after is held, and not used", m.are(v1alpha1.DeviceHeld, "after"))
	before, err := m.devices(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := m.gpuctl("uninstall"); code != 0 || !strings.Contains(stderr, fmt.Sprintf("of which there are %d, stay", len(before))) {
		t.Errorf("uninstall: exit %d\n%s", code, stderr)
	}
	after, err := m.devices(t.Context())
	if err != nil || len(after) != len(before) || len(after) < 20 {
		t.Fatalf("%d devices of %d: %v", len(after), len(before), err)
	}
	for name := range maps.Keys(after) {
		if !cmp.Equal(before[name].Status.Placement, after[name].Status.Placement) || len(after[name].Finalizers) > 0 {
			t.Errorf("%s had %+v, has %+v and finalizers %v", name, before[name].Status.Placement, after[name].Status.Placement, after[name].Finalizers)
		}
	}
	// The tenants' roles are gone with the release.
	if err := m.Dynamic().Resource(gpuDevices).Namespace(m.acme).Delete(t.Context(), "after", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	m.Eventually(placedIn, "who is deleted is gone", m.gone("after"))
}
