package cluster

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// runVMI takes a VMI from the time its launcher pod is scheduled to Running, as
// kubelet and virt-handler would. It returns the node.
func (s *stack) runVMI(ctx context.Context, namespace, name string) (string, error) {
	pod, err := s.launcherPod(ctx, namespace, name)
	if err != nil {
		return "", err
	}
	if err := s.setPodPhase(ctx, pod, corev1.PodRunning); err != nil {
		return "", err
	}
	if err := s.awaitVMIPhase(ctx, namespace, name, "Scheduled"); err != nil {
		return "", err
	}
	return pod.Spec.NodeName, s.setVMIPhase(ctx, namespace, name, "Running")
}

// launcherPod waits until a VMI has a launcher pod that is on a node.
func (s *stack) launcherPod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	var pod *corev1.Pod
	err := poll(ctx, func(ctx context.Context) error {
		vmi, err := s.dynamic.Resource(vmis).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		pods, err := s.clientset.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{
			LabelSelector: "kubevirt.io=virt-launcher,kubevirt.io/created-by=" + string(vmi.GetUID()),
		})
		if err != nil {
			return err
		}
		for i := range pods.Items {
			if p := &pods.Items[i]; p.Spec.NodeName != "" && p.DeletionTimestamp == nil {
				pod = p
				return nil
			}
		}
		return fmt.Errorf("VMI %s/%s has no launcher pod on a node; it is %s", namespace, name, describeVMI(vmi, pods.Items))
	})
	return pod, err
}

func (s *stack) awaitVMIPhase(ctx context.Context, namespace, name, want string) error {
	return poll(ctx, func(ctx context.Context) error {
		vmi, err := s.dynamic.Resource(vmis).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if phase, _, _ := unstructured.NestedString(vmi.Object, "status", "phase"); phase != want {
			return fmt.Errorf("VMI %s/%s is %s", namespace, name, describeVMI(vmi, nil))
		}
		return nil
	})
}

// describeVMI says where a VMI stands, for messages: its phase, what its
// conditions complain about, and what keeps its pods from nodes.
func describeVMI(vmi *unstructured.Unstructured, pods []corev1.Pod) string {
	phase, _, _ := unstructured.NestedString(vmi.Object, "status", "phase")
	parts := []string{strconv.Quote(phase)}
	conditions, _, _ := unstructured.NestedSlice(vmi.Object, "status", "conditions")
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["status"] == "False" && c["message"] != nil {
			parts = append(parts, fmt.Sprintf("%v=False: %v", c["type"], c["message"]))
		}
	}
	for _, pod := range pods {
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
				parts = append(parts, fmt.Sprintf("pod %s: %s", pod.Name, c.Message))
			}
		}
	}
	return strings.Join(parts, "; ")
}
