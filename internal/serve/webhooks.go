package serve

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/gpuctl/gpuctl/internal/certs"
	"github.com/gpuctl/gpuctl/internal/config"
	"github.com/gpuctl/gpuctl/internal/webhook"
)

const (
	// lookAtCerts is how often the webhooks' certificates are looked at. It is what
	// they cost, too: a read of the Secret and of each webhook configuration.
	lookAtCerts = 5 * time.Second
	// settleCerts is how long an API server may take to see a bundle.
	settleCerts = 5 * time.Second
)

// admission is what answers the API server.
type admission struct {
	server ctrlwebhook.Server
	keeper *certs.Keeper // nil when others keep the certificate
}

// newAdmission makes the server of the webhooks; nil when there are to be none.
func newAdmission(reach *rest.Config, s *config.Settings, o *Options) (*admission, error) {
	w := &s.Webhook
	if !w.Enabled {
		return nil, nil
	}
	a := &admission{}
	options := ctrlwebhook.Options{Host: o.Host, Port: w.Port, CertDir: w.CertDir}
	options.TLSOpts = append(options.TLSOpts, func(c *tls.Config) { c.MinVersion = tls.VersionTLS12 })
	if w.CertDir == "" {
		core, err1 := kubernetes.NewForConfig(reach)
		objects, err2 := dynamic.NewForConfig(reach)
		if err := errors.Join(err1, err2); err != nil {
			return nil, err
		}
		a.keeper = certs.New(certs.Options{
			Core: core, Objects: objects, Manager: "gpuctl-certs", Log: o.Log.WithName("certs"),
			Secret:         types.NamespacedName{Namespace: w.Namespace, Name: w.Secret},
			Name:           w.Service + "." + w.Namespace + ".svc",
			Configurations: []certs.Configuration{certs.Mutating(w.Configuration), certs.Validating(w.Configuration)},
			Now:            time.Now, Look: lookAtCerts, Settle: settleCerts,
		})
		options.TLSOpts = append(options.TLSOpts, func(c *tls.Config) { c.GetCertificate = a.keeper.Certificate })
	}
	a.server = ctrlwebhook.NewServer(options)
	return a, nil
}

// add makes the manager serve the webhooks, on every replica. It is not ready before
// somebody could call them.
func (a *admission) add(p *process) error {
	m, log := p.m, p.o.Log.WithName("webhook")
	for path, handler := range map[string]http.Handler{
		webhook.DevicesPath:   webhook.Devices(judge{p.feed}, log),
		webhook.StartsPath:    webhook.VMIs(p.starter, log),
		webhook.ShapesPath:    webhook.Shapes(p.starter, log),
		webhook.LaunchersPath: webhook.Launchers(p.starter, p.feed.IsKubeVirt, log),
	} {
		m.GetWebhookServer().Register(path, handler)
	}
	certified := func() error { return nil }
	if a.keeper != nil {
		certified = a.keeper.Ready
		if err := m.Add(a.keeper); err != nil {
			return err
		}
	}
	started := a.server.StartedChecker() // it shakes hands
	return m.AddReadyzCheck("webhooks", func(r *http.Request) error {
		if err := certified(); err != nil {
			return err
		}
		if err := started(r); err != nil {
			return fmt.Errorf("the webhooks are not served: %w", err)
		}
		return nil
	})
}
