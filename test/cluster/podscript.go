package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Outcome is what becomes of a pod that runs nothing. The zero Outcome leaves it
// as it is.
type Outcome struct {
	phase           corev1.PodPhase
	reason, message string // of the pod
	waiting         string // why its containers do not start
	exitCode        int32
}

// Runs is the outcome of a pod that is started; a launcher's VMI runs then, too.
func Runs() Outcome { return Outcome{phase: corev1.PodRunning} }

// Succeeds is the outcome of a pod whose containers end well.
func Succeeds() Outcome { return Outcome{phase: corev1.PodSucceeded} }

// Fails is the outcome of a pod whose containers end with an exit code.
func Fails(exitCode int32, message string) Outcome {
	return Outcome{phase: corev1.PodFailed, exitCode: exitCode, message: message}
}

// Rejected is the outcome of a pod that kubelet does not admit, as when a device
// plugin cannot allocate.
func Rejected(message string) Outcome {
	return Outcome{phase: corev1.PodFailed, reason: "UnexpectedAdmissionError", message: "Allocate failed due to " + message + ", which is unexpected"}
}

// NotPulled is the outcome of a pod whose image cannot be had.
func NotPulled() Outcome { return Outcome{phase: corev1.PodPending, waiting: "ImagePullBackOff"} }

// Script says what becomes of pods that run nothing, each asked for once, when it
// is on a node. It holds until the test ends.
func (c *Cluster) Script(script func(*corev1.Pod) Outcome) {
	c.stack.scripts.set(script)
	c.t.Cleanup(func() { c.stack.scripts.set(nil) })
}

// scripts is the script of the running test, and the pods that it was asked about.
type scripts struct {
	mu     sync.Mutex
	script func(*corev1.Pod) Outcome
	asked  map[types.UID]bool
}

func (s *scripts) set(script func(*corev1.Pod) Outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.script, s.asked = script, map[types.UID]bool{}
}

// next returns what is to be done with a pod now.
func (s *scripts) next(pod *corev1.Pod) (Outcome, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.script == nil || s.asked[pod.UID] {
		return Outcome{}, false
	}
	s.asked[pod.UID] = true
	o := s.script(pod)
	return o, o != Outcome{}
}

// play reports the outcome of a pod.
func (s *stack) play(ctx context.Context, pod *corev1.Pod, o Outcome) error {
	vmi := pod.Annotations["kubevirt.io/domain"]
	if o.phase == corev1.PodRunning && vmi != "" {
		s.loops.Go(func() {
			if _, err := s.runVMI(ctx, pod.Namespace, vmi); err != nil && ctx.Err() == nil {
				appendLine(s.dir.log("harness"), fmt.Sprintf("run VMI %s/%s: %v", pod.Namespace, vmi, err))
			}
		})
		return nil
	}
	if o.reason == "" && o.waiting == "" && o.phase != corev1.PodFailed {
		return s.setPodPhase(ctx, pod, o.phase)
	}
	started := metav1.Now()
	status := corev1.PodStatus{Phase: o.phase, Reason: o.reason, Message: o.message, StartTime: &started}
	if o.reason == "" {
		for _, c := range pod.Spec.Containers {
			status.ContainerStatuses = append(status.ContainerStatuses, o.container(c))
		}
	}
	data, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": status})
	if err != nil {
		return fmt.Errorf("encode the status of pod %s: %w", pod.Name, err)
	}
	_, err = s.clientset.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, data, metav1.PatchOptions{}, "status")
	return err
}

func (o Outcome) container(c corev1.Container) corev1.ContainerStatus {
	s := corev1.ContainerStatus{Name: c.Name, Image: c.Image}
	if o.waiting != "" {
		s.State.Waiting = &corev1.ContainerStateWaiting{Reason: o.waiting, Message: "Back-off pulling image " + c.Image}
		return s
	}
	s.State.Terminated = &corev1.ContainerStateTerminated{
		ExitCode: o.exitCode, Reason: "Error", Message: o.message, StartedAt: metav1.Now(), FinishedAt: metav1.Now(),
	}
	return s
}
