package cluster

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// removePod confirms that a pod that was told to end has ended.
func (s *stack) removePod(ctx context.Context, pod *corev1.Pod) error {
	now := int64(0)
	err := s.clientset.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &pod.UID},
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// setPodPhase reports a phase, with the conditions and containers that go with it.
func (s *stack) setPodPhase(ctx context.Context, pod *corev1.Pod, phase corev1.PodPhase) error {
	running := phase == corev1.PodRunning
	status := corev1.PodStatus{
		Phase: phase, HostIP: podAddress, HostIPs: []corev1.HostIP{{IP: podAddress}},
		PodIP: podAddress, PodIPs: []corev1.PodIP{{IP: podAddress}},
	}
	started := metav1.Now()
	status.StartTime = &started
	for _, kind := range []corev1.PodConditionType{corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady} {
		c := corev1.PodCondition{Type: kind, Status: corev1.ConditionFalse, LastTransitionTime: started}
		if running {
			c.Status = corev1.ConditionTrue
		}
		status.Conditions = append(status.Conditions, c)
	}
	for _, c := range pod.Spec.Containers {
		cs := corev1.ContainerStatus{Name: c.Name, Image: c.Image, Ready: running, Started: &running}
		if running {
			cs.State.Running = &corev1.ContainerStateRunning{StartedAt: started}
		} else {
			cs.State.Terminated = &corev1.ContainerStateTerminated{FinishedAt: started}
			if phase == corev1.PodFailed {
				cs.State.Terminated.ExitCode = 1
			}
		}
		status.ContainerStatuses = append(status.ContainerStatuses, cs)
	}
	if s.kubelets != nil {
		if b := s.kubelets.sandbox(pod.UID); b != nil {
			b.fix(status) // or it would be reported otherwise later
		}
	}
	_, err := patchPodStatus(ctx, s.clientset.CoreV1().Pods(pod.Namespace), pod, status)
	return err
}
