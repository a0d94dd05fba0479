package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

// sandbox is a pod on one of our nodes. What does not change has no lock.
type sandbox struct {
	kubelets              *kubelets
	uid                   types.UID
	namespace, name, node string
	ip, hostIP            string
	dir                   string       // for volumes and the like; goes with the pod
	logs                  string       // stays when the test fails
	containers            []*container // in their order, those that initialize first

	stopping context.Context // ends when the processes shall end
	stop     context.CancelFunc
	killing  context.Context // ends when they have to, at the latest with the cluster
	kill     context.CancelFunc
	done     chan struct{} // closed when none runs any more
	finish   func()        // closes done
	gone     chan struct{} // closed when the pod is forgotten
	changed  chan struct{} // has a value when there is something to report
	ending   sync.Once

	mu       sync.Mutex
	pod      *corev1.Pod // as it was last seen
	outcome  Outcome
	mounted  bool
	final    bool              // nothing will run any more
	silent   bool              // nobody hears of it any more
	fixed    *corev1.PodStatus // what is reported whatever happens
	started  time.Time
	previous []corev1.PodCondition
	tokens   map[string]issued
}

func (k *kubelets) newSandbox(pod *corev1.Pod) *sandbox {
	s := k.stack
	b := &sandbox{
		kubelets: k, uid: pod.UID, namespace: pod.Namespace, name: pod.Name, node: pod.Spec.NodeName,
		ip: podAddress, hostIP: podAddress,
		dir:  s.dir.file(filepath.Join("pods", string(pod.UID))),
		logs: filepath.Join(s.dir.logs(), "pods", fmt.Sprintf("%s_%s_%s", pod.Namespace, pod.Name, pod.UID)),
		done: make(chan struct{}), gone: make(chan struct{}), changed: make(chan struct{}, 1),
		pod: pod, started: time.Now(), tokens: map[string]issued{},
	}
	b.killing, b.kill = context.WithCancel(s.loopContext)
	b.stopping, b.stop = context.WithCancel(b.killing)
	b.finish = sync.OnceFunc(func() { close(b.done) })
	for _, spec := range pod.Spec.InitContainers {
		b.containers = append(b.containers, newContainer(b, spec, true))
	}
	for _, spec := range pod.Spec.Containers {
		b.containers = append(b.containers, newContainer(b, spec, false))
	}
	return b
}

// hasPrograms reports whether any of the pod's images is a local program.
func (b *sandbox) hasPrograms() bool {
	for _, c := range b.containers {
		if c.program != "" {
			return true
		}
	}
	return false
}

// start runs the pod's processes.
func (b *sandbox) start() {
	ip := b.kubelets.takeIP()
	b.mu.Lock()
	b.ip, b.hostIP = ip, "127.0.0.1"
	b.mu.Unlock()
	b.runAs(b.run)
}

// play reports the pod as if it ran.
func (b *sandbox) play(o Outcome) {
	b.outcome = o
	for _, c := range b.containers {
		c.program = ""
	}
	b.runAs(b.runContainers)
	if isLauncher(b.latest()) && o.Phase == corev1.PodRunning {
		b.kubelets.stack.loops.Go(b.runGuest)
	}
}

// leave does nothing about the pod until it is deleted.
func (b *sandbox) leave() {
	b.mu.Lock()
	b.silent = true
	b.mu.Unlock()
	b.finish()
}

// reject reports the pod as one that kubelet did not admit.
func (b *sandbox) reject(reason, message string) {
	b.fix(corev1.PodStatus{Phase: corev1.PodFailed, Reason: reason, Message: message})
	b.finish()
	b.kubelets.stack.loops.Go(b.report)
	b.change()
}

func (b *sandbox) runAs(run func()) {
	loops := &b.kubelets.stack.loops
	loops.Go(b.report)
	loops.Go(func() {
		run()
		b.kill()
		b.mu.Lock()
		b.final = true
		b.mu.Unlock()
		b.finish()
		b.change()
	})
}

// run is the life of a pod with processes.
func (b *sandbox) run() {
	if !b.mountAll() {
		return
	}
	b.kubelets.stack.loops.Go(b.refresh)
	b.runContainers()
}

// runContainers runs what initializes the pod, then all else at the same time.
func (b *sandbox) runContainers() {
	b.mu.Lock()
	b.mounted = true
	b.mu.Unlock()
	b.change()
	var main sync.WaitGroup
	for _, c := range b.containers {
		if !c.init {
			main.Go(c.keep)
			continue
		}
		c.keep()
		if c.exitCode() != 0 || b.stopping.Err() != nil {
			return
		}
	}
	main.Wait()
}

// sleep reports whether the pod may go on after a while.
func (b *sandbox) sleep(d time.Duration) bool {
	select {
	case <-b.stopping.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// end tells the processes to end, and kills them when they take too long. After
// them, the pod goes away.
func (b *sandbox) end(grace time.Duration) {
	b.stop()
	if grace <= 0 {
		b.kill()
	} else {
		timer := time.AfterFunc(grace, b.kill)
		context.AfterFunc(b.killing, func() { timer.Stop() })
	}
	b.ending.Do(func() { b.kubelets.stack.loops.Go(b.remove) })
}

// remove removes the pod from the API server when it has ended and has said so.
func (b *sandbox) remove() {
	s := b.kubelets.stack
	select {
	case <-b.done:
	case <-s.loopContext.Done():
		return
	}
	b.unfix()
	err := poll(s.loopContext, func(ctx context.Context) error {
		pod, err := b.kubelets.pods.Pods(b.namespace).Get(b.name)
		if apierrors.IsNotFound(err) || err == nil && pod.UID != b.uid {
			return nil
		}
		if err != nil {
			return err
		}
		if !b.isSilent() && !ended(pod.Status.Phase) {
			return fmt.Errorf("pod %s/%s is %s", b.namespace, b.name, pod.Status.Phase)
		}
		return s.removePod(ctx, pod)
	})
	if err != nil && s.loopContext.Err() == nil {
		s.note("kubelets", err)
	}
}

// lose kills the processes, of which nothing is reported any more.
func (b *sandbox) lose() {
	b.mu.Lock()
	b.silent = true
	b.mu.Unlock()
	b.kill()
	<-b.done
}

// fix has a status reported whatever the containers do.
func (b *sandbox) fix(status corev1.PodStatus) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fixed = &status
}

// unfix undoes fix, but for a pod that has ended.
func (b *sandbox) unfix() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fixed != nil && !ended(b.fixed.Phase) {
		b.fixed = nil
		b.change()
	}
}

func ended(phase corev1.PodPhase) bool {
	return phase == corev1.PodSucceeded || phase == corev1.PodFailed
}

func (b *sandbox) isSilent() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.silent
}

// update takes note of a change of the pod's object.
func (b *sandbox) update(pod *corev1.Pod) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pod = pod
}

// latest returns the pod's object as it was last seen, for reading.
func (b *sandbox) latest() *corev1.Pod {
	if pod, err := b.kubelets.pods.Pods(b.namespace).Get(b.name); err == nil && pod.UID == b.uid {
		return pod
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.pod
}

// makeDirs makes the folders of a pod.
func (b *sandbox) makeDirs() error {
	var errs []error
	for _, name := range []string{"volumes", "home", "tmp"} {
		errs = append(errs, os.MkdirAll(filepath.Join(b.dir, name), 0o750))
	}
	return errors.Join(errs...)
}
