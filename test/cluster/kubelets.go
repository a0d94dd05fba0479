package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
)

// kubelets play the kubelets of all nodes. virtual-kubelet's controller tells
// them which pods come, change and go, and reports the statuses that they tell it.
type kubelets struct {
	stack  *stack
	pods   listers.PodLister
	notify func(*corev1.Pod)
	port   int // of the kubelet API, of all nodes

	mu        sync.Mutex
	images    []*image
	scripts   []*script
	sandboxes map[types.UID]*sandbox
	taken     map[string]bool // addresses of pods
}

// podWorkers is how many pods are looked at at the same time. Nothing waits there.
const podWorkers = 4

// startKubelets starts what nodes need of a kubelet: heartbeats, and pods.
func (s *stack) startKubelets() error {
	ctx := s.loopContext
	factory := informers.NewSharedInformerFactory(s.clientset, 0)
	core := factory.Core().V1()
	k := &kubelets{stack: s, pods: core.Pods().Lister(), sandboxes: map[types.UID]*sandbox{}, taken: map[string]bool{}}
	k.images = append(k.images, s.options.images...)
	if err := k.serve(); err != nil {
		return err
	}
	limiter := func() workqueue.TypedRateLimiter[any] {
		return workqueue.NewTypedItemExponentialFailureRateLimiter[any](firstTry, lastTry)
	}
	pc, err := node.NewPodController(node.PodControllerConfig{
		PodClient: podsGetter{PodsGetter: s.clientset.CoreV1(), kubelets: k},
		// It asks for the others, too, but uses them only to resolve the
		// environment, which it is told not to.
		PodInformer: core.Pods(), ConfigMapInformer: core.ConfigMaps(), SecretInformer: core.Secrets(), ServiceInformer: core.Services(),
		EventRecorder: &record.FakeRecorder{}, // which drops its events: no kubelet sends such ones
		Provider:      k,

		SyncPodsFromKubernetesRateLimiter: limiter(), SyncPodsFromKubernetesShouldRetryFunc: tryAgain,
		DeletePodsFromKubernetesRateLimiter: limiter(), DeletePodsFromKubernetesShouldRetryFunc: tryAgain,
		SyncPodStatusFromProviderRateLimiter: limiter(), SyncPodStatusFromProviderShouldRetryFunc: tryAgain,

		// It panics at a pod that it did not see come. So what it is told of may
		// depend on nothing that changes while a pod exists, such as its node being ours.
		PodEventFilterFunc:        func(_ context.Context, pod *corev1.Pod) bool { return pod.Spec.NodeName != "" },
		SkipDownwardAPIResolution: true,
	})
	if err != nil {
		return fmt.Errorf("play kubelets: %w", err)
	}
	s.kubelets = k
	s.loops.Go(func() { core.Pods().Informer().Run(ctx.Done()) })
	s.loops.Go(func() {
		if err := pc.Run(ctx, podWorkers); err != nil && ctx.Err() == nil {
			s.note("kubelets", err)
		}
	})
	s.loop(ctx, heartbeat, "heartbeat", s.beatAll)
	s.loop(ctx, tick, "kubelets", func(ctx context.Context) error { return errors.Join(k.reap(), k.adopt(ctx)) })
	return nil
}

const (
	tick     = 100 * time.Millisecond // how often is looked for pods that are gone
	firstTry = 5 * time.Millisecond
	lastTry  = time.Second
)

// tryAgain never gives up: the API server may be down for a while.
func tryAgain(_ context.Context, _ string, tries int, _ time.Time, _ error) (*time.Duration, error) {
	delay := min(firstTry<<min(tries, 10), lastTry)
	return &delay, nil
}

// keep remembers a pod, unless it is known.
func (k *kubelets) keep(b *sandbox) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, known := k.sandboxes[b.uid]; known {
		b.kill()
		return false
	}
	k.sandboxes[b.uid] = b
	return true
}

// adopt has pods come that were there before their node.
func (k *kubelets) adopt(ctx context.Context) error {
	pods, err := k.pods.List(labels.Everything())
	if err != nil {
		return err
	}
	var errs []error
	for _, pod := range pods {
		if k.stack.nodes.ours(pod.Spec.NodeName) && pod.DeletionTimestamp == nil && !ended(pod.Status.Phase) && k.sandbox(pod.UID) == nil {
			errs = append(errs, k.CreatePod(ctx, pod.DeepCopy()))
		}
	}
	return errors.Join(errs...)
}

func (k *kubelets) sandbox(uid types.UID) *sandbox {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.sandboxes[uid]
}

// each calls f for all pods that are known.
func (k *kubelets) each(f func(*sandbox)) {
	k.mu.Lock()
	var all []*sandbox
	for _, b := range k.sandboxes {
		all = append(all, b)
	}
	k.mu.Unlock()
	for _, b := range all {
		f(b)
	}
}

// reap kills and forgets pods that are gone from the API server.
func (k *kubelets) reap() (err error) {
	k.each(func(b *sandbox) {
		pod, getErr := k.pods.Pods(b.namespace).Get(b.name)
		if getErr == nil && pod.UID == b.uid {
			return
		}
		b.kill()
		select {
		case <-b.done:
		default:
			return // the next time
		}
		close(b.gone)
		k.mu.Lock()
		delete(k.sandboxes, b.uid)
		delete(k.taken, b.ip)
		k.mu.Unlock()
		if removeErr := os.RemoveAll(b.dir); removeErr != nil {
			err = removeErr
		}
	})
	return err
}

// loseNode kills all that runs on a node that was removed, of which nobody hears
// any more.
func (k *kubelets) loseNode(name string) {
	k.each(func(b *sandbox) {
		if b.node == name {
			b.lose()
		}
	})
}

// takeIP returns a loopback address that no other pod has. Linux has all of
// 127.0.0.0/8; elsewhere pods have to share one.
func (k *kubelets) takeIP() string {
	if runtime.GOOS != "linux" {
		return "127.0.0.1"
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for {
		part := func() byte { return byte(1 + rand.IntN(254)) }
		ip := netip.AddrFrom4([4]byte{127, part(), part(), part()}).String()
		if !k.taken[ip] {
			k.taken[ip] = true
			return ip
		}
	}
}

// isLauncher reports the pod of a VMI.
func isLauncher(pod *corev1.Pod) bool { return pod.Labels["kubevirt.io"] == "virt-launcher" }

// graceOf returns how long a pod may take to end.
func graceOf(pod *corev1.Pod) time.Duration {
	for _, seconds := range []*int64{pod.DeletionGracePeriodSeconds, pod.Spec.TerminationGracePeriodSeconds} {
		if seconds != nil {
			return time.Duration(*seconds) * time.Second
		}
	}
	return corev1.DefaultTerminationGracePeriodSeconds * time.Second
}

// controllerName returns the name of the object whose controller made a pod.
func controllerName(pod *corev1.Pod) string {
	if owner := metav1.GetControllerOf(pod); owner != nil {
		return owner.Name
	}
	return ""
}
