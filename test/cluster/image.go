package cluster

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// image is a repository whose images are one local program.
type image struct{ repository, program string }

// RunImage has containers of an image, in a repository such as
// "ghcr.io/gpuctl/gpuctl" and with any tag or digest, run as processes of a
// local program on all nodes. This goes for pods that come to a node from now
// on, until the test ends, which ends the processes; the same repository may
// only be given by one test at a time.
//
// The program gets what a container would: arguments, environment, volumes, and
// the token of its ServiceAccount, bound to the pod. The differences are in the
// README.
func (c *Cluster) RunImage(repository, program string) {
	c.t.Helper()
	k := c.kubelets()
	path, err := filepath.Abs(program)
	if err != nil {
		c.t.Fatal(err)
	}
	i := &image{repository: repository, program: path}
	k.mu.Lock()
	k.images = append(k.images, i)
	k.mu.Unlock()
	c.t.Cleanup(func() {
		k.mu.Lock()
		k.images = without(k.images, i)
		k.mu.Unlock()
		k.each(func(b *sandbox) {
			if slices.ContainsFunc(b.containers, func(c *container) bool { return c.program == path }) {
				b.lose()
			}
		})
	})
}

// program returns the local program of an image, or "".
func (k *kubelets) program(image string) string {
	repository := repositoryOf(image)
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, i := range slices.Backward(k.images) {
		if i.repository == repository {
			return i.program
		}
	}
	return ""
}

// KillPod sends a signal to the processes of a pod, waiting until there are any:
// SIGKILL is what a node does that runs out of memory.
func (c *Cluster) KillPod(pod *corev1.Pod, signal syscall.Signal) {
	c.t.Helper()
	k := c.kubelets()
	c.must("kill pod "+pod.Name, func(ctx context.Context) error {
		return poll(ctx, func(context.Context) error { return k.signal(pod.UID, signal) })
	})
}

func (k *kubelets) signal(uid types.UID, signal syscall.Signal) error {
	b := k.sandbox(uid)
	if b == nil {
		return errors.New("it is on no node of ours")
	}
	sent := false
	for _, c := range b.containers {
		ok, err := c.signal(signal)
		if err != nil {
			return err
		}
		sent = sent || ok
	}
	if !sent {
		return fmt.Errorf("it has no process; it is %s", describePod(b.snapshot()))
	}
	return nil
}

// describePod says where a pod stands, for messages.
func describePod(pod *corev1.Pod) string {
	parts := []string{string(pod.Status.Phase)}
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		switch {
		case s.State.Waiting != nil:
			parts = append(parts, fmt.Sprintf("%s waits: %s %s", s.Name, s.State.Waiting.Reason, s.State.Waiting.Message))
		case s.State.Terminated != nil:
			parts = append(parts, fmt.Sprintf("%s ended with %d: %s", s.Name, s.State.Terminated.ExitCode, s.State.Terminated.Message))
		}
	}
	return strings.Join(parts, "; ")
}

func without[T comparable](list []T, item T) []T {
	return slices.DeleteFunc(slices.Clone(list), func(other T) bool { return other == item })
}
