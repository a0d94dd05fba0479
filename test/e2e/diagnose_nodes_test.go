package e2e

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuctl/gpuctl/test/cluster"
)

// onHostDriver has an agent that reports cards on the host's driver.
func onHostDriver(w *ward) []string {
	w.t.Helper()
	w.stage = stageOn(w.t, w.Cluster)
	w.stage.node("worker-1", 2, "nvidia", 0)
	w.stage.install("--wait", "--timeout", "60s", "--set", "hook.wait=1s,agent.interval=1s")
	w.Eventually(soon, "the agent has reported", func(ctx context.Context) error {
		_, err := w.Dynamic().Resource(gpuNodes).Get(ctx, "worker-1", metav1.GetOptions{})
		return err
	})
	return w.suffer(entries("gpus", h200, 1))
}

// rebound binds the cards to vfio-pci, and then the device plugin serves them.
func rebound(w *ward, _ string) {
	w.t.Helper()
	w.stage.bind("worker-1", "vfio-pci")
	w.SetAllocatable("worker-1", h200, 2)
	w.run()
}

// inventory makes the GPUNode of worker-1: one card and its audio function in one
// group.
func inventory(w *ward, audio string) *unstructured.Unstructured {
	w.t.Helper()
	return w.Decode(fmt.Sprintf(`
apiVersion: gpuctl.dev/v1alpha1
kind: GPUNode
metadata: {name: worker-1}
spec:
  agentVersion: v0.0.0
  gpus: 1
  onVFIO: 1
  iommu: true
  functions:
  - {address: "0000:10:00.0", id: "10de:2335", class: "0302", role: gpu, driver: vfio-pci, iommuGroup: "7"}
  - {address: "0000:10:00.1", id: "10de:10f0", class: "0403", role: sibling, driver: %s, iommuGroup: "7"}
`, audio))
}

// groupBlocked has a card whose audio function is on the host's sound driver.
func groupBlocked(w *ward) []string {
	w.t.Helper()
	installCRD(w.t, w.Cluster, "../../charts/gpu-operator-hooks/files/crds/gpuctl.dev_gpunodes.yaml")
	w.AddNode(gpuNode("worker-1", h200, 0))
	u := inventory(w, "snd_hda_intel")
	w.Eventually(soon, "the inventory is there", func(ctx context.Context) error {
		_, err := w.Resource(u).Create(ctx, u, metav1.CreateOptions{})
		return err
	})
	return []string{"node/worker-1"}
}

// groupFreed binds what the hint names to vfio-pci.
func groupFreed(w *ward, hint string) {
	w.t.Helper()
	if !strings.HasPrefix(hint, "bind 0000:10:00.1 to vfio-pci") {
		w.t.Errorf("the hint is %q", hint)
	}
	u := inventory(w, "vfio-pci")
	patch, err := u.MarshalJSON()
	if err == nil {
		_, err = w.Resource(u).Patch(w.t.Context(), "worker-1", types.MergePatchType, patch, metav1.PatchOptions{})
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.SetAllocatable("worker-1", h200, 1)
}

// pluginDown has a device plugin whose container does not stay up.
func pluginDown(w *ward) []string {
	w.t.Helper()
	w.AddNode(gpuNode("worker-1", h200, 0))
	w.down.Store(true)
	w.Script(func(pod *corev1.Pod) cluster.Outcome {
		if pod.Namespace != w.ns || !strings.HasPrefix(pod.Name, "plugin-") || !w.down.Load() {
			return cluster.Outcome{}
		}
		return cluster.Outcome{Phase: corev1.PodPending, Reason: "CrashLoopBackOff", Message: "back-off 5m0s restarting failed container"}
	})
	w.thing = w.Create(w.Decode(`
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: plugin, namespace: ` + w.ns + `}
spec:
  selector: {matchLabels: {app: plugin}}
  template:
    metadata: {labels: {app: plugin}}
    spec:
      nodeSelector: {nvidia.com/gpu.workload.config: vm-passthrough}
      containers: [{name: plugin, image: "nvcr.io/nvidia/kubevirt-gpu-device-plugin:v1.4.0"}]
`))
	w.pluginPod("CrashLoopBackOff", func(s *corev1.ContainerState) bool {
		return s.Waiting != nil && s.Waiting.Reason == "CrashLoopBackOff"
	})
	return w.suffer(entries("gpus", h200, 1))
}

// pluginPod waits until the device plugin's only pod is in a state, and returns its
// name.
func (w *ward) pluginPod(what string, in func(*corev1.ContainerState) bool) (name string) {
	w.t.Helper()
	w.Eventually(soon, "the device plugin is in state "+what, func(ctx context.Context) error {
		list, err := w.Clientset().CoreV1().Pods(w.ns).List(ctx, metav1.ListOptions{LabelSelector: "app=plugin"})
		if err != nil || len(list.Items) != 1 {
			return errorf("%d pods: %v", len(list.Items), err)
		}
		name = list.Items[0].Name
		statuses := list.Items[0].Status.ContainerStatuses
		if len(statuses) != 1 || !in(&statuses[0].State) {
			return errorf("its containers are %v", statuses)
		}
		return nil
	})
	return name
}

// pluginUp repairs the device plugin, and restarts the pod that the hint names.
func pluginUp(w *ward, hint string) {
	w.t.Helper()
	w.down.Store(false)
	name := w.pluginPod("any", func(*corev1.ContainerState) bool { return true })
	if !strings.Contains(hint, "kubectl -n "+w.ns+" logs "+name) {
		w.t.Errorf("the hint does not name the pod %s: %s", name, hint)
	}
	if err := w.Clientset().CoreV1().Pods(w.ns).Delete(w.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		w.t.Fatal(err)
	}
	w.pluginPod("running", func(s *corev1.ContainerState) bool { return s.Running != nil })
	w.SetAllocatable("worker-1", h200, 8)
	w.run()
}

// unhealthy has a device plugin that holds all of its devices for unhealthy.
func unhealthy(w *ward) []string {
	w.t.Helper()
	w.AddNode(gpuNode("worker-1", h200, 8))
	succeed(w.t, w.Cluster, "wire")
	w.SetAllocatable("worker-1", h200, 0)
	subject := w.suffer(entries("gpus", h200, 1))
	w.Eventually(soon, "the VM is not scheduled", waits(w.Cluster, instanceOf(w.Cluster, w.vm), "PodScheduled", "Insufficient "+h200))
	return subject
}

// healthy brings the devices back.
func healthy(w *ward, _ string) {
	w.t.Helper()
	w.SetAllocatable("worker-1", h200, 8)
	w.run()
}
