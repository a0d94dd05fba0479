package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/gpuctl/gpuctl/internal/cluster"
	testcluster "github.com/gpuctl/gpuctl/test/cluster"
)

// rounded is how many bytes of memory LauncherOf may ask for less than the compute
// container does.
const rounded = 1024

// shapes are specs of VMIs, each with GPUs.
func shapes() map[string]string {
	const gpus = `gpus: [{name: a, deviceName: ` + h200 + `}, {name: b, deviceName: ` + h200 + `}]`
	shape := func(domain, rest string) string {
		return `{terminationGracePeriodSeconds: 0, domain: {devices: {` + gpus + `}` + domain + `}` + rest + `}`
	}
	return map[string]string{
		"requests-only":    shape(`, resources: {requests: {memory: 3Gi, cpu: 1500m}}`, ""),
		"limits-only":      shape(`, resources: {limits: {memory: 3Gi, cpu: 2}}`, ""),
		"guaranteed":       shape(`, resources: {requests: {memory: 3Gi, cpu: 2}, limits: {memory: 3Gi, cpu: 2}}`, ""),
		"guest-memory":     shape(`, memory: {guest: 4Gi}`, ""),
		"guest-and-cores":  shape(`, memory: {guest: 4Gi}, cpu: {cores: 3, sockets: 2, threads: 2}`, ""),
		"more-than-guest":  shape(`, memory: {guest: 2Gi}, resources: {requests: {memory: 3Gi}}`, ""),
		"storage":          shape(`, memory: {guest: 1Gi}, resources: {requests: {ephemeral-storage: 1Gi}}`, ""),
		"overcommitted":    shape(`, memory: {guest: 4Gi}, resources: {overcommitGuestOverhead: true}`, ""),
		"dedicated":        shape(`, cpu: {cores: 4, dedicatedCpuPlacement: true}, memory: {guest: 4Gi}`, ""),
		"dedicated-limits": shape(`, cpu: {dedicatedCpuPlacement: true}, resources: {limits: {cpu: 4, memory: 4Gi}}`, ""),
		"isolated":         shape(`, cpu: {cores: 4, dedicatedCpuPlacement: true, isolateEmulatorThread: true}, memory: {guest: 4Gi}`, ""),
		"host-model":       shape(`, cpu: {model: host-model}, memory: {guest: 1Gi}`, ""),
		"passthrough":      shape(`, cpu: {model: host-passthrough}, memory: {guest: 1Gi}`, ""),
		"custom-model":     shape(`, cpu: {model: Skylake-Server, features: [{name: avx512f}, {name: vmx, policy: forbid}, {name: pcid, policy: optional}]}, memory: {guest: 1Gi}`, ""),
		"features":         shape(`, cpu: {cores: 2, features: [{name: avx512f, policy: require}]}, memory: {guest: 1Gi}`, ""),
		"hugepages":        shape(`, memory: {guest: 4Gi, hugepages: {pageSize: 2Mi}}`, ""),
		"hugepages-more":   shape(`, memory: {guest: 2Gi, hugepages: {pageSize: 2Mi}}, resources: {requests: {memory: 3Gi}}`, ""),
		"hugepages-alone":  shape(`, memory: {hugepages: {pageSize: 1Gi}}`, ""),
		"enlightened":      shape(`, memory: {guest: 1Gi}, features: {hyperv: {vpindex: {enabled: true}, synic: {enabled: true}, synictimer: {enabled: true}, runtime: {enabled: false}}}`, ""),
		"tolerant":         shape(`, memory: {guest: 1Gi}`, `, tolerations: [{key: gpu, operator: Exists, effect: NoSchedule}]`),
		"selective":        shape(`, memory: {guest: 1Gi}`, `, nodeSelector: {zone: a}`),
		"affine": shape(`, memory: {guest: 1Gi}`, `, affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [
			{matchExpressions: [{key: zone, operator: In, values: [a, b]}]}, {matchFields: [{key: metadata.name, operator: In, values: [n1]}]}]}}}`),
		"architecture": shape(`, memory: {guest: 1Gi}`, `, architecture: amd64`),
		"host-devices": `{terminationGracePeriodSeconds: 0, domain: {memory: {guest: 1Gi}, devices: {` + gpus + `, hostDevices: [{name: c, deviceName: ` + h200 + `}, {name: d, deviceName: example.com/nic}, {name: e, deviceName: example.com/nic}]}}}`,
		"networked": `{terminationGracePeriodSeconds: 0, networks: [{name: default, pod: {}}], domain: {memory: {guest: 1Gi}, devices: {autoattachGraphicsDevice: false,
			interfaces: [{name: default, masquerade: {}, model: e1000e}], ` + gpus + `}}}`,
		"alone": `{terminationGracePeriodSeconds: 0, domain: {memory: {guest: 1Gi}, devices: {autoattachPodInterface: false, autoattachVSOCK: false, ` + gpus + `}}}`,
	}
}

// What LauncherOf says is what virt-controller renders: all that it asks of a node, but for
// the containers beside compute, never more. Of a VMI that virt-api has not seen yet it
// may say less.
func TestLauncherIsWhatKubeVirtRenders(t *testing.T) {
	for name, config := range map[string]string{
		"plain": `{"developerConfiguration":{"featureGates":["HostDevices","CPUManager"]}}`,
		"tuned": `{"developerConfiguration":{"featureGates":["HostDevices","CPUManager","HypervStrictCheck"],"cpuAllocationRatio":3,"memoryOvercommit":50,
			"nodeSelectors":{"pool":"tuned"}},"additionalGuestMemoryOverheadRatio":"1.5","cpuModel":"Haswell","cpuRequest":"300m"}`,
		"emulated": `{"developerConfiguration":{"featureGates":["HostDevices","CPUManager"],"useEmulation":true,"nodeSelectors":{"pool":"emulated"}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			c := shared.For(t)
			c.PatchKubeVirt(`{"spec":{"configuration":` + config + `}}`)
			l := launchers{Cluster: c, t: t, ns: c.Namespace(), live: liveClient(t, c)}
			l.noticed(strings.TrimPrefix(name, "plain"))
			stored := map[string]*unstructured.Unstructured{}
			for name, spec := range shapes() {
				stored[name] = l.create(name, spec)
			}
			for name, spec := range shapes() {
				t.Run(name, func(t *testing.T) { l.compare(t, l.vmi(name, spec), stored[name]) })
			}
		})
	}
}

func liveClient(t *testing.T, c *testcluster.Cluster) client.Client {
	t.Helper()
	log.SetLogger(logr.Discard())
	live, err := client.New(c.Config(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return live
}

// launchers compares what is said of launchers with what they are.
type launchers struct {
	*testcluster.Cluster
	t    *testing.T
	ns   string
	live client.Reader
}

func (l *launchers) vmi(name, spec string) *unstructured.Unstructured {
	return l.Decode(`{apiVersion: kubevirt.io/v1, kind: VirtualMachineInstance, metadata: {name: ` + name + `, namespace: ` + l.ns + `}, spec: ` + spec + `}`)
}

func (l *launchers) create(name, spec string) *unstructured.Unstructured {
	l.t.Helper()
	var stored *unstructured.Unstructured
	l.Eventually(soon, name+" is taken", func(ctx context.Context) (err error) { // the gates are noticed a moment later
		vmi := l.vmi(name, spec)
		stored, err = l.Resource(vmi).Create(ctx, vmi, metav1.CreateOptions{})
		return err
	})
	return stored
}

// noticed waits until virt-controller renders by the configuration: by the pool that it
// selects.
func (l *launchers) noticed(pool string) {
	l.t.Helper()
	n := 0
	l.Eventually(soon, "KubeVirt has noticed its configuration", func(ctx context.Context) error {
		n++
		name := fmt.Sprintf("probe-%d", n)
		vmi := l.create(name, shapes()["host-devices"])
		pod, err := l.pod(ctx, vmi)
		for apierrors.IsNotFound(err) {
			time.Sleep(20 * time.Millisecond)
			pod, err = l.pod(ctx, vmi)
		}
		if err != nil {
			return err
		}
		if pod.Spec.NodeSelector["pool"] != pool {
			return fmt.Errorf("the launcher selects %v", pod.Spec.NodeSelector)
		}
		return nil
	})
}

// pod returns the launcher of a VMI.
func (l *launchers) pod(ctx context.Context, vmi *unstructured.Unstructured) (*corev1.Pod, error) {
	pods, err := l.Clientset().CoreV1().Pods(l.ns).List(ctx, metav1.ListOptions{LabelSelector: "kubevirt.io/created-by=" + string(vmi.GetUID())})
	if err != nil {
		return nil, err
	}
	if len(pods.Items) == 0 {
		return nil, apierrors.NewNotFound(corev1.Resource("pods"), vmi.GetName())
	}
	return &pods.Items[0], nil
}

// said is what LauncherOf says of a VMI.
func (l *launchers) said(t *testing.T, u *unstructured.Unstructured) *corev1.PodSpec {
	t.Helper()
	vmi := &kubevirtv1.VirtualMachineInstance{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, vmi); err != nil {
		t.Fatal(err)
	}
	text, err := cluster.LauncherOf(t.Context(), l.live, vmi)
	if err != nil {
		t.Fatal(err)
	}
	again, err := cluster.LauncherOf(t.Context(), l.live, vmi)
	if err != nil || again != text {
		t.Errorf("at first:\n%s\nthen, with %v:\n%s", text, err, again)
	}
	spec, err := cluster.ReadLauncher(text)
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

func (l *launchers) compare(t *testing.T, asked, stored *unstructured.Unstructured) {
	t.Helper()
	var pod *corev1.Pod
	for end := time.Now().Add(soon); pod == nil; time.Sleep(50 * time.Millisecond) {
		var err error
		if pod, err = l.pod(t.Context(), stored); err != nil && time.Now().After(end) {
			now, _ := l.Resource(stored).Get(t.Context(), stored.GetName(), metav1.GetOptions{})
			t.Fatalf("%v: %v", err, now.Object["status"])
		}
	}
	said := l.said(t, stored)
	if diff := cmp.Diff(pod.Spec.NodeSelector, said.NodeSelector); diff != "" {
		t.Errorf("node selector (-the launcher's +said):\n%s", diff)
	}
	required := func(a *corev1.Affinity) *corev1.NodeSelector {
		if a == nil || a.NodeAffinity == nil {
			return nil
		}
		return a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	if diff := cmp.Diff(required(pod.Spec.Affinity), required(said.Affinity)); diff != "" {
		t.Errorf("node affinity (-the launcher's +said):\n%s", diff)
	}
	ownTolerations := slices.DeleteFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool { return strings.HasPrefix(t.Key, "node.kubernetes.io/") }) // not the API server's
	if diff := cmp.Diff(ownTolerations, said.Tolerations, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("tolerations (-the launcher's +said):\n%s", diff)
	}
	requested := pod.Spec.Containers[0].Resources.Requests // of compute; others have what is left out
	maps.DeleteFunc(requested, func(name corev1.ResourceName, _ resource.Quantity) bool {
		return strings.HasPrefix(string(name), "nvidia.com/")
	})
	own := said.Containers[0].Resources.Requests
	for name, want := range requested {
		least := want.DeepCopy()
		if name == corev1.ResourceMemory {
			least.Sub(*resource.NewQuantity(rounded, resource.BinarySI))
		}
		if got, has := own[name]; !has || got.Cmp(want) > 0 || got.Cmp(least) < 0 {
			t.Errorf("%s: the launcher requests %s, said is %s", name, want.String(), got.String())
		}
	}
	for name := range own {
		if _, has := requested[name]; !has {
			t.Errorf("%s: the launcher does not request it", name)
		}
	}
	l.atMost(t, l.said(t, asked), pod, requested)
}

// atMost compares what is said of a VMI that virt-api has not filled in yet.
func (l *launchers) atMost(t *testing.T, said *corev1.PodSpec, pod *corev1.Pod, requested corev1.ResourceList) {
	t.Helper()
	for key, value := range said.NodeSelector {
		if pod.Spec.NodeSelector[key] != value {
			t.Errorf("before virt-api: selected is %s=%s, and the launcher's is %v", key, value, pod.Spec.NodeSelector)
		}
	}
	for name, got := range said.Containers[0].Resources.Requests {
		if want := requested[name]; got.Cmp(want) > 0 {
			t.Errorf("before virt-api: said is %s of %s, and the launcher requests %s", got.String(), name, want.String())
		}
	}
}
