package cluster

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Cluster is a running cluster in the hands of one test. Its methods fail the
// test when they cannot do what they say, wait for at most a minute, and undo
// what they did when the test ends. They may be called from the goroutine of
// the test only; the clients that they return may be used from any.
type Cluster struct {
	t     testing.TB
	stack *stack
}

// Option changes what is started.
type Option func(*options)

type options struct {
	kind   kind
	images []*image
	audit  []string // verbs that are in the audit log
}

// kind is what a cluster consists of.
type kind int

const (
	withKubeVirt kind = iota
	withOperator
	apiOnly
	bare // nothing but etcd and the API server
)

// WithOperator has KubeVirt installed and looked after by a real virt-operator,
// which also checks changes of the KubeVirt CR. It takes longer to start, and
// waits for any other such cluster on this machine to stop.
func WithOperator() Option { return func(o *options) { o.kind = withOperator } }

// APIOnly leaves out everything that acts: there are etcd, the API server, and
// KubeVirt's CRDs, accounts and CR. Objects stay as they are written, nodes have
// no heartbeat, and nothing is scheduled. It starts sooner.
func APIOnly() Option { return func(o *options) { o.kind = apiOnly } }

// WithImage has containers of an image run as processes, as RunImage does, for as
// long as the cluster runs.
func WithImage(repository, program string) Option {
	return func(o *options) { o.images = append(o.images, &image{repository: repository, program: program}) }
}

const (
	// limit of what a method waits for.
	limit = time.Minute
	// reserve is the time that a test keeps for its end when it has a deadline.
	reserve = 15 * time.Second
)

// Start starts a cluster for one test. It is stopped when the test ends; when
// the test has failed, the logs of all components are kept and their place is
// logged. What the cluster consists of is built from source if need be, which
// takes minutes, once.
func Start(t testing.TB, opts ...Option) *Cluster {
	t.Helper()
	ctx, cancel := deadline(t)
	defer cancel()
	s, err := launch(ctx, apply(opts), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	stopSignals := s.stopOnSignal()
	t.Cleanup(func() {
		stopSignals()
		failed := t.Failed() || panicking()
		if err := s.close(failed); err != nil {
			t.Errorf("stop the cluster: %v", err)
		}
		if failed {
			t.Logf("the logs of the cluster are in %s", s.dir.logs())
		}
	})
	t.Logf("cluster started: %s", s.took())
	return &Cluster{t: t, stack: s}
}

// panicking reports whether the caller runs because its goroutine panics. A test
// that panics has not failed yet when its cleanups run.
func panicking() bool {
	callers := make([]uintptr, 64)
	frames := runtime.CallersFrames(callers[:runtime.Callers(1, callers)])
	for {
		frame, more := frames.Next()
		if frame.Function == "runtime.gopanic" {
			return true
		}
		if !more {
			return false
		}
	}
}

func apply(opts []Option) options {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	return o
}

// deadline returns a context that ends shortly before the test is stopped, so
// that there is time to say what went wrong.
func deadline(t testing.TB) (context.Context, context.CancelFunc) {
	t.Helper()
	if t, ok := t.(interface{ Deadline() (time.Time, bool) }); ok {
		if d, ok := t.Deadline(); ok {
			return context.WithDeadlineCause(context.Background(), d.Add(-reserve), fmt.Errorf("the test has to end by %s", d.Format(time.TimeOnly)))
		}
	}
	return context.WithCancel(context.Background())
}

// Config returns an administrator's configuration, without client-side throttling.
func (c *Cluster) Config() *rest.Config { return rest.CopyConfig(c.stack.admin) }

// Kubeconfig returns the path of an administrator's kubeconfig.
func (c *Cluster) Kubeconfig() string { return c.stack.kubeconfig() }

// Clientset returns an administrator's client.
func (c *Cluster) Clientset() kubernetes.Interface { return c.stack.clientset }

// Dynamic returns an administrator's client for objects of any kind.
func (c *Cluster) Dynamic() dynamic.Interface { return c.stack.dynamic }

// Binary returns the path of a program that the cluster consists of, or of
// kubectl.
func (c *Cluster) Binary(name string) string {
	c.t.Helper()
	path, ok := c.stack.built.files[name]
	if !ok {
		c.t.Fatalf("find %q: it is not built", name)
	}
	return path
}

// Log returns the path of a component's log.
func (c *Cluster) Log(component string) string { return c.stack.dir.log(component) }

// Stop kills a component, as a crash would, and returns when it is gone. It
// stays away until Start; if the test does not, the end of the test starts it.
func (c *Cluster) Stop(component string) {
	c.t.Helper()
	found := c.component(component)
	found.stop()
	c.t.Cleanup(func() { c.Start(component) })
}

// Start starts a component that was stopped and waits until it serves: also
// through the API server, where that takes part. One that runs is left alone.
func (c *Cluster) Start(component string) {
	c.t.Helper()
	found := c.component(component)
	c.must("start "+component, func(ctx context.Context) error {
		if err := c.stack.serve(ctx, found); err != nil {
			return err
		}
		return c.stack.rejoin(ctx)
	})
}

func (c *Cluster) component(name string) *component {
	c.t.Helper()
	found, err := c.stack.find(name)
	if err != nil {
		c.t.Fatal(err)
	}
	return found
}

// Expose makes a Service, "namespace/name", reach an address such as
// "127.0.0.1:9443": there the API server finds the webhooks and aggregated APIs
// that are behind this Service's ClusterIP, whatever the port of the Service.
func (c *Cluster) Expose(service, addr string) {
	c.stack.egress.expose(service, addr)
	c.t.Cleanup(func() { c.stack.egress.expose(service, "") })
}

// must fails the test unless f succeeds in time.
func (c *Cluster) must(what string, f func(context.Context) error) {
	c.t.Helper()
	ctx, cancel := context.WithTimeoutCause(context.Background(), limit, fmt.Errorf("gave up after %v", limit))
	defer cancel()
	if err := f(ctx); err != nil {
		c.t.Fatalf("%s: %v", what, err)
	}
}
