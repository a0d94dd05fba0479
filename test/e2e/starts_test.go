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
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
)

// startsIn is within which time a VM that can start has its launcher on a node.
const startsIn = 15 * time.Second

// VMs that reference devices start with all of them on one node, or are refused.
func TestStarts(t *testing.T) {
	m := newMarket(t)
	t.Cleanup(m.stopsAll)
	m.orders("a", 1)
	m.orders("b", 1)
	m.Eventually(placedIn, "the orders have their units", m.are(v1alpha1.DeviceHeld, "a", "b"))

	m.startsAndStops()
	m.refusesStarts()
	m.empties()
	for _, story := range []struct {
		name string
		tell func()
	}{
		{"refuses VMs", m.refusesVMs},
		{"fills", m.fills},
		{"refuses where all is full", m.refusesFull},
		{"waits", m.waits},
		{"outlives", m.outlives},
		{"sets", m.sets},
		{"live updates", m.liveUpdates},
		{"flavoured", m.flavoured},
		{"follows", m.follows},
		{"forges", m.forges},
		{"dies", m.dies},
	} {
		began := time.Now()
		story.tell()
		t.Logf("%s: %s", story.name, time.Since(began).Round(time.Millisecond))
	}
}

// stopsAll ends all VMs, and waits until nobody has devices: else gpuctl would not let
// itself be uninstalled.
func (m *market) stopsAll() {
	for _, resource := range []string{"virtualmachineinstancereplicasets", "virtualmachines", "virtualmachineinstances"} {
		err := m.Dynamic().Resource(kubevirt.GroupVersion.WithResource(resource)).Namespace(m.acme).DeleteCollection(context.Background(), metav1.DeleteOptions{}, metav1.ListOptions{})
		if err != nil {
			m.t.Error(err)
		}
	}
	m.Eventually(startsIn, "nobody has devices", func(ctx context.Context) error {
		devices, err := m.devices(ctx)
		for _, d := range devices {
			if d.Status.Attachment != nil || d.Status.Origin != nil && d.Status.Origin.Kind == v1alpha1.OriginTemplate {
				return errorf("%s is %+v", d.Name, d.Status)
			}
		}
		return err
	})
}

// references is the annotation's value.
func references(text string, args ...any) string { return fmt.Sprintf(text, args...) }

// vmi makes a VMI that references devices, as YAML.
func (m *market) vmi(name, refs string) *unstructured.Unstructured {
	u := m.Decode("{apiVersion: kubevirt.io/v1, kind: VirtualMachineInstance, metadata: {namespace: " + m.acme + ", name: " + name + `}, spec: {
		terminationGracePeriodSeconds: 0, tolerations: [{key: nvidia.com/gpu, operator: Exists}], domain: {devices: {}, resources: {requests: {memory: 64Mi}}}}}`)
	u.SetLabels(map[string]string{v1alpha1.LabelDeviceReference: v1alpha1.ValueTrue})
	u.SetAnnotations(map[string]string{v1alpha1.AnnotationDevices: refs})
	return u
}

// vm makes a VM of such VMIs, that is set to run.
func (m *market) vm(name, refs string) *unstructured.Unstructured {
	inner := m.vmi(name, refs)
	template := map[string]any{
		"metadata": map[string]any{
			"labels":      map[string]any{v1alpha1.LabelDeviceReference: v1alpha1.ValueTrue},
			"annotations": map[string]any{v1alpha1.AnnotationDevices: refs},
		},
		"spec": inner.Object["spec"],
	}
	u := m.Decode("{apiVersion: kubevirt.io/v1, kind: VirtualMachine, metadata: {namespace: " + m.acme + ", name: " + name + "}, spec: {runStrategy: Always}}")
	u.Object["spec"].(map[string]any)["template"] = template
	return u
}

func (m *market) vms(resource string) interface {
	Get(context.Context, string, metav1.GetOptions, ...string) (*unstructured.Unstructured, error)
	Create(context.Context, *unstructured.Unstructured, metav1.CreateOptions, ...string) (*unstructured.Unstructured, error)
	Patch(context.Context, string, types.PatchType, []byte, metav1.PatchOptions, ...string) (*unstructured.Unstructured, error)
	Delete(context.Context, string, metav1.DeleteOptions, ...string) error
} {
	return m.Dynamic().Resource(kubevirt.GroupVersion.WithResource(resource)).Namespace(m.acme)
}

// instance reads a VMI.
func (m *market) instance(ctx context.Context, name string) (*kubevirt.VirtualMachineInstance, error) {
	u, err := m.vms("virtualmachineinstances").Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	v := &kubevirt.VirtualMachineInstance{}
	return v, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, v)
}

// strategy says whether a VM is to run.
func (m *market) strategy(vm, strategy string) {
	m.t.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"runStrategy":%q}}`, strategy)
	if _, err := m.vms("virtualmachines").Patch(m.t.Context(), vm, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		m.t.Fatal(err)
	}
}

// startsAndStops has a VM start with two held devices and a template's, stop and start
// again.
func (m *market) startsAndStops() {
	t := m.t
	t.Helper()
	vm := m.vm("trainer", references(`{"devices":["a","b"],"templates":[{"class":"h200","count":4}]}`))
	affinity := m.Decode(`{apiVersion: v1, kind: x, nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [
		{matchExpressions: [{key: kubernetes.io/os, operator: In, values: [linux]}]}, {matchExpressions: [{key: kubernetes.io/hostname, operator: Exists}]}]}}}`)
	if err := unstructured.SetNestedField(vm.Object, affinity.Object["nodeAffinity"], "spec", "template", "spec", "affinity", "nodeAffinity"); err != nil {
		t.Fatal(err)
	}
	m.Create(vm)
	node := m.runs("trainer", 6)
	made := m.attached("trainer", node, 3)
	m.strategy("trainer", "Halted")
	m.Eventually(startsIn, "the device of the template is gone, the others are held", func(ctx context.Context) error {
		return errors.Join(m.gone(made[0])(ctx), m.are(v1alpha1.DeviceHeld, "a", "b")(ctx))
	})
	m.strategy("trainer", "Always")
	m.attached("trainer", m.runs("trainer", 6), 3)
	if err := m.vms("virtualmachines").Delete(t.Context(), "trainer", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	m.Eventually(startsIn, "only what was ordered is left", func(ctx context.Context) error {
		devices, err := m.devices(ctx)
		if err == nil && len(devices) != 2 {
			err = errorf("there are %d devices", len(devices))
		}
		return errors.Join(err, m.are(v1alpha1.DeviceHeld, "a", "b")(ctx))
	})
}

// runs waits until a VM runs, and looks at what its VMI and its launcher ask for. It
// returns the node.
func (m *market) runs(name string, units int) (node string) {
	t := m.t
	t.Helper()
	m.Eventually(startsIn, "there is a VMI "+name, func(ctx context.Context) error {
		_, err := m.instance(ctx, name)
		if err == nil {
			return nil
		}
		return errorf("%w: %s", err, m.failure(ctx, name))
	})
	node = m.RunVMI(m.acme, name)
	v, err := m.instance(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	if got := len(v.Spec.Domain.Devices.GPUs); got != units {
		t.Errorf("VMI %s has %d gpus, want %d", name, got, units)
	}
	pod := m.LauncherPod(m.acme, name)
	i := slices.IndexFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == "compute" })
	if got := pod.Spec.Containers[i].Resources.Requests[h200]; got.Value() != int64(units) {
		t.Errorf("the launcher of %s requests %s, want %d", name, got.String(), units)
	}
	want := []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: "In", Values: []string{node}}}
	for _, term := range pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		if diff := cmp.Diff(want, term.MatchFields); diff != "" {
			t.Errorf("a term of the launcher's affinity (-want +got):\n%s", diff)
		}
	}
	return node
}

// failure is what a VM says of why it does not start.
func (m *market) failure(ctx context.Context, name string) string {
	u, err := m.vms("virtualmachines").Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err.Error()
	}
	return failureOf(u)
}

func failureOf(vm *unstructured.Unstructured) string {
	conditions, _, _ := unstructured.NestedSlice(vm.Object, "status", "conditions")
	for _, c := range conditions {
		if c := c.(map[string]any); c["type"] == "Failure" {
			return fmt.Sprint(c["message"])
		}
	}
	return ""
}

// attached looks at the devices of a VM that runs, and returns the names of those that
// were made for it.
func (m *market) attached(vm, node string, amount int) (made []string) {
	t := m.t
	t.Helper()
	devices, err := m.devices(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	v, err := m.instance(t.Context(), vm)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range devices {
		if a := d.Status.Attachment; a == nil || a.VMIUID != v.UID {
			continue
		}
		amount--
		if d.Status.State != v1alpha1.DeviceAttached || d.Status.Placement.Node != node {
			t.Errorf("%s is %+v, want it attached on %s", d.Name, d.Status, node)
		}
		if d.Status.Origin.Kind == v1alpha1.OriginTemplate {
			made = append(made, d.Name)
		}
	}
	if amount != 0 {
		t.Errorf("%d devices more than VM %s has: %+v", amount, vm, devices)
	}
	return made
}

// refusesStarts has VMIs refused, in a dry run, too, and nothing of them left.
func (m *market) refusesStarts() {
	t := m.t
	t.Helper()
	m.class("gone", "{resourceName: "+h200+"}")
	m.class("unlisted", "{resourceName: nvidia.com/NOBODY_HAS_IT}")
	if err := m.Dynamic().Resource(gpuClasses).Delete(t.Context(), "gone", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	m.Create(m.vm("user", references(`{"devices":["a"]}`)))
	m.runs("user", 1)
	many := strings.TrimSuffix(strings.Repeat(`{"class":"h200"},`, 65), ",")
	with := func(refs string, change func(*unstructured.Unstructured)) *unstructured.Unstructured {
		u := m.vmi("refused", refs)
		if change != nil {
			change(u)
		}
		return u
	}
	set := func(value any, path ...string) func(*unstructured.Unstructured) {
		return func(u *unstructured.Unstructured) {
			if err := unstructured.SetNestedField(u.Object, value, path...); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, tc := range map[string]struct {
		vmi  *unstructured.Unstructured
		want string
	}{
		"an unknown device":           {with(`{"devices":["nobody"]}`, nil), "GPU0632: there is no GPUDevice nobody in namespace " + m.acme},
		"a device in use":             {with(`{"devices":["a"]}`, nil), "GPU0634: GPUDevice a is in use by VMI user"},
		"a class that is gone":        {with(`{"templates":[{"class":"gone"}]}`, nil), "GPU0620: there is no class gone"},
		"what no node has":            {with(`{"templates":[{"class":"unlisted"}]}`, nil), "GPU0624"},
		"more than one node has":      {with(`{"devices":["b"],"templates":[{"class":"h200","count":8}]}`, nil), "GPU0703"},
		"no JSON":                     {with(`a, b`, nil), "GPU0630: read annotation gpuctl.dev/devices"},
		"65 devices":                  {with(`{"templates":[`+many+`]}`, nil), "GPU0630: read annotation gpuctl.dev/devices: it names 65"},
		"a name with a dot":           {with(`{"devices":["a.b"]}`, nil), `GPU0630: read annotation gpuctl.dev/devices: devices[0]: "a.b" is not the name of a GPUDevice`},
		"a VMI that exists":           {with(`{"devices":["b"]}`, func(u *unstructured.Unstructured) { u.SetName("user") }), "GPU0637: there is a VMI user"},
		"a name in domain.resources":  {with(`{"devices":["b"]}`, set(map[string]any{h200: "1", "memory": "64Mi"}, "spec", "domain", "resources", "requests")), "GPU0511"},
		"a raw name beside a device":  {with(`{"devices":["b"]}`, set([]any{map[string]any{"name": "x", "deviceName": h200}}, "spec", "domain", "devices", "gpus")), "GPU0638: x asks for " + h200},
		"a host device beside it":     {with(`{"devices":["b"]}`, set([]any{map[string]any{"name": "x", "deviceName": h200}}, "spec", "domain", "devices", "hostDevices")), "GPU0638: x asks for " + h200},
		"a quantity without an end":   {with(`{"devices":["b"]}`, set(map[string]any{"example.com/x": "1e100000000", "memory": "64Mi"}, "spec", "domain", "resources", "requests")), "GPU0649: spec.domain.resources.requests.example.com/x is "},
		"the label without a mapping": {with(`{}`, nil), "GPU0630"},
	} {
		before := m.stored()
		for _, dry := range [][]string{{metav1.DryRunAll}, nil} {
			_, err := m.vms("virtualmachineinstances").Create(t.Context(), tc.vmi.DeepCopy(), metav1.CreateOptions{DryRun: dry})
			if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `denied the request: `+tc.want) {
				t.Errorf("%s, dry run %q: %v, want %s", name, dry, err, tc.want)
			}
		}
		if diff := cmp.Diff(before, m.stored()); diff != "" {
			t.Errorf("%s leaves something (-before +after):\n%s", name, diff)
		}
	}
}

// stored returns the devices with their versions, and the names of the VMIs.
func (m *market) stored() (out []string) {
	m.t.Helper()
	devices, err := m.devices(m.t.Context())
	if err != nil {
		m.t.Fatal(err)
	}
	for name, d := range devices {
		out = append(out, name+" "+d.ResourceVersion)
	}
	vmis, err := m.Dynamic().Resource(kubevirt.GroupVersion.WithResource("virtualmachineinstances")).List(m.t.Context(), metav1.ListOptions{})
	if err != nil {
		m.t.Fatal(err)
	}
	for _, v := range vmis.Items {
		out = append(out, "VMI "+v.GetName())
	}
	slices.Sort(out)
	return out
}
