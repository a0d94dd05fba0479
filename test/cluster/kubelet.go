package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	listers "k8s.io/client-go/listers/core/v1"
)

// tick is how often the nodes look at what has to be done there.
const tick = 100 * time.Millisecond

// startKubelets starts what nodes need of a kubelet: heartbeats, and the end of
// pods that were deleted. Pods in KubeVirt's own namespace also run.
func (s *stack) startKubelets() {
	ctx := s.loopContext
	factory := informers.NewSharedInformerFactory(s.clientset, 0)
	pods := factory.Core().V1().Pods()
	s.loops.Go(func() { pods.Informer().Run(ctx.Done()) })
	s.loop(ctx, heartbeat, "heartbeat", s.beatAll)
	s.loop(ctx, tick, "kubelet", func(ctx context.Context) error { return s.syncPods(ctx, pods.Lister()) })
}

// syncPods does what kubelet would do with the pods on our nodes.
func (s *stack) syncPods(ctx context.Context, pods listers.PodLister) error {
	list, err := pods.List(labels.Everything())
	if err != nil {
		return err
	}
	var errs []error
	for _, pod := range list {
		if !s.nodes.ours(pod.Spec.NodeName) || s.pods.runs(pod) {
			continue
		}
		switch {
		case pod.DeletionTimestamp != nil:
			errs = append(errs, s.removePod(ctx, pod))
		case pod.Namespace == KubeVirtNamespace && pod.Status.Phase == corev1.PodPending:
			errs = append(errs, s.runPod(ctx, pod))
		default:
			if o, ok := s.scripts.next(pod); ok {
				errs = append(errs, s.play(ctx, pod, o))
			}
		}
	}
	return errors.Join(errs...)
}

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
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": status})
	if err != nil {
		return fmt.Errorf("encode the status of pod %s: %w", pod.Name, err)
	}
	_, err = s.clientset.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}
