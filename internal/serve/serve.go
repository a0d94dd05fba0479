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
	if s.Wiring.Enabled {
		if err := keepWired(m, client, s, &o); err != nil {
			return err
		}
	}
	if hooks != nil {
		if err := hooks.add(m, client, &o); err != nil {
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

// keepWired makes the manager keep the wiring true.
func keepWired(m manager.Manager, client *cluster.Client, s *config.Settings, o *Options) error {
	counted, err := wiring.NewMetrics(metrics.Registry)
	if err != nil {
		return err
	}
	var c *wiring.Controller
	watcher := cluster.NewWatcher(client, m.GetCache(), func() { c.Changed() }, o.Log.WithName("watch"))
	c = wiring.New(wiring.Options{
		Client: client, Watcher: watcher, Permits: o.Permits, StaleAfter: s.Wiring.StaleAfter, Resync: s.Wiring.Resync,
		Instance: o.Instance, Metrics: counted, Log: o.Log.WithName("wiring"), Now: time.Now,
	})
	return errors.Join(
		m.Add(watcher),
		c.SetupWithManager(m),
		m.AddHealthzCheck("wiring", func(*http.Request) error { return c.Alive() }),
		m.AddReadyzCheck("caches", func(*http.Request) error {
			if !watcher.Synced() {
				return errors.New("the caches are not filled yet")
			}
			return nil
		}),
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
