package cluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// containerRun is one container of a pod. status and final are guarded by the
// pod's lock.
type containerRun struct {
	pod    *podRun
	spec   *corev1.Container
	status corev1.ContainerStatus
	final  bool // it is not started again

	mu  sync.Mutex
	cmd *exec.Cmd // nil unless it runs
}

// Back-off of containers that end; shorter than kubelet's 10 s to 5 min.
const (
	firstBackOff = 200 * time.Millisecond
	lastBackOff  = 5 * time.Second
)

// run starts the container's program, and again when it ends, as the pod's restart
// policy says.
func (c *containerRun) run() {
	delay := firstBackOff
	for {
		state := c.once()
		last := c.pod.ctx.Err() != nil || c.isLast(state)
		c.pod.change(func(*corev1.PodStatus) {
			c.status.Name, c.status.Image, c.status.Ready = c.spec.Name, c.spec.Image, false
			c.final = last
			stopped := false
			c.status.Started = &stopped
			if last {
				c.status.State = corev1.ContainerState{Terminated: state}
				return
			}
			c.status.LastTerminationState = corev1.ContainerState{Terminated: state}
			c.status.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
				Reason: "CrashLoopBackOff", Message: fmt.Sprintf("back-off %s restarting failed container", delay),
			}}
			c.status.RestartCount++
		})
		if last {
			return
		}
		if !sleep(c.pod.ctx, delay) {
			c.pod.change(func(*corev1.PodStatus) {
				c.final, c.status.State = true, corev1.ContainerState{Terminated: state}
			})
			return
		}
		delay = min(2*delay, lastBackOff)
	}
}

// isLast reports whether the pod's restart policy leaves it at that.
func (c *containerRun) isLast(state *corev1.ContainerStateTerminated) bool {
	switch c.pod.pod.Spec.RestartPolicy {
	case corev1.RestartPolicyNever:
		return true
	case corev1.RestartPolicyOnFailure:
		return state.ExitCode == 0
	}
	return false
}

// once runs the program once and says how it ended.
func (c *containerRun) once() *corev1.ContainerStateTerminated {
	state := &corev1.ContainerStateTerminated{StartedAt: metav1.Now(), Reason: "Error", ExitCode: 128}
	defer func() { state.FinishedAt = metav1.Now() }()
	path := c.pod.runner.stack.podLog(c.pod.pod, c.spec.Name)
	log, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		state.Reason, state.Message = "StartError", err.Error()
		return state
	}
	defer log.Close()
	cmd, err := c.command()
	if err != nil {
		state.Reason, state.Message = "StartError", err.Error()
		return state
	}
	cmd.Stdout, cmd.Stderr = log, log
	_ = os.Remove(c.terminationLog())
	c.mu.Lock()
	err = c.pod.runner.stack.launcher.start(cmd)
	if err == nil {
		c.cmd = cmd
	}
	c.mu.Unlock()
	if err != nil {
		state.Reason, state.Message = "StartError", err.Error()
		return state
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	c.started(state.StartedAt)
	stopProbes := c.probe()
	err = c.await(ended)
	stopProbes()
	c.mu.Lock()
	c.cmd = nil
	c.mu.Unlock()
	c.outcome(state, err)
	return state
}

// started reports that the program runs; it is ready if nobody asks whether it is.
func (c *containerRun) started(at metav1.Time) {
	c.pod.change(func(*corev1.PodStatus) {
		yes := true
		c.status.Name, c.status.Image, c.status.Started = c.spec.Name, c.spec.Image, &yes
		c.status.ContainerID = "process://" + string(c.pod.pod.UID) + "/" + c.spec.Name
		c.status.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at}}
		c.status.Ready = c.spec.ReadinessProbe == nil
	})
}

// await waits for the program's end, which it brings about when the pod is stopped.
func (c *containerRun) await(ended <-chan error) error {
	select {
	case err := <-ended:
		return err
	case <-c.pod.ctx.Done():
	}
	grace := c.pod.graceLeft()
	if grace > 0 {
		c.signal(syscall.SIGTERM)
		select {
		case err := <-ended:
			return err
		case <-time.After(grace):
		case <-c.pod.runner.stack.loopContext.Done():
		}
	}
	c.signal(syscall.SIGKILL)
	return <-ended
}

func (c *containerRun) signal(sig syscall.Signal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cmd != nil {
		_ = signalGroup(c.cmd, sig)
	}
}

// outcome words the end of the program as kubelet does.
func (c *containerRun) outcome(state *corev1.ContainerStateTerminated, err error) {
	state.ContainerID = c.status.ContainerID
	state.ExitCode, state.Reason = 0, "Completed"
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		state.ExitCode, state.Reason = int32(exit.ExitCode()), "Error"
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			state.Signal = int32(status.Signal())
			state.ExitCode = 128 + state.Signal
		}
	} else if err != nil {
		state.ExitCode, state.Reason, state.Message = 128, "Error", err.Error()
	}
	message, readErr := os.ReadFile(c.terminationLog())
	if readErr != nil && state.ExitCode != 0 && c.spec.TerminationMessagePolicy == corev1.TerminationMessageFallbackToLogsOnError {
		message = tail(c.pod.runner.stack.podLog(c.pod.pod, c.spec.Name))
	}
	if len(message) > 0 {
		state.Message = string(message[:min(len(message), 4096)])
	}
}

// neverRan ends a container of a pod that was stopped before it could start.
func (c *containerRun) neverRan() {
	if c.final {
		return
	}
	c.final = true
	c.status.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: 137, Reason: "ContainerStatusUnknown", FinishedAt: metav1.Now(),
	}}
}

func (c *containerRun) waiting(reason, message string) {
	c.pod.change(func(*corev1.PodStatus) {
		c.status.Name, c.status.Image = c.spec.Name, c.spec.Image
		c.status.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
	})
}
