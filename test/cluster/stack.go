package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// stack is a running cluster, whoever uses it.
type stack struct {
	options     options
	launcher    *launcher
	built       built
	dir         *workdir
	ports       *ports
	numbers     map[string]int // port by component
	credentials *credentials
	admin       *rest.Config
	clientset   kubernetes.Interface
	asNodes     kubernetes.Interface // of a user whose requests are not in the audit log
	dynamic     dynamic.Interface
	handler     dynamic.Interface // what virt-handler would use
	egress      *egress
	components  map[string]*component
	nodes       nodes
	kubelets    *kubelets // nil where pods are only objects
	mu          sync.Mutex
	total       time.Duration // what starting took, without building
	steps       []string      // and its parts

	loopContext context.Context // of everything that runs until the cluster stops
	stopLoops   context.CancelFunc
	loops       sync.WaitGroup
	closers     []func() error // called in reverse order
	closeOnce   sync.Once
}

// launch builds what is missing and starts a cluster. Nothing is left of it when
// it fails, but the logs.
func launch(ctx context.Context, o options, progress io.Writer) (*stack, error) {
	s := &stack{options: o, launcher: newLauncher(), numbers: map[string]int{}, components: map[string]*component{}}
	// The cluster outlives ctx, which ends when it is started.
	s.loopContext, s.stopLoops = context.WithCancel(context.WithoutCancel(ctx))
	s.closers = append(s.closers, func() error { s.launcher.close(); return nil })
	if err := s.start(ctx, progress); err != nil {
		err = fmt.Errorf("start a cluster: %w", err)
		if s.dir != nil {
			err = fmt.Errorf("%w\nall logs are in %s", err, s.dir.logs())
		}
		return nil, errors.Join(err, s.close(true))
	}
	return s, nil
}

// start is the recipe.
func (s *stack) start(ctx context.Context, progress io.Writer) error {
	var err error
	if s.built, err = build(ctx, s.launcher, progress); err != nil {
		return err
	}
	if s.options.kind == withOperator {
		if err := s.lockOperator(ctx, progress); err != nil {
			return err
		}
	}
	began := time.Now()
	defer func() { s.total = time.Since(began) }()
	if err := s.prepare(); err != nil {
		return err
	}
	if err := s.serve(ctx, s.etcd(), s.apiServer()); err != nil {
		return err
	}
	return s.install(ctx)
}

// install makes the cluster one with KubeVirt.
func (s *stack) install(ctx context.Context) error {
	switch s.options.kind {
	case withOperator:
		return s.runOperator(ctx)
	case apiOnly:
		if _, err := s.installObjects(ctx); err != nil {
			return err
		}
		return errors.Join(s.becomeHandler(ctx), s.createDeployedKubeVirt(ctx))
	case bare:
		return nil
	default:
		return s.runKubeVirt(ctx)
	}
}

// took says what starting took: "11.0s (etcd 0.3s, kube-apiserver 2.4s, …)".
func (s *stack) took() string {
	return fmt.Sprintf("%.1fs (%s)", s.total.Seconds(), strings.Join(s.steps, ", "))
}

// prepare makes everything that the processes read.
func (s *stack) prepare() error {
	var err error
	if s.dir, err = newWorkdir(); err != nil {
		return err
	}
	if s.ports, err = reservePorts(); err != nil {
		return err
	}
	s.closers = append(s.closers, s.ports.release)
	if s.credentials, err = newCredentials(s.dir.file("pki")); err != nil {
		return err
	}
	s.admin, err = s.credentials.client("https://"+loopback(s.port(APIServer)), "admin", "system:masters")
	if err != nil {
		return err
	}
	if err := writeKubeconfig(s.kubeconfig(), s.admin); err != nil {
		return err
	}
	if s.clientset, err = kubernetes.NewForConfig(s.admin); err != nil {
		return err
	}
	nodes, err := s.nodesConfig()
	if err != nil {
		return err
	}
	if s.asNodes, err = kubernetes.NewForConfig(nodes); err != nil {
		return err
	}
	if s.dynamic, err = dynamic.NewForConfig(s.admin); err != nil {
		return err
	}
	socket := s.dir.file("egress.sock")
	if s.egress, err = newEgress(socket, s.dir.log("egress"), s.clientset); err != nil {
		return err
	}
	s.closers = append(s.closers, s.egress.close)
	return errors.Join(
		writeEgressConfig(s.dir.file("egress.json"), socket),
		writeAuditPolicy(s.dir.file("audit-policy.json"), s.options.audit))
}

// kubeconfig returns the path of the administrator's kubeconfig.
func (s *stack) kubeconfig() string { return s.dir.file("kubeconfig") }

// port returns the port of a component.
func (s *stack) port(name string) int {
	if s.numbers[name] == 0 {
		s.numbers[name] = s.ports.take()
	}
	return s.numbers[name]
}

// component adds a component, which is not started yet.
func (s *stack) component(name string, ready func(context.Context) error, args ...string) *component {
	c := &component{
		name: name, path: s.built.files[name], args: args, env: []string{"TMPDIR=" + s.dir.temp()},
		log: s.dir.log(name), ready: ready,
	}
	s.components[name] = c
	return c
}

// serve starts components and waits until all of them serve.
func (s *stack) serve(ctx context.Context, components ...*component) error {
	began := time.Now()
	for _, c := range components {
		if err := c.start(s.launcher); err != nil {
			return err
		}
	}
	errs := make([]error, len(components))
	var wg sync.WaitGroup
	for i, c := range components {
		wg.Go(func() {
			if errs[i] = c.awaitReady(ctx); errs[i] == nil {
				s.mark(c.name, began)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// mark notes how long it took since a time until something was there.
func (s *stack) mark(what string, began time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.steps = append(s.steps, fmt.Sprintf("%s %.1fs", what, time.Since(began).Seconds()))
}

// find returns a component by name.
func (s *stack) find(name string) (*component, error) {
	c, ok := s.components[name]
	if !ok && name == VirtOperator {
		return nil, fmt.Errorf("find %s: the cluster was started without WithOperator", name)
	}
	if !ok {
		return nil, fmt.Errorf("find %q: a cluster has no such component", name)
	}
	return c, nil
}

// loop runs f now and again every period until the cluster stops. What f cannot
// do it does the next time: the API server may be down for a while.
func (s *stack) loop(ctx context.Context, period time.Duration, name string, f func(context.Context) error) {
	s.loops.Go(func() {
		tick := time.NewTicker(period)
		defer tick.Stop()
		for {
			if err := f(ctx); err != nil && ctx.Err() == nil {
				s.note(name, err)
			}
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	})
}

// note logs what went wrong where nobody can be told.
func (s *stack) note(who string, err error) {
	appendLine(s.dir.log("harness"), fmt.Sprintf("%s %s: %v", time.Now().Format(time.TimeOnly), who, err))
}

// close stops everything and removes the cluster's folder, or all of it but the
// logs. Only the first call does.
func (s *stack) close(keepLogs bool) (err error) {
	s.closeOnce.Do(func() {
		s.stopLoops()
		var stopping sync.WaitGroup
		for _, c := range s.components {
			stopping.Go(c.stop)
		}
		stopping.Wait()
		s.loops.Wait()
		for _, f := range slices.Backward(s.closers) {
			err = errors.Join(err, f())
		}
		if s.dir != nil {
			err = errors.Join(err, s.dir.remove(keepLogs))
		}
	})
	return err
}
