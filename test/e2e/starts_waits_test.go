package e2e

import (
	"context"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
)

const full = "GPU0705: no node has "

// waits has a VM wait for the units of another one, which comes first when it starts
// again with what it has, and later when it had them for one run only. All units are given.
func (m *market) waits() {
	t := m.t
	t.Helper()
	waits := m.Create(m.vm("waits", `{"templates":[{"class":"h200","count":5}]}`))
	m.Eventually(startsIn, "it waits", m.complains(waits, full))

	// A VM that is to run keeps what was made for it.
	before := m.ofVM("x1")
	m.replaced("x1", func() {
		if err := m.vms("virtualmachineinstances").Delete(t.Context(), "x1", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	})
	m.runs("x1", 5)
	if diff := cmp.Diff(before, m.ofVM("x1")); diff != "" {
		t.Errorf("the devices of a VM that was restarted (-before +after):\n%s", diff)
	}

	// One that stops gives it away.
	m.strategy("x1", "Halted")
	m.runs("waits", 5)
	m.strategy("x1", "Always")
	m.Eventually(startsIn, "the other one waits now", m.complains(m.vm("x1", `{}`), full))
	m.strategy("waits", "Halted")
	m.runs("x1", 5)
	m.strategy("waits", "Always")
	m.Eventually(startsIn, "it waits again", m.complains(waits, full))

	// What was ordered is kept.
	m.Create(m.vm("owner", `{"devices":["p"]}`))
	m.runs("owner", 3)
	smaller := m.Create(m.vm("smaller", `{"templates":[{"class":"h200","count":3}]}`))
	m.Eventually(startsIn, "another one waits", m.complains(smaller, full))
	m.strategy("owner", "Halted")
	m.Eventually(startsIn, "the device is held", m.are(v1alpha1.DeviceHeld, "p"))
	m.Always(2*time.Second, "it is not given away", m.are(v1alpha1.DeviceHeld, "p"))
	m.strategy("owner", "Always")
	m.runs("owner", 3)
	for _, vm := range []*unstructured.Unstructured{waits, smaller} {
		if _, err := m.instance(t.Context(), vm.GetName()); !apierrors.IsNotFound(err) {
			t.Errorf("VM %s has an instance: %v", vm.GetName(), err)
		}
		deleteAnyway(t, m.Cluster, vm)
	}
}

// ofVM returns the devices that a VM's instance has, and where they are.
func (m *market) ofVM(vm string) map[string]string {
	m.t.Helper()
	devices, err := m.devices(m.t.Context())
	if err != nil {
		m.t.Fatal(err)
	}
	out := map[string]string{}
	for name, d := range devices {
		if a := d.Status.Attachment; a != nil && a.VMIName == vm && d.Status.Placement != nil {
			out[name] = d.Status.Placement.Node
		}
	}
	return out
}

// replaced does something to the instance of a VM, and waits until it has another one.
func (m *market) replaced(vm string, do func()) {
	t := m.t
	t.Helper()
	before, err := m.instance(t.Context(), vm)
	if err != nil {
		t.Fatal(err)
	}
	do()
	m.Eventually(soon, "VM "+vm+" has another instance", func(ctx context.Context) error {
		after, err := m.instance(ctx, vm)
		if err == nil && after.UID == before.UID {
			return errorf("it is %s, and %s", after.Status.Phase, m.failure(ctx, vm))
		}
		return err
	})
}

// outlives has nobody answer, and then nobody lead: VMs with devices wait, all others
// start, and who waits starts when that is over.
func (m *market) outlives() {
	t := m.t
	t.Helper()
	m.scale(0)
	waits := m.Create(m.vm("during", `{"devices":["q"]}`))
	m.Eventually(startsIn, "it waits", m.complains(waits, `failed calling webhook "virtualmachineinstances.gpuctl.dev"`))
	plain := machine(m.Cluster, m.acme, "plain", "gpus: []")
	m.Create(plain)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "plain"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "x"}}}}
	if _, err := m.Clientset().CoreV1().Pods(m.acme).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
	m.Eventually(startsIn, "the other VM has an instance", func(ctx context.Context) error {
		_, err := m.instance(ctx, "plain")
		return err
	})
	m.RunVMI(m.acme, "plain")
	deleteAnyway(t, m.Cluster, plain)

	leads := m.deposes()
	m.scale(2)
	before := m.stored()
	for range 4 { // of each replica
		began := time.Now()
		_, err := m.vms("virtualmachineinstances").Create(t.Context(), m.vmi("at-once", `{"devices":["r"],"templates":[{"class":"h200"}]}`), metav1.CreateOptions{})
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "denied the request: GPU0710: GPUs cannot be placed at the moment; try again in a minute") {
			t.Errorf("without a leader: %v", err)
		}
		t.Logf("without a leader a start is refused after %s", time.Since(began).Round(time.Millisecond))
	}
	if diff := cmp.Diff(before, m.stored()); diff != "" {
		t.Errorf("without a leader something is written (-before +after):\n%s", diff)
	}
	leads()
	m.runs("during", 3)
}

// deposes has somebody hold the Lease who is not there, until the function is called
// that it returns.
func (m *market) deposes() (leads func()) {
	t := m.t
	t.Helper()
	leases := m.Clientset().CoordinationV1().Leases(m.namespace)
	patch := `{"spec":{"holderIdentity":"somebody","leaseDurationSeconds":36000,"renewTime":"2020-01-01T00:00:00.000000Z"}}`
	if _, err := leases.Patch(t.Context(), v1alpha1.ControllerLease, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := leases.Delete(t.Context(), v1alpha1.ControllerLease, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}
}
