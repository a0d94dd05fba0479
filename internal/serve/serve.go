// Package serve is the controller's process: the manager with its caches and leader
// election, the endpoints for metrics, health and admission, and what it runs.
package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/internal/attach"
	"github.com/gpuctl/gpuctl/internal/cluster"
	"github.com/gpuctl/gpuctl/internal/config"
	"github.com/gpuctl/gpuctl/internal/patch"
	"github.com/gpuctl/gpuctl/internal/wiring"
)

// Options are what the settings do not say.
type Options struct {
	Cluster  cluster.Options
	Host     string // address to listen on, "" for all
	Instance string // the pod's name
	Permits  []patch.Permit
	Log      logr.Logger
}

const (
	// shutdown is how long what runs may take to end.
	shutdown = 8 * time.Second
	// answer is how long the API server may take to say that it is ready.
	answer = 2 * time.Second
)

// Run serves until ctx ends. An error says what could not be started, or that the
// leader's Lease was lost: somebody else leads then, and this process has to end.
func Run(ctx context.Context, s *config.Settings, o Options) error {
	log.SetLogger(o.Log)
	klog.SetLogger(o.Log)
	o.Cluster.Manager = wiring.Manager
	client, err := cluster.Connect(o.Cluster)
	if err != nil {
		return err
	}
	reach, err := o.Cluster.Config()
	if err != nil {
		return err
	}
	reach.WarningHandler = rest.NoWarnings{}
	reach.QPS = -1 // the API server says when it is too much; five writes a second are too few for orders
	options, err := managerOptions(reach, s, &o)
	if err != nil {
		return err
	}
	hooks, err := newAdmission(reach, s, &o)
	if err != nil {
		return err
	}
	if hooks != nil {
		options.WebhookServer = hooks.server
	}
	m, err := manager.New(reach, options)
	if err != nil {
		return client.Explain(fmt.Errorf("start: %w", err))
	}
	p := &process{m: m, client: client, s: s, o: &o}
	if err := errors.Join(p.watch(), p.keepWired(), p.meetOrders()); err != nil {
		return err
	}
	if hooks != nil {
		if err := hooks.add(p); err != nil {
			return err
		}
	}
	if err := m.AddReadyzCheck("api-server", func(r *http.Request) error {
		ctx, cancel := context.WithTimeout(r.Context(), answer)
		defer cancel()
		return client.Answers(ctx)
	}); err != nil {
		return err
	}
	return client.Explain(m.Start(ctx))
}

// process is what is run together.
type process struct {
	m      manager.Manager
	client *cluster.Client
	s      *config.Settings
	o      *Options

	watcher *cluster.Watcher
	wired   atomic.Pointer[wiring.Controller]
	feed    *cluster.Feed   // nil without orders
	starter *attach.Starter // nil without orders
}

// watch has the objects held that all else follows from.
func (p *process) watch() error {
	if !p.s.Wiring.Enabled && !p.s.Orders.Enabled {
		return nil
	}
	p.watcher = cluster.NewWatcher(p.client, p.m.GetCache(), func() {
		if c := p.wired.Load(); c != nil {
			c.Changed()
		}
	}, p.o.Log.WithName("watch"))
	return errors.Join(p.m.Add(p.watcher), p.m.AddReadyzCheck("caches", func(*http.Request) error {
		if !p.watcher.Synced() || p.feed != nil && !p.feed.Synced() {
			return errors.New("the caches are not filled yet")
		}
		return nil
	}))
}

// keepWired makes the manager keep the wiring true.
func (p *process) keepWired() error {
	if !p.s.Wiring.Enabled {
		return nil
	}
	counted, err := wiring.NewMetrics(metrics.Registry)
	if err != nil {
		return err
	}
	c := wiring.New(wiring.Options{
		Client: p.client, Watcher: p.watcher, Permits: p.o.Permits, StaleAfter: p.s.Wiring.StaleAfter, Resync: p.s.Wiring.Resync,
		Instance: p.o.Instance, Metrics: counted, Log: p.o.Log.WithName("wiring"), Now: time.Now,
	})
	p.wired.Store(c)
	return errors.Join(
		c.SetupWithManager(p.m),
		p.m.AddHealthzCheck("wiring", func(*http.Request) error { return c.Alive() }),
	)
}

func managerOptions(reach *rest.Config, s *config.Settings, o *Options) (manager.Options, error) {
	at := func(port int) string {
		if port == 0 {
			return "0" // serves none
		}
		return net.JoinHostPort(o.Host, strconv.Itoa(port))
	}
	grace, l := shutdown, &s.LeaderElection
	lock, err := lockOf(reach, s, o)
	return manager.Options{
		Logger: o.Log,
		Scheme: cluster.CacheOptions().Scheme,
		Cache:  cluster.CacheOptions(),
		Metrics: metricsserver.Options{
			BindAddress: at(s.Metrics.Port), SecureServing: true, CertDir: s.Metrics.CertDir,
			FilterProvider: newGuard,
			TLSOpts:        []func(*tls.Config){func(c *tls.Config) { c.MinVersion = tls.VersionTLS12 }},
		},
		HealthProbeBindAddress: at(s.Health.Port),
		LeaderElection:         l.Enabled, LeaderElectionResourceLockInterface: lock,
		LeaseDuration: &l.LeaseDuration, RenewDeadline: &l.RenewDeadline, RetryPeriod: &l.RetryPeriod,
		// The process ends when Start returns, so nothing is written after the Lease is
		// given back, and the other replica need not wait for it to run out.
		LeaderElectionReleaseOnCancel: true,
		GracefulShutdownTimeout:       &grace,
	}, err
}

// lockOf makes the Lease by which replicas agree, held under the pod's name.
func lockOf(reach *rest.Config, s *config.Settings, o *Options) (resourcelock.Interface, error) {
	l := &s.LeaderElection
	if !l.Enabled {
		return nil, nil
	}
	who := resourcelock.ResourceLockConfig{Identity: o.Instance + "_" + string(uuid.NewUUID())}
	return resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, l.Namespace, v1alpha1.ControllerLease, who, reach, l.RenewDeadline)
}
