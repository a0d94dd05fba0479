package cluster

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"syscall"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/record"
)

// RunImage has the pods of an image ("ghcr.io/gpuctl/gpuctl", whatever the tag or
// digest) run on the nodes as processes of a program of this machine, until the
// test ends. Other pods run nothing.
func (c *Cluster) RunImage(image, program string) {
	c.t.Helper()
	c.must("run pods of "+image, func(context.Context) error { return c.stack.runImage(image, program) })
	c.t.Cleanup(func() { c.stack.pods.setImage(image, "") })
}

// KillPod kills the processes of a pod as the kernel does when memory is short.
func (c *Cluster) KillPod(pod *corev1.Pod) {
	c.t.Helper()
	r := c.stack.pods.find(pod.UID)
	if r == nil {
		c.t.Fatalf("kill pod %s/%s: it is not run", pod.Namespace, pod.Name)
	}
	r.signal(syscall.SIGKILL)
}

// PodLog returns the path of the log of a pod's container.
func (c *Cluster) PodLog(pod *corev1.Pod, container string) string {
	return c.stack.podLog(pod, container)
}

// podRunner runs pods as processes. It is the provider of virtual-kubelet's pod
// controller, which tells it what to run and passes on what it reports.
type podRunner struct {
	stack *stack

	start    sync.Once
	startErr error

	mu      sync.Mutex
	images  map[string]string // image without tag → program
	roots   map[string]string // node → root of its host's file system
	running map[types.UID]*podRun
	report  func(*corev1.Pod)
}

func newPodRunner(s *stack) *podRunner {
	return &podRunner{stack: s, images: map[string]string{}, roots: map[string]string{}, running: map[types.UID]*podRun{}}
}

// runImage starts the controller with the first image.
func (s *stack) runImage(image, program string) error {
	s.pods.setImage(image, program)
	s.pods.start.Do(func() { s.pods.startErr = s.startPods() })
	return s.pods.startErr
}

// startPods starts the controller and waits until it is there.
func (s *stack) startPods() error {
	factory := informers.NewSharedInformerFactory(s.clientset, 0)
	core := factory.Core().V1()
	controller, err := node.NewPodController(node.PodControllerConfig{
		PodClient: s.clientset.CoreV1(), PodInformer: core.Pods(), EventRecorder: new(record.FakeRecorder), Provider: s.pods,
		ConfigMapInformer: core.ConfigMaps(), SecretInformer: core.Secrets(), ServiceInformer: core.Services(),
		PodEventFilterFunc:        func(_ context.Context, pod *corev1.Pod) bool { return s.pods.runs(pod) },
		SkipDownwardAPIResolution: true,
	})
	if err != nil {
		return err
	}
	ctx := s.loopContext
	factory.Start(ctx.Done())
	s.loops.Go(func() {
		if err := controller.Run(ctx, 4); err != nil && ctx.Err() == nil {
			appendLine(s.dir.log("harness"), fmt.Sprintf("pod controller: %v", err))
		}
		s.pods.close()
	})
	select {
	case <-controller.Ready():
		return nil
	case <-controller.Done():
		return controller.Err()
	}
}

func (p *podRunner) setImage(image, program string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if program == "" {
		delete(p.images, image)
		return
	}
	p.images[image] = program
}

// program returns what is run for a container, "" for nothing.
func (p *podRunner) program(image string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	name, _, _ := strings.Cut(image, "@")
	if i := strings.LastIndexByte(name, ':'); i > strings.LastIndexByte(name, '/') {
		name = name[:i]
	}
	return p.images[name]
}

// runs reports whether a pod is one that is run, or was.
func (p *podRunner) runs(pod *corev1.Pod) bool {
	if p.find(pod.UID) != nil {
		return true
	}
	return p.stack.nodes.ours(pod.Spec.NodeName) && p.program(pod.Spec.Containers[0].Image) != ""
}

func (p *podRunner) find(uid types.UID) *podRun {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running[uid]
}

// CreatePod implements node.PodLifecycleHandler.
func (p *podRunner) CreatePod(_ context.Context, pod *corev1.Pod) error {
	run := newPodRun(p, pod)
	p.mu.Lock()
	p.running[pod.UID] = run
	p.mu.Unlock()
	p.stack.loops.Go(run.run)
	return nil
}

// UpdatePod implements node.PodLifecycleHandler. Labels and annotations that change
// do not reach a process.
func (p *podRunner) UpdatePod(context.Context, *corev1.Pod) error { return nil }

// DeletePod implements node.PodLifecycleHandler.
func (p *podRunner) DeletePod(_ context.Context, pod *corev1.Pod) error {
	if run := p.find(pod.UID); run != nil {
		run.stop(gracePeriod(pod))
	}
	return nil
}

// GetPod implements node.PodLifecycleHandler.
func (p *podRunner) GetPod(_ context.Context, namespace, name string) (*corev1.Pod, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, run := range p.running {
		if run.pod.Namespace == namespace && run.pod.Name == name {
			return run.current(), nil
		}
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, name)
}

// GetPodStatus implements node.PodLifecycleHandler.
func (p *podRunner) GetPodStatus(ctx context.Context, namespace, name string) (*corev1.PodStatus, error) {
	pod, err := p.GetPod(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	return &pod.Status, nil
}

// GetPods implements node.PodLifecycleHandler.
func (p *podRunner) GetPods(context.Context) ([]*corev1.Pod, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []*corev1.Pod
	for _, run := range p.running {
		out = append(out, run.current())
	}
	return out, nil
}

// NotifyPods implements node.PodNotifier.
func (p *podRunner) NotifyPods(_ context.Context, report func(*corev1.Pod)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.report = report
}

// tell passes a pod's status on.
func (p *podRunner) tell(pod *corev1.Pod) {
	p.mu.Lock()
	report := p.report
	p.mu.Unlock()
	report(pod)
}

// forget drops a pod whose object is gone.
func (p *podRunner) forget(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.running, uid)
}

// close kills whatever runs.
func (p *podRunner) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, run := range p.running {
		run.stop(0)
	}
}

// stopOn kills what runs on a node that is gone.
func (p *podRunner) stopOn(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, run := range p.running {
		if run.pod.Spec.NodeName == name {
			run.stop(0)
		}
	}
}

func (p *podRunner) setRoot(name, root string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.roots[name] = root
}

func (p *podRunner) root(name string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.roots[name]
}

// gone reports whether a pod's object is gone.
func (s *stack) gone(ctx context.Context, pod *corev1.Pod) bool {
	got, err := s.clientset.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	return apierrors.IsNotFound(err) || err == nil && got.UID != pod.UID
}
