package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
)

// Settings are how gpuctl serve runs.
type Settings struct {
	LogLevel       string         `mapstructure:"logLevel"`
	Metrics        Metrics        `mapstructure:"metrics"`
	Health         Health         `mapstructure:"health"`
	LeaderElection LeaderElection `mapstructure:"leaderElection"`
	Wiring         Wiring         `mapstructure:"wiring"`
	Webhook        Webhook        `mapstructure:"webhook"`
	Orders         Orders         `mapstructure:"orders"`
}

// Metrics say where metrics are served.
type Metrics struct {
	Port    int    `mapstructure:"port"`    // 0 serves none
	CertDir string `mapstructure:"certDir"` // of tls.crt and tls.key; "" makes a certificate at each start
}

// Health says where the probes are answered.
type Health struct {
	Port int `mapstructure:"port"` // 0 answers none
}

// LeaderElection says how replicas agree on the one that writes.
type LeaderElection struct {
	Enabled       bool          `mapstructure:"enabled"`
	Namespace     string        `mapstructure:"namespace"`     // of the Lease
	LeaseDuration time.Duration `mapstructure:"leaseDuration"` // others wait for so long after the last renewal
	RenewDeadline time.Duration `mapstructure:"renewDeadline"` // the leader gives up after so long without one
	RetryPeriod   time.Duration `mapstructure:"retryPeriod"`
}

// Wiring says how the wiring is kept true.
type Wiring struct {
	Enabled bool     `mapstructure:"enabled"`
	Permit  []string `mapstructure:"permit"` // SELECTOR=NAME
	// StaleAfter is for how long no node has to serve the name of one of gpuctl's own
	// entries before it may go; 0 keeps all.
	StaleAfter time.Duration `mapstructure:"staleAfter"`
	// Resync is how often everything is looked at without anything having happened.
	Resync time.Duration `mapstructure:"resync"`
}

// Webhook is how admission webhooks are served: with a certificate that is kept in a
// Secret, or with one that others keep in files.
type Webhook struct {
	Enabled bool   `mapstructure:"enabled"`
	Port    int    `mapstructure:"port"`
	CertDir string `mapstructure:"certDir"` // of tls.crt and tls.key; "" for the Secret
	// Namespace has Secret and Service.
	Namespace     string `mapstructure:"namespace"`
	Secret        string `mapstructure:"secret"`
	Service       string `mapstructure:"service"`       // the API server calls it
	Configuration string `mapstructure:"configuration"` // two of this name: their caBundles are kept
}

// Orders are how orders of GPUs are met.
type Orders struct {
	Enabled   bool   `mapstructure:"enabled"`
	Namespace string `mapstructure:"namespace"` // of the ledger and the settings
	// ResourceNames count as GPUs besides those that are found.
	ResourceNames []string `mapstructure:"resourceNames"`
	// Tenants selects the namespaces that are tenants', as kubectl's -l does.
	Tenants  string `mapstructure:"tenants"`
	Provider string `mapstructure:"provider"` // "labels" or "cozystack": who is below whom
}

// key is one setting that can be given.
type key struct {
	name, usage string
	fallback    any // its type is that of the setting
}

// keys are all settings, by their names in the file.
func keys() []key {
	return []key{
		{"logLevel", "`LEVEL` from which on is logged: debug, info, warn or error", "info"},
		{"metrics.port", "`PORT` of /metrics, by HTTPS and for those who may; 0 serves none", 8443},
		{"metrics.certDir", "`DIR` of tls.crt and tls.key for /metrics; without it a certificate is made at each start", ""},
		{"health.port", "`PORT` of /healthz and /readyz; 0 answers none", 8081},
		{"leaderElection.enabled", "write only while holding the Lease gpuctl-controller; needed with more than one replica", true},
		{"leaderElection.namespace", "`NAMESPACE` of the Lease (default $POD_NAMESPACE)", ""},
		{"leaderElection.leaseDuration", "`DURATION` after the last renewal from which on another replica may lead", 15 * time.Second},
		{"leaderElection.renewDeadline", "`DURATION` without a renewal after which the leader stops", 10 * time.Second},
		{"leaderElection.retryPeriod", "`DURATION` between two attempts to renew or to get the Lease", 2 * time.Second},
		{"wiring.enabled", "keep the wiring of the KubeVirt CR true", true},
		{"wiring.permit", "permit `SELECTOR=NAME` whatever the nodes say: vendor:device, or a mediated device type, and the resource name (repeatable)", []string(nil)},
		{"wiring.staleAfter", "`DURATION` for which no node serves the name of an own entry before the entry may go; 0 keeps all", 24 * time.Hour},
		{"wiring.resync", "`DURATION` after which everything is looked at without anything having happened", 5 * time.Minute},
		{"webhook.enabled", "judge orders of GPUs before they are stored; needs --orders-enabled and the chart's webhook configuration", false},
		{"webhook.port", "`PORT` of the webhooks, by HTTPS", 9443},
		{"webhook.certDir", "`DIR` of tls.crt and tls.key for the webhooks, which others keep; without it gpuctl keeps a certificate in a Secret", ""},
		{"webhook.namespace", "`NAMESPACE` of the Secret and the Service (default $POD_NAMESPACE)", ""},
		{"webhook.secret", "`NAME` of the Secret in which the certificate is kept", ""},
		{"webhook.service", "`NAME` of the Service by which the API server calls the webhooks", ""},
		{"orders.enabled", "give ordered GPUs their units, and hold them", false},
		{"orders.namespace", "`NAMESPACE` of the ledger and of gpuctl-settings (default $POD_NAMESPACE)", ""},
		{"orders.resourceNames", "resource `NAME` that counts as a GPU besides those that are found (repeatable)", []string(nil)},
		{"orders.tenants", "`SELECTOR` of the namespaces that are tenants'", "kubernetes.io/metadata.name notin (kube-system,kube-public,kube-node-lease)"},
		{"orders.provider", "`NAME` of what says who is a tenant below whom, and what each may have: labels or cozystack", "labels"},
		{"webhook.configuration", "`NAME` of the two webhook configurations, mutating and validating, that have to trust the certificate", ""},
	}
}

// flag returns the name of a setting's flag: "wiring-stale-after".
func (k key) flag() string {
	var out strings.Builder
	for _, c := range k.name {
		switch {
		case c == '.':
			out.WriteByte('-')
		case c >= 'A' && c <= 'Z':
			out.WriteByte('-')
			out.WriteRune(c - 'A' + 'a')
		default:
			out.WriteRune(c)
		}
	}
	return out.String()
}

// envPrefix is that of every variable of the environment that is a setting.
const envPrefix = "GPUCTL_"

// env returns the name of a setting's variable: "GPUCTL_WIRING_STALE_AFTER".
func (k key) env() string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(k.flag(), "-", "_"))
}

// shortestRetry keeps replicas from asking for the Lease all the time.
const shortestRetry = 100 * time.Millisecond

// check refuses settings that cannot work, and names each of them.
func (s *Settings) check() error {
	var wrong []error
	refuse := func(bad bool, name, format string, args ...any) {
		if bad {
			wrong = append(wrong, fmt.Errorf("%s: %s", name, fmt.Sprintf(format, args...)))
		}
	}
	levels := []string{"debug", "info", "warn", "error"}
	refuse(!slices.Contains(levels, s.LogLevel), "logLevel", "%q is none of %s", s.LogLevel, strings.Join(levels, ", "))
	refuse(s.Metrics.Port < 0 || s.Metrics.Port > 65535, "metrics.port", "%d is no port", s.Metrics.Port)
	refuse(s.Health.Port < 0 || s.Health.Port > 65535, "health.port", "%d is no port", s.Health.Port)
	refuse(s.Metrics.Port != 0 && s.Metrics.Port == s.Health.Port, "metrics.port", "%d is health.port as well", s.Metrics.Port)
	l := s.LeaderElection
	refuse(l.Enabled && l.Namespace == "", "leaderElection.namespace", "is not given, and $POD_NAMESPACE is not set")
	refuse(l.RetryPeriod < shortestRetry, "leaderElection.retryPeriod", "%s is below %s", l.RetryPeriod, shortestRetry)
	// What the leader election of client-go asks for.
	refuse(l.RenewDeadline <= l.RetryPeriod*6/5, "leaderElection.renewDeadline", "%s is not above 1.2 × retryPeriod (%s)", l.RenewDeadline, l.RetryPeriod)
	refuse(l.LeaseDuration <= l.RenewDeadline, "leaderElection.leaseDuration", "%s is not above renewDeadline (%s)", l.LeaseDuration, l.RenewDeadline)
	refuse(l.LeaseDuration%time.Second != 0, "leaderElection.leaseDuration", "%s is not in whole seconds, as a Lease counts", l.LeaseDuration)
	refuse(s.Wiring.StaleAfter < 0, "wiring.staleAfter", "%s is below zero", s.Wiring.StaleAfter)
	refuse(s.Wiring.Resync < time.Second, "wiring.resync", "%s is below a second", s.Wiring.Resync)
	wrong = append(wrong, s.checkWebhook()...)
	wrong = append(wrong, s.checkOrders()...)
	return errors.Join(wrong...)
}

// checkWebhook reports settings of the webhooks that cannot work. Where there are none
// nothing is looked at.
func (s *Settings) checkWebhook() (wrong []error) {
	w := &s.Webhook
	if !w.Enabled {
		return nil
	}
	refuse := func(bad bool, name, format string, args ...any) {
		if bad {
			wrong = append(wrong, fmt.Errorf("webhook.%s: %s", name, fmt.Sprintf(format, args...)))
		}
	}
	refuse(!s.Orders.Enabled, "enabled", "orders are judged by what orders.enabled counts: enable that, too")
	refuse(w.Port < 1 || w.Port > 65535, "port", "%d is no port", w.Port)
	refuse(w.Port == s.Metrics.Port, "port", "%d is metrics.port as well", w.Port)
	refuse(w.Port == s.Health.Port, "port", "%d is health.port as well", w.Port)
	refuse(w.CertDir != "" && w.Secret != "", "secret", "is %s, and webhook.certDir says that others keep the certificate: give one of them", w.Secret)
	if w.CertDir != "" {
		return wrong
	}
	refuse(w.Secret == "", "secret", "is not given, and neither is webhook.certDir: there would be no certificate")
	refuse(w.Service == "", "service", "is not given: the certificate is made for its name")
	refuse(w.Configuration == "", "configuration", "is not given: nobody would trust the certificate")
	refuse(w.Namespace == "", "namespace", "is not given, and $POD_NAMESPACE is not set")
	return wrong
}

// checkOrders reports settings of orders that cannot work.
func (s *Settings) checkOrders() (wrong []error) {
	o := &s.Orders
	if _, err := labels.Parse(o.Tenants); err != nil {
		wrong = append(wrong, fmt.Errorf("orders.tenants: %w", err))
	}
	if !slices.Contains([]string{"labels", "cozystack"}, o.Provider) {
		wrong = append(wrong, fmt.Errorf("orders.provider: %q is neither labels nor cozystack", o.Provider))
	}
	for _, name := range o.ResourceNames {
		if !strings.Contains(name, "/") {
			wrong = append(wrong, fmt.Errorf("orders.resourceNames: %q has no domain: an extended resource is written domain/name", name))
		}
	}
	if o.Enabled && o.Namespace == "" {
		wrong = append(wrong, errors.New("orders.namespace: is not given, and $POD_NAMESPACE is not set"))
	}
	return wrong
}
