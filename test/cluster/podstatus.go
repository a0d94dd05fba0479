package cluster

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// change has the pod's status reported soon. Changes that come together are
// reported together.
func (b *sandbox) change() {
	select {
	case b.changed <- struct{}{}:
	default:
	}
}

// report reports the pod's status whenever it has changed.
func (b *sandbox) report() {
	for {
		select {
		case <-b.changed:
			if !b.isSilent() {
				b.kubelets.notify(b.snapshot())
			}
		case <-b.gone:
			return
		case <-b.kubelets.stack.loopContext.Done():
			return
		}
	}
}

// snapshot returns the pod with the status that is reported now.
func (b *sandbox) snapshot() *corev1.Pod {
	b.mu.Lock()
	defer b.mu.Unlock()
	pod := b.pod.DeepCopy()
	if b.fixed != nil {
		pod.Status = *b.fixed.DeepCopy()
		return pod
	}
	pod.Status = corev1.PodStatus{
		StartTime: &metav1.Time{Time: b.started},
		HostIP:    b.hostIP, HostIPs: []corev1.HostIP{{IP: b.hostIP}},
		PodIP: b.ip, PodIPs: []corev1.PodIP{{IP: b.ip}},
	}
	for _, c := range b.containers {
		status := c.status
		if last := status.LastTerminationState.Terminated; b.final && status.State.Waiting != nil && last != nil {
			// It was about to be started again.
			status.State = corev1.ContainerState{Terminated: last}
		}
		if c.init {
			pod.Status.InitContainerStatuses = append(pod.Status.InitContainerStatuses, status)
		} else {
			pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, status)
		}
	}
	initialized := !slices.ContainsFunc(pod.Status.InitContainerStatuses, func(s corev1.ContainerStatus) bool {
		return s.State.Terminated == nil || s.State.Terminated.ExitCode != 0
	})
	pod.Status.Phase = phaseOf(pod, initialized, b.final)
	b.previous = conditionsOf(pod, initialized, b.mounted && !b.final, b.previous)
	pod.Status.Conditions = slices.Clone(b.previous)
	return pod.DeepCopy()
}

// phaseOf returns the phase of a pod with these container statuses, as kubelet's
// getPhase does.
func phaseOf(pod *corev1.Pod, initialized, final bool) corev1.PodPhase {
	var waiting, running, stopped, succeeded int
	for _, s := range pod.Status.ContainerStatuses {
		switch {
		case s.State.Running != nil:
			running++
		case s.State.Terminated != nil:
			stopped++
			if s.State.Terminated.ExitCode == 0 {
				succeeded++
			}
		case s.LastTerminationState.Terminated != nil:
			stopped++
		default:
			waiting++
		}
	}
	switch {
	case final && succeeded == len(pod.Status.ContainerStatuses):
		return corev1.PodSucceeded
	case final:
		return corev1.PodFailed
	case !initialized, waiting > 0:
		return corev1.PodPending
	default:
		return corev1.PodRunning // also when all have stopped and will be started again
	}
}

// conditionsOf returns kubelet's conditions. Those that are as before keep the
// time of their last change.
func conditionsOf(pod *corev1.Pod, initialized, networked bool, before []corev1.PodCondition) []corev1.PodCondition {
	ready := !slices.ContainsFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return !s.Ready })
	reason := ""
	switch {
	case ended(pod.Status.Phase):
		ready, reason = false, "PodCompleted"
	case !ready:
		reason = "ContainersNotReady"
	}
	condition := func(kind corev1.PodConditionType, holds bool, reason string) corev1.PodCondition {
		c := corev1.PodCondition{Type: kind, Status: corev1.ConditionFalse, Reason: reason, LastTransitionTime: metav1.Now()}
		if holds {
			c.Status, c.Reason = corev1.ConditionTrue, ""
		}
		for _, old := range before {
			if old.Type == kind && old.Status == c.Status {
				c.LastTransitionTime = old.LastTransitionTime
			}
		}
		return c
	}
	return []corev1.PodCondition{
		condition(corev1.PodReadyToStartContainers, networked, ""),
		condition(corev1.PodInitialized, initialized, "ContainersNotInitialized"),
		condition(corev1.ContainersReady, ready, reason),
		condition(corev1.PodReady, ready, reason),
	}
}

// setStatus changes the status of a container and has it reported.
func (c *container) setStatus(change func(*corev1.ContainerStatus)) {
	c.sandbox.mu.Lock()
	change(&c.status)
	c.sandbox.mu.Unlock()
	c.sandbox.change()
}

func (c *container) waiting(reason, message string) {
	c.setStatus(func(s *corev1.ContainerStatus) {
		s.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
		s.Ready, s.Started = false, new(bool)
	})
}

func (c *container) running() {
	c.setStatus(func(s *corev1.ContainerStatus) {
		s.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}
		started := c.program == "" || c.spec.StartupProbe == nil
		s.Started = &started
		s.Ready = started && (c.program == "" || c.spec.ReadinessProbe == nil)
	})
}

func (c *container) terminated(x exit) {
	c.setStatus(func(s *corev1.ContainerStatus) {
		t := &corev1.ContainerStateTerminated{
			ExitCode: x.code, Signal: int32(x.signal), Reason: x.reason, Message: x.message, FinishedAt: metav1.Now(),
			ContainerID: s.ContainerID,
		}
		if t.Reason == "" {
			t.Reason = map[bool]string{true: "Completed", false: "Error"}[x.code == 0]
		}
		t.StartedAt = t.FinishedAt
		if s.State.Running != nil {
			t.StartedAt = s.State.Running.StartedAt
		}
		s.State = corev1.ContainerState{Terminated: t}
		// An init container that has done its work stays ready.
		s.Ready, s.Started = c.init && x.code == 0, new(bool)
	})
}

// backOff says that the container will be started again.
func (c *container) backOff(message string) {
	c.setStatus(func(s *corev1.ContainerStatus) {
		s.LastTerminationState = s.State
		s.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: message}}
	})
}

// exitCode returns the code with which the container ended; one that did not
// end has not ended well.
func (c *container) exitCode() int32 {
	c.sandbox.mu.Lock()
	defer c.sandbox.mu.Unlock()
	t := cmp.Or(c.status.State.Terminated, c.status.LastTerminationState.Terminated)
	if t == nil {
		return -1
	}
	return t.ExitCode
}
