package cluster

import (
	"cmp"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Outcome is what becomes of a pod that is only played. The zero Outcome leaves
// it to the next script, or to what happens without any: programs of RunImage
// run, launcher pods stay as they are, and all others are Running.
type Outcome struct {
	// Phase is the one that the pod reaches: PodPending (its image cannot be
	// pulled), PodRunning, PodSucceeded or PodFailed. A launcher pod that is
	// Running has its VMI Running, too, as RunVMI does.
	Phase corev1.PodPhase
	// After is how long the pod is Running before it has Succeeded or Failed.
	After time.Duration
	// ExitCode is that of a pod that has Failed; 1 unless given.
	ExitCode int32
	// Reason has a pod that Failed be one that kubelet did not admit, such as
	// "UnexpectedAdmissionError": none of its containers started. Of a Pending
	// pod it is why its containers wait; "ImagePullBackOff" unless given.
	Reason string
	// Message goes with the reason, or is the termination message.
	Message string
}

// rejects reports an outcome in which kubelet does not admit the pod.
func (o Outcome) rejects() bool { return o.Phase == corev1.PodFailed && o.Reason != "" }

// script decides about pods, until it is withdrawn.
type script struct {
	outcome func(*corev1.Pod) Outcome
}

// Script has outcome decide what becomes of the pods that come to our nodes from
// now on, until the test ends. It is asked once for each pod, before any script
// that was given earlier, and from other goroutines than the test's.
func (c *Cluster) Script(outcome func(pod *corev1.Pod) Outcome) {
	c.t.Helper()
	k := c.kubelets()
	s := &script{outcome: outcome}
	k.mu.Lock()
	k.scripts = append(k.scripts, s)
	k.mu.Unlock()
	c.t.Cleanup(func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.scripts = without(k.scripts, s)
	})
}

// kubelets returns what plays the kubelets of this cluster.
func (c *Cluster) kubelets() *kubelets {
	c.t.Helper()
	if c.stack.kubelets == nil {
		c.t.Fatal("run pods: this cluster has no kubelets; do not start it with APIOnly")
	}
	return c.stack.kubelets
}

func (k *kubelets) outcomeOf(pod *corev1.Pod) (Outcome, bool) {
	k.mu.Lock()
	scripts := append([]*script(nil), k.scripts...)
	k.mu.Unlock()
	for i := range scripts {
		if o := scripts[len(scripts)-1-i].outcome(pod.DeepCopy()); o != (Outcome{}) {
			return o, true
		}
	}
	return Outcome{}, false
}

// pretend is what a container does that is only played.
func (c *container) pretend() (exit, bool) {
	b := c.sandbox
	o := b.outcome
	if o.Phase == corev1.PodPending {
		c.waiting(cmp.Or(o.Reason, "ImagePullBackOff"), cmp.Or(o.Message, fmt.Sprintf("Back-off pulling image %q", c.spec.Image)))
		<-b.stopping.Done()
		return exit{}, false
	}
	c.running()
	if c.init {
		return exit{}, true
	}
	if o.Phase != corev1.PodSucceeded && o.Phase != corev1.PodFailed {
		<-b.stopping.Done()
		return exit{}, true
	}
	if !b.sleep(o.After) {
		return exit{}, true
	}
	x := exit{message: o.Message}
	if o.Phase == corev1.PodFailed {
		x.code = cmp.Or(o.ExitCode, 1)
	}
	return x, true
}

// runGuest has the VMI of a launcher pod Running as soon as virt-controller has
// noticed that the pod is, as virt-handler would.
func (b *sandbox) runGuest() {
	s := b.kubelets.stack
	ctx, cancel := context.WithTimeoutCause(b.stopping, limit, fmt.Errorf("gave up after %v", limit))
	defer cancel()
	vmi := controllerName(b.latest())
	err := s.awaitVMIPhase(ctx, b.namespace, vmi, "Scheduled")
	if err == nil {
		err = s.setVMIPhase(ctx, b.namespace, vmi, "Running")
	}
	if err != nil && b.stopping.Err() == nil {
		s.note("kubelets", err)
	}
}
