package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// podRun is one pod that is run.
type podRun struct {
	runner *podRunner
	dir    string
	ip     string
	ctx    context.Context // until it is stopped
	cancel context.CancelFunc

	mu         sync.Mutex
	pod        *corev1.Pod // with the status to report
	grace      time.Duration
	containers []*containerRun
}

func newPodRun(p *podRunner, pod *corev1.Pod) *podRun {
	ctx, cancel := context.WithCancel(p.stack.loopContext)
	r := &podRun{
		runner: p, pod: pod, ctx: ctx, cancel: cancel, ip: loopbackAddress(),
		dir: p.stack.dir.file(filepath.Join("pods", string(pod.UID))),
	}
	for i := range pod.Spec.Containers {
		r.containers = append(r.containers, &containerRun{pod: r, spec: &pod.Spec.Containers[i]})
	}
	return r
}

// loopbackAddress returns an address of this machine that no other pod has. Linux
// has all of 127.0.0.0/8.
func loopbackAddress() string {
	if runtime.GOOS != "linux" {
		return "127.0.0.1"
	}
	return fmt.Sprintf("127.%d.%d.%d", 64+rand.IntN(64), rand.IntN(256), 1+rand.IntN(254))
}

func gracePeriod(pod *corev1.Pod) time.Duration {
	switch {
	case pod.DeletionGracePeriodSeconds != nil:
		return time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second
	case pod.Spec.TerminationGracePeriodSeconds != nil:
		return time.Duration(*pod.Spec.TerminationGracePeriodSeconds) * time.Second
	}
	return 30 * time.Second
}

// stop ends the pod: its processes have the grace period to end by themselves.
func (r *podRun) stop(grace time.Duration) {
	r.mu.Lock()
	r.grace = grace
	r.mu.Unlock()
	r.cancel()
}

func (r *podRun) graceLeft() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.grace
}

// signal signals what runs of the pod.
func (r *podRun) signal(sig syscall.Signal) {
	for _, c := range r.containers {
		c.signal(sig)
	}
}

// run is the life of a pod.
func (r *podRun) run() {
	defer func() { _ = os.RemoveAll(r.dir) }()
	r.change(func(s *corev1.PodStatus) {
		started := metav1.Now()
		s.Phase, s.StartTime = corev1.PodPending, &started
		s.HostIP, s.PodIP = podAddress, r.ip
		s.HostIPs, s.PodIPs = []corev1.HostIP{{IP: podAddress}}, []corev1.PodIP{{IP: r.ip}}
	})
	if r.prepare() {
		var all sync.WaitGroup
		for _, c := range r.containers {
			all.Go(c.run)
		}
		all.Wait()
	}
	r.change(func(*corev1.PodStatus) {
		for _, c := range r.containers {
			c.neverRan()
		}
	})
	r.awaitEnd()
}

// prepare makes what the containers read, again and again until all of it is there
// or the pod is stopped.
func (r *podRun) prepare() bool {
	for {
		err := r.writeFiles()
		if err == nil {
			return true
		}
		for _, c := range r.containers {
			c.waiting("CreateContainerConfigError", err.Error())
		}
		if !sleep(r.ctx, time.Second) {
			return false
		}
	}
}

// awaitEnd waits until a finished pod's object is gone.
func (r *podRun) awaitEnd() {
	ctx := r.runner.stack.loopContext
	for !r.runner.stack.gone(ctx, r.pod) {
		if !sleep(ctx, time.Second) {
			return
		}
	}
	r.runner.forget(r.pod.UID)
}

// sleep reports whether the time has passed before ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// current returns the pod as it is now.
func (r *podRun) current() *corev1.Pod {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pod.DeepCopy()
}

// change changes the status and reports it.
func (r *podRun) change(f func(*corev1.PodStatus)) {
	r.mu.Lock()
	f(&r.pod.Status)
	r.sum()
	pod := r.pod.DeepCopy()
	r.mu.Unlock()
	r.runner.tell(pod)
}

// sum derives phase and conditions from the containers, as kubelet does.
func (r *podRun) sum() {
	s := &r.pod.Status
	s.ContainerStatuses = nil
	ready, ended, failed, started := true, true, false, false
	for _, c := range r.containers {
		s.ContainerStatuses = append(s.ContainerStatuses, c.status)
		ready = ready && c.status.Ready
		started = started || c.status.State.Running != nil || c.status.State.Terminated != nil || c.status.RestartCount > 0
		ended = ended && c.final
		failed = failed || c.status.State.Terminated != nil && c.status.State.Terminated.ExitCode != 0
	}
	switch {
	case ended && failed:
		s.Phase = corev1.PodFailed
	case ended:
		s.Phase = corev1.PodSucceeded
	case started:
		s.Phase = corev1.PodRunning
	default:
		s.Phase = corev1.PodPending
	}
	setPodCondition(s, corev1.PodInitialized, true)
	setPodCondition(s, corev1.ContainersReady, ready && !ended)
	setPodCondition(s, corev1.PodReady, ready && !ended)
}

func setPodCondition(s *corev1.PodStatus, kind corev1.PodConditionType, is bool) {
	want := corev1.ConditionFalse
	if is {
		want = corev1.ConditionTrue
	}
	for i := range s.Conditions {
		if c := &s.Conditions[i]; c.Type == kind {
			if c.Status != want {
				c.Status, c.LastTransitionTime = want, metav1.Now()
			}
			return
		}
	}
	s.Conditions = append(s.Conditions, corev1.PodCondition{Type: kind, Status: want, LastTransitionTime: metav1.Now()})
}
