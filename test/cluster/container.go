package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// container is one container of a pod: a process, or the account of one.
type container struct {
	sandbox   *sandbox
	spec      corev1.Container
	init      bool
	program   string      // "" if it is only played
	unhealthy chan string // why it has to be started again

	// With the sandbox's lock:
	status  corev1.ContainerStatus
	process *exec.Cmd // while it runs
}

// exit says how a container ended.
type exit struct {
	code            int32
	signal          syscall.Signal
	reason, message string
}

func newContainer(b *sandbox, spec corev1.Container, init bool) *container {
	reason := "ContainerCreating"
	if len(b.pod.Spec.InitContainers) > 0 {
		reason = "PodInitializing"
	}
	return &container{
		sandbox: b, spec: spec, init: init, program: b.kubelets.program(spec.Image), unhealthy: make(chan string, 1),
		status: corev1.ContainerStatus{
			Name: spec.Name, Image: spec.Image, Started: new(bool),
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}},
		},
	}
}

// keep runs the container, again and again where the pod's restart policy says
// so, until it has ended for good. The back-off is that of components.
func (c *container) keep() {
	delay := firstRestart
	for {
		began := time.Now()
		x, ran := c.once()
		if !ran {
			return
		}
		c.terminated(x)
		if c.sandbox.stopping.Err() != nil || !c.restarts(x.code) {
			return
		}
		if time.Since(began) > settled {
			delay = firstRestart
		}
		c.backOff(fmt.Sprintf("back-off %v restarting failed container %s", delay, c.spec.Name))
		if !c.sandbox.sleep(delay) {
			return
		}
		delay = min(2*delay, lastRestart)
		c.setStatus(func(s *corev1.ContainerStatus) { s.RestartCount++ })
	}
}

func (c *container) restarts(code int32) bool {
	switch c.sandbox.latest().Spec.RestartPolicy {
	case corev1.RestartPolicyNever:
		return false
	case corev1.RestartPolicyOnFailure:
		return code != 0
	default:
		return code != 0 || !c.init
	}
}

// once runs the container once. It did not run if the pod ended before.
func (c *container) once() (x exit, ran bool) {
	if c.sandbox.stopping.Err() != nil {
		return exit{}, false
	}
	if c.program == "" {
		return c.pretend()
	}
	cmd, ok := c.configure()
	if !ok {
		return exit{}, false
	}
	return c.execute(cmd), true
}

// configRetry is how often is looked whether a missing ConfigMap or Secret has
// come.
const configRetry = 500 * time.Millisecond

// configure resolves what the container is described with, which may have to
// wait for ConfigMaps and Secrets.
func (c *container) configure() (*exec.Cmd, bool) {
	for {
		cmd, err := c.command(c.sandbox.stopping)
		if err == nil {
			return cmd, true
		}
		if c.sandbox.stopping.Err() != nil {
			return nil, false
		}
		c.waiting("CreateContainerConfigError", err.Error())
		if !c.sandbox.sleep(configRetry) {
			return nil, false
		}
	}
}

// logFile returns the log of one run of the container.
func (c *container) logFile(run int32) string {
	return filepath.Join(c.sandbox.logs, c.spec.Name, fmt.Sprintf("%d.log", run))
}

// runs returns how often the container was started again.
func (c *container) runs() int32 {
	c.sandbox.mu.Lock()
	defer c.sandbox.mu.Unlock()
	return c.status.RestartCount
}

// execute starts the process and waits until it and all that it has started are gone.
func (c *container) execute(cmd *exec.Cmd) exit {
	path := c.logFile(c.runs())
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return startError(err)
	}
	log, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return startError(err)
	}
	defer log.Close()
	if err := c.resetTerminationMessage(); err != nil {
		return startError(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := c.sandbox.kubelets.stack.launcher.start(cmd); err != nil {
		return startError(err)
	}
	c.sandbox.mu.Lock()
	c.process = cmd
	c.status.ContainerID = fmt.Sprintf("process://%d", cmd.Process.Pid)
	c.sandbox.mu.Unlock()
	c.running()
	healthy, cancel := context.WithCancel(c.sandbox.stopping)
	probes := c.probe(healthy, cmd.Env)
	err = c.await(cmd)
	cancel()
	probes.Wait()
	c.sandbox.mu.Lock()
	c.process = nil
	c.sandbox.mu.Unlock()
	// What it has started ends with it, as with the first process of a container.
	if err := signalGroup(cmd, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		c.sandbox.kubelets.stack.note("kubelets", err)
	}
	x := exitOf(cmd.ProcessState, err)
	x.message = c.terminationMessage(x.code, path)
	return x
}

// await waits for the end of the process, which it may have to bring about.
func (c *container) await(cmd *exec.Cmd) error {
	result := make(chan error, 1)
	go func() { result <- cmd.Wait() }()
	stopping, unhealthy := c.sandbox.stopping.Done(), c.unhealthy
	var tooLate <-chan time.Time
	terminate := func() {
		stopping, unhealthy = nil, nil
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	}
	kill := func() { _ = signalGroup(cmd, syscall.SIGKILL) }
	for {
		select {
		case err := <-result:
			return err
		case <-c.sandbox.killing.Done():
			kill()
			return <-result
		case <-stopping:
			terminate()
		case why := <-unhealthy:
			appendLine(c.logFile(c.runs()), "[kubelet] "+why)
			tooLate = time.After(graceOf(c.sandbox.latest()))
			terminate()
		case <-tooLate:
			kill()
		}
	}
}

// startError is the end of a container whose process could not be started, as a
// container runtime reports it.
func startError(err error) exit {
	return exit{code: 128, reason: "StartError", message: "failed to create containerd task: " + err.Error()}
}

func exitOf(state *os.ProcessState, err error) exit {
	if state == nil {
		return startError(err)
	}
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return exit{code: 128 + int32(status.Signal()), signal: status.Signal()}
	}
	return exit{code: int32(state.ExitCode())}
}

// signal sends a signal to the container's process, if there is one.
func (c *container) signal(signal syscall.Signal) (bool, error) {
	c.sandbox.mu.Lock()
	defer c.sandbox.mu.Unlock()
	if c.process == nil {
		return false, nil
	}
	return true, signalGroup(c.process, signal)
}
