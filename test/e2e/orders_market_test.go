package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
)

const (
	// placedIn is within which time an order that fits has its units.
	placedIn = 3 * time.Second
	// handedOver is within which time the next leader has done what is to be done: the
	// Lease of 4 s, two tries of 1 s, and a little.
	handedOver = 10 * time.Second
)

// market is a release that gives orders their units on three nodes of 8 H200s each.
type market struct {
	*stage
	acme  string  // a tenant without a budget
	edit  orderer // who may edit there
	nodes []string
}

func newMarket(t *testing.T) *market {
	t.Helper()
	return newMarketOf(t, 24)
}

// devices returns all devices by "namespace/name".
func (s *stage) devices(ctx context.Context) (map[string]*v1alpha1.GPUDevice, error) {
	list, err := s.Dynamic().Resource(gpuDevices).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	out := map[string]*v1alpha1.GPUDevice{}
	for i := range list.Items {
		d := &v1alpha1.GPUDevice{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, d); err != nil {
			return nil, err
		}
		out[d.Namespace+"/"+d.Name] = d
	}
	return out, nil
}

// fair reports nodes that give more units than they serve.
func (m *market) fair(devices map[string]*v1alpha1.GPUDevice, served int32) error {
	given := map[string]int32{}
	for _, d := range devices {
		if d.Status.HoldsUnits() {
			given[d.Status.Placement.Node] += d.Status.Placement.Units
		}
	}
	for node, units := range given {
		if units > served {
			return errorf("%s gives %d of %d units", node, units, served)
		}
	}
	return nil
}

// are returns a check of the states of devices of acme, and that no unit is given twice.
func (m *market) are(want v1alpha1.DeviceState, names ...string) func(context.Context) error {
	return func(ctx context.Context) error {
		devices, err := m.devices(ctx)
		if err != nil {
			return err
		}
		for _, name := range names {
			d := devices[m.acme+"/"+name]
			if d == nil || d.Status.State != want {
				return errorf("%s is %+v, want %s", name, d, want)
			}
		}
		return m.fair(devices, 8)
	}
}

// amount returns a check of how many devices are in a state.
func (m *market) amount(state v1alpha1.DeviceState, want func(int) bool) func(context.Context) error {
	return func(ctx context.Context) error {
		devices, err := m.devices(ctx)
		if err != nil {
			return err
		}
		counted := map[v1alpha1.DeviceState]int{}
		for _, d := range devices {
			counted[d.Status.State]++
		}
		if !want(counted[state]) {
			return errorf("states %v", counted)
		}
		return m.fair(devices, 8)
	}
}

func none(n int) bool { return n == 0 }
func some(n int) bool { return n > 0 }

// gone returns a check that a device is there no more.
func (m *market) gone(name string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := m.Dynamic().Resource(gpuDevices).Namespace(m.acme).Get(ctx, name, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return errorf("it is there: %w", err)
		}
		return nil
	}
}

// orders makes an order as the tenant.
func (m *market) orders(name string, count int) {
	m.t.Helper()
	if _, err := m.edit.in(m.acme).Create(m.t.Context(), m.order(m.acme, name, "h200", count), metav1.CreateOptions{}); err != nil {
		m.t.Fatal(err)
	}
}

// deletes deletes an order as the tenant.
func (m *market) deletes(name string) {
	m.t.Helper()
	if err := m.edit.in(m.acme).Delete(m.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		m.t.Fatal(err)
	}
}

// offers returns a check of the status of class h200: its units, and what is true of it.
func (m *market) offers(want v1alpha1.ClassUnits, permitted, available metav1.ConditionStatus) func(context.Context) error {
	return func(ctx context.Context) error {
		u, err := m.Dynamic().Resource(gpuClasses).Get(ctx, "h200", metav1.GetOptions{})
		if err != nil {
			return err
		}
		var c v1alpha1.GPUClass
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &c); err != nil {
			return err
		}
		if diff := cmp.Diff(&want, c.Status.Units); diff != "" {
			return errorf("units (-want +got):\n%s", diff)
		}
		for condition, status := range map[string]metav1.ConditionStatus{v1alpha1.ConditionPermitted: permitted, v1alpha1.ConditionAvailable: available} {
			if !apimeta.IsStatusConditionPresentAndEqual(c.Status.Conditions, condition, status) {
				return errorf("%s is not %s: %+v", condition, status, c.Status.Conditions)
			}
		}
		return nil
	}
}

// shows has gpuctl print a line that has these words.
func (m *market) shows(args []string, words ...string) {
	m.t.Helper()
	out, _ := succeed(m.t, m.Cluster, args...)
	for line := range strings.Lines(out) {
		if got := strings.Fields(line); len(got) > len(words) && slices.Equal(got[:len(words)], words) {
			return
		}
	}
	m.t.Errorf("gpuctl %s does not show %q:\n%s", strings.Join(args, " "), words, out)
}

// scale sets how many replicas there are, and waits until the amount is ready.
func (m *market) scale(replicas int) {
	m.t.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
	if _, err := m.Clientset().AppsV1().Deployments(m.namespace).Patch(m.t.Context(), m.release+"-controller", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		m.t.Fatal(err)
	}
	m.Eventually(soon, fmt.Sprintf("%d replicas are ready", replicas), func(ctx context.Context) error {
		list, err := m.Clientset().CoreV1().Pods(m.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=controller"})
		ready, err2 := m.ready(ctx)
		if err := errors.Join(err, err2); err != nil || len(ready) != replicas || len(list.Items) != replicas {
			return errorf("%d of %d are: %w", len(ready), len(list.Items), err)
		}
		return nil
	})
}
