package cluster

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podresources "k8s.io/component-helpers/resource"

	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/internal/manifest"
)

// readPod takes a pod that holds devices, launches an instance, or belongs to
// gpu-operator; others are passed over.
func readPod(f *Facts, d *manifest.Document) error {
	var pod corev1.Pod
	if err := typed(d, &pod); err != nil {
		return err
	}
	if p, ok := podOf(&pod); ok {
		f.Pods = append(f.Pods, p)
	}
	return nil
}

// podOf returns what a diagnosis needs of a pod; ok is false when that is nothing.
func podOf(pod *corev1.Pod) (p diagnose.Pod, ok bool) {
	p = diagnose.Pod{
		Namespace: pod.Namespace, Name: pod.Name, Node: pod.Spec.NodeName, VM: launches(pod), Operand: operandOf(pod),
		Pinned: pinnedTo(pod), Done: pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed,
	}
	p.Requests = map[gpu.ResourceName]int64{}
	for name, q := range podresources.PodRequests(reckonable(pod), podresources.PodResourcesOptions{}) {
		if strings.Contains(string(name), "/") && !strings.HasPrefix(string(name), "devices.kubevirt.io/") {
			p.Requests[gpu.ResourceName(name)] = q.Value()
		}
	}
	if !p.Done && pod.DeletionTimestamp == nil {
		p.Problem = trouble(pod)
	}
	if refused := pod.Status.Reason; refused == "UnexpectedAdmissionError" || strings.HasPrefix(refused, "OutOf") {
		p.Refused = Scrub(strings.TrimSpace(refused + ": " + pod.Status.Message))
	}
	return p, len(p.Requests) > 0 || p.VM != "" || p.Operand != ""
}

// pinnedTo returns the node that each required term of a pod's affinity asks for by its
// name, as gpuctl's webhook writes it.
func pinnedTo(pod *corev1.Pod) string {
	a := pod.Spec.Affinity
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return ""
	}
	node := ""
	for i, term := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		of := ""
		for _, f := range term.MatchFields {
			if f.Key == metav1.ObjectNameField && f.Operator == corev1.NodeSelectorOpIn && len(f.Values) == 1 {
				of = f.Values[0]
			}
		}
		if of == "" || i > 0 && of != node {
			return ""
		}
		node = of
	}
	return node
}

// launches returns the name of the instance whose launcher the pod is. Labels are
// written by whoever makes the pod: this is for showing, not for accounting.
func launches(pod *corev1.Pod) string {
	if pod.Labels["kubevirt.io"] != "virt-launcher" {
		return ""
	}
	for _, ref := range pod.OwnerReferences {
		if ref.Kind == "VirtualMachineInstance" {
			return ref.Name
		}
	}
	return pod.Labels["vm.kubevirt.io/name"]
}

// operands are the parts of gpu-operator by the names of their containers.
var operands = map[string]diagnose.Operand{
	"nvidia-vfio-manager":        diagnose.VFIOManager,
	"nvidia-sandbox-validator":   diagnose.Validator,
	"nvidia-vgpu-manager-ctr":    diagnose.VGPUManager,
	"nvidia-vgpu-device-manager": diagnose.VGPUDeviceManager,
}

// operandOf says which part of gpu-operator a pod is, by its containers' names and
// images: the sandbox plugin of kata containers has a name much like the other.
func operandOf(pod *corev1.Pod) diagnose.Operand {
	for _, c := range pod.Spec.Containers {
		switch operand, named := operands[c.Name]; {
		case named:
			return operand
		case strings.Contains(c.Image, "/"+pluginImage), strings.HasPrefix(c.Image, pluginImage):
			return diagnose.DevicePlugin
		}
	}
	return ""
}

// trouble says why a pod does not run, "" when it does. A container that has just
// been made is no trouble yet.
func trouble(pod *corev1.Pod) string {
	for _, list := range []struct {
		what     string
		statuses []corev1.ContainerStatus
	}{{"init container", pod.Status.InitContainerStatuses}, {"container", pod.Status.ContainerStatuses}} {
		for _, s := range list.statuses {
			if problem := containerTrouble(&s); problem != "" {
				return fmt.Sprintf("%s %s: %s", list.what, s.Name, problem)
			}
		}
	}
	return ""
}

func containerTrouble(s *corev1.ContainerStatus) string {
	restarts := ""
	if s.RestartCount > 0 {
		restarts = fmt.Sprintf(", %d restarts", s.RestartCount)
	}
	switch w, t := s.State.Waiting, s.State.Terminated; {
	case w != nil && w.Reason != "" && w.Reason != "PodInitializing" && w.Reason != "ContainerCreating":
		message := ""
		if w.Message != "" && !strings.HasPrefix(w.Message, "back-off") {
			message = " (" + Scrub(w.Message) + ")"
		}
		return w.Reason + message + restarts
	case t != nil && t.ExitCode != 0:
		return fmt.Sprintf("exit code %d%s", t.ExitCode, restarts)
	}
	return ""
}
