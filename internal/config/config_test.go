package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
)

// load loads settings from a file's text ("" for no file), flags and variables.
func load(t *testing.T, text string, args []string, env map[string]string) (Settings, []string, error) {
	t.Helper()
	file := ""
	if text != "" {
		file = filepath.Join(t.TempDir(), "config.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, value := range env {
		t.Setenv(name, value)
	}
	flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	AddFlags(flags)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	return Load(file, flags)
}

func defaults(change func(*Settings)) Settings {
	s := Settings{
		LogLevel: "info", Metrics: Metrics{Port: 8443}, Health: Health{Port: 8081},
		LeaderElection: LeaderElection{Enabled: true, Namespace: "ns", LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second},
		Wiring:         Wiring{Enabled: true, StaleAfter: 24 * time.Hour, Resync: 5 * time.Minute},
		Webhook:        Webhook{Port: 9443, Namespace: "ns"},
		Orders: Orders{
			Namespace: "ns", Provider: "labels",
			Tenants: "kubernetes.io/metadata.name notin (kube-system,kube-public,kube-node-lease)",
		},
	}
	change(&s)
	return s
}

func TestLoad(t *testing.T) {
	tests := map[string]struct {
		file  string
		args  []string
		env   map[string]string
		want  func(*Settings)
		notes []string
	}{
		"nothing given": {want: func(*Settings) {}},
		"the file": {
			file: "logLevel: debug\nmetrics: {port: 9443, certDir: /certs}\nwiring: {staleAfter: 1h30m, permit: ['10DE:2335=nvidia.com/X', 'GRID T4-16Q=nvidia.com/Y'], enabled: false}\n",
			want: func(s *Settings) {
				s.LogLevel, s.Metrics = "debug", Metrics{Port: 9443, CertDir: "/certs"}
				s.Wiring.StaleAfter, s.Wiring.Enabled = 90*time.Minute, false
				s.Wiring.Permit = []string{"10DE:2335=nvidia.com/X", "GRID T4-16Q=nvidia.com/Y"}
			},
		},
		"the environment counts more than the file": {
			file: "wiring: {staleAfter: 1h, resync: 1m}\n", env: map[string]string{"GPUCTL_WIRING_STALE_AFTER": "2h", "GPUCTL_WIRING_PERMIT": "a=b,c=d"},
			want: func(s *Settings) {
				s.Wiring.StaleAfter, s.Wiring.Resync, s.Wiring.Permit = 2*time.Hour, time.Minute, []string{"a=b", "c=d"}
			},
		},
		"flags count more than both": {
			file: "wiring: {staleAfter: 1h, permit: [x=y]}\n", env: map[string]string{"GPUCTL_WIRING_STALE_AFTER": "2h", "GPUCTL_HEALTH_PORT": "1"},
			args: []string{"--wiring-stale-after=3h", "--wiring-permit=GRID T4-16Q=nvidia.com/Y", "--wiring-permit=c=d", "--leader-election-enabled=false", "--health-port=0"},
			want: func(s *Settings) {
				s.Wiring.StaleAfter, s.Wiring.Permit = 3*time.Hour, []string{"GRID T4-16Q=nvidia.com/Y", "c=d"}
				s.LeaderElection.Enabled, s.Health.Port = false, 0
			},
		},
		"an empty section":      {file: "wiring:\nlogLevel: warn\n", want: func(s *Settings) { s.LogLevel = "warn" }},
		"an empty file":         {file: "# nothing\n", want: func(*Settings) {}},
		"a key without a value": {file: "metrics: {port: }\nwiring: {staleAfter: }\n", want: func(*Settings) {}},
		"markers of one document": {
			file: "# a\n%YAML 1.1\n--- # b\nlogLevel: warn\n...\n\n# c\n", want: func(s *Settings) { s.LogLevel = "warn" },
		},
		"a whole number, as others write it": {file: "metrics: {port: 9443.0}\n", want: func(s *Settings) { s.Metrics.Port = 9443 }},
		"whatever case a key has":            {file: "Metrics: {PORT: 9443}\n", want: func(s *Settings) { s.Metrics.Port = 9443 }},
		"the environment has texts only": {
			env:  map[string]string{"GPUCTL_METRICS_PORT": "9443", "GPUCTL_WIRING_ENABLED": "false", "GPUCTL_WIRING_STALE_AFTER": "0"},
			want: func(s *Settings) { s.Metrics.Port, s.Wiring.Enabled, s.Wiring.StaleAfter = 9443, false, 0 },
		},
		"zero in quotes":        {file: "wiring: {staleAfter: '0'}\n", want: func(s *Settings) { s.Wiring.StaleAfter = 0 }},
		"zero needs no unit":    {file: "wiring: {staleAfter: 0}\n", want: func(s *Settings) { s.Wiring.StaleAfter = 0 }},
		"the Lease's namespace": {file: "leaderElection: {namespace: other}\n", want: func(s *Settings) { s.LeaderElection.Namespace = "other" }},
		"webhooks": {
			file: "orders: {enabled: true}\nwebhook: {enabled: true, secret: certs, service: gpuctl-webhook}\n", env: map[string]string{"GPUCTL_WEBHOOK_CONFIGURATION": "hooks"}, args: []string{"--webhook-port=9444"},
			want: func(s *Settings) {
				s.Orders.Enabled = true
				s.Webhook = Webhook{Enabled: true, Port: 9444, Namespace: "ns", Secret: "certs", Service: "gpuctl-webhook", Configuration: "hooks"}
			},
		},
		"webhooks whose certificate others keep": {
			file: "orders: {enabled: true}\nwebhook: {enabled: true, certDir: /certs}\nmetrics: {port: 0}\n", want: func(s *Settings) {
				s.Metrics.Port, s.Orders.Enabled, s.Webhook.Enabled, s.Webhook.CertDir = 0, true, true, "/certs"
			},
		},
		"orders": {
			file: "orders: {enabled: true, resourceNames: [example.com/a, example.com/b], tenants: 'a in (b,c),!d', provider: cozystack}\n", env: map[string]string{"GPUCTL_ORDERS_NAMESPACE": "other"},
			want: func(s *Settings) {
				s.Orders = Orders{Enabled: true, Namespace: "other", ResourceNames: []string{"example.com/a", "example.com/b"}, Tenants: "a in (b,c),!d", Provider: "cozystack"}
			},
		},
		"what is not served has no fault": {file: "webhook: {port: 8443}\n", want: func(s *Settings) { s.Webhook.Port = 8443 }},
		"a variable of no meaning": {
			env: map[string]string{"GPUCTL_WIRING_STALEAFTER": "1h", "GPUCTL_HOST_ROOT": "/host"}, want: func(*Settings) {}, notes: []string{"GPUCTL_WIRING_STALEAFTER"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Setenv("POD_NAMESPACE", "ns")
			got, notes, err := load(t, tc.file, tc.args, tc.env)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(defaults(tc.want), got); diff != "" {
				t.Errorf("settings (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.notes, notes); diff != "" {
				t.Errorf("notes (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLoadRefuses(t *testing.T) {
	tests := map[string]struct {
		file string
		args []string
		env  map[string]string
		want []string
	}{
		"an unknown key":                 {file: "wiring: {stale: 1h}\n", want: []string{"config.yaml", `unknown key "wiring.stale"`, "wiring.staleAfter"}},
		"an unknown section":             {file: "wirring: {staleAfter: 1h}\n", want: []string{`unknown key "wirring"`}},
		"two unknown keys":               {file: "a: 1\nb: 2\n", want: []string{`"a"`, `"b"`}},
		"a duration without a unit":      {file: "wiring: {staleAfter: 24}\n", want: []string{"staleAfter", "24, not a duration"}},
		"a duration that is none":        {env: map[string]string{"GPUCTL_WIRING_RESYNC": "often"}, want: []string{"resync", "often, not a duration"}},
		"a port that is none":            {file: "metrics: {port: 70000}\n", want: []string{"metrics.port: 70000 is no port"}},
		"a section that is a text":       {file: "metrics: all\n", want: []string{`"metrics"`}},
		"one port for both":              {args: []string{"--metrics-port=8081"}, want: []string{"metrics.port: 8081 is health.port as well"}},
		"an unknown section of nothing":  {file: "bogus: {}\n", want: []string{`unknown key "bogus"`}},
		"an unknown section within one":  {file: "wiring: {bogus: {}}\n", want: []string{`unknown key "wiring.bogus"`}},
		"an unknown key of nothing":      {file: "wiring: {bogus: }\n", want: []string{`unknown key "wiring.bogus"`}},
		"a key with its section":         {file: "wiring.staleAfter: 1h\n", want: []string{`unknown key "wiring.staleAfter"`}},
		"a key twice in two cases":       {file: "logLevel: info\nloglevel: debug\n", want: []string{"config.yaml", "loglevel", "twice"}},
		"a section that is a list":       {file: "metrics: []\n", want: []string{`"metrics"`}},
		"a text for yes or no":           {file: "leaderElection: {enabled: \"\"}\n", want: []string{"config.yaml", "leaderElection.enabled", "bool"}},
		"a number for yes or no":         {file: "leaderElection: {enabled: 0}\n", want: []string{"leaderElection.enabled", "bool"}},
		"yes for a number":               {file: "metrics: {port: true}\n", want: []string{"metrics.port", "int"}},
		"a text for a number":            {file: "metrics: {port: '8443'}\n", want: []string{"metrics.port", "int"}},
		"a part of a number":             {file: "metrics: {port: 8443.9}\n", want: []string{"metrics.port", "8443.9, not a whole number"}},
		"no number at all":               {file: "health: {port: .inf}\n", want: []string{"health.port", "not a whole number"}},
		"a section for a number":         {file: "health: {port: {}}\n", want: []string{"health.port", "int"}},
		"a number for a text":            {file: "logLevel: 1\n", want: []string{"logLevel", "string"}},
		"a text for a list":              {file: "wiring: {permit: 'a=b,c=d'}\n", want: []string{"wiring.permit"}},
		"a list of other things":         {file: "wiring: {permit: [a=b, 1]}\n", want: []string{"wiring.permit[1]", "string"}},
		"two types that are wrong":       {file: "logLevel: 1\nmetrics: {port: true}\n", want: []string{"logLevel", "metrics.port"}},
		"a duration of nothing":          {file: "wiring: {staleAfter: ''}\n", want: []string{"wiring.staleAfter", "not a duration"}},
		"a second document":              {file: "logLevel: warn\n---\nlogLevel: info\n", want: []string{"config.yaml", "line 2", "second document"}},
		"a first document of nothing":    {file: "---\n# a\n---\r\nlogLevel: info\n", want: []string{"line 3", "second document"}},
		"more after the end":             {file: "logLevel: warn\n...\nlogLevel: info\n", want: []string{"line 3", "second document"}},
		"a variable's part of a number":  {env: map[string]string{"GPUCTL_METRICS_PORT": "8443.9"}, want: []string{"metrics.port"}},
		"hardly any time before a retry": {file: "leaderElection: {retryPeriod: 99ms}\n", want: []string{"leaderElection.retryPeriod: 99ms is below 100ms"}},
		"a level":                        {env: map[string]string{"GPUCTL_LOG_LEVEL": "loud"}, want: []string{`logLevel: "loud" is none of debug, info, warn, error`}},
		"a lease that ends too soon":     {file: "leaderElection: {leaseDuration: 5s}\n", want: []string{"leaderElection.leaseDuration: 5s is not above renewDeadline (10s)"}},
		"a lease in parts of a second":   {file: "leaderElection: {leaseDuration: 15500ms}\n", want: []string{"whole seconds"}},
		"a deadline before a retry":      {file: "leaderElection: {retryPeriod: 9s}\n", want: []string{"leaderElection.renewDeadline: 10s is not above 1.2 × retryPeriod (9s)"}},
		"no time at all":                 {file: "wiring: {resync: 0s, staleAfter: -1h}\n", want: []string{"wiring.resync: 0s", "wiring.staleAfter: -1h"}},
		"no namespace":                   {env: map[string]string{"POD_NAMESPACE": ""}, want: []string{"leaderElection.namespace"}},
		"webhooks without a certificate": {file: "orders: {enabled: true}\nwebhook: {enabled: true}\n", want: []string{
			"webhook.secret: is not given, and neither is webhook.certDir", "webhook.service: is not given", "webhook.configuration: is not given",
		}},
		"webhooks without orders":        {file: "webhook: {enabled: true, certDir: /certs}\n", want: []string{"webhook.enabled: orders are judged by what orders.enabled counts"}},
		"webhooks with two certificates": {file: "orders: {enabled: true}\nwebhook: {enabled: true, certDir: /certs, secret: certs}\n", want: []string{"webhook.secret: is certs", "give one of them"}},
		"webhooks on no port":            {file: "orders: {enabled: true}\nwebhook: {enabled: true, certDir: /certs, port: 0}\n", want: []string{"webhook.port: 0 is no port"}},
		"webhooks on the metrics' port":  {file: "orders: {enabled: true}\nwebhook: {enabled: true, certDir: /certs, port: 8443}\n", want: []string{"webhook.port: 8443 is metrics.port as well"}},
		"webhooks on the probes' port":   {file: "orders: {enabled: true}\nwebhook: {enabled: true, certDir: /certs, port: 8081}\n", want: []string{"webhook.port: 8081 is health.port as well"}},
		"webhooks of no namespace": {
			file: "orders: {enabled: true}\nwebhook: {enabled: true, secret: a, service: b, configuration: c}\nleaderElection: {namespace: ns}\n", env: map[string]string{"POD_NAMESPACE": ""},
			want: []string{"webhook.namespace: is not given"},
		},
		"orders of nobody": {
			file: "orders: {enabled: true, tenants: 'a in', provider: hnc, resourceNames: [gpu]}\nleaderElection: {namespace: ns}\n", env: map[string]string{"POD_NAMESPACE": ""},
			want: []string{"orders.tenants: ", `orders.provider: "hnc" is neither labels nor cozystack`, `orders.resourceNames: "gpu" has no domain`, "orders.namespace: is not given"},
		},
		"no YAML":     {file: "wiring: {\n", want: []string{"read ", "config.yaml"}},
		"a key twice": {file: "logLevel: info\nlogLevel: debug\n", want: []string{"config.yaml", "logLevel"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Setenv("POD_NAMESPACE", "ns")
			s, _, err := load(t, tc.file, tc.args, tc.env)
			if err == nil {
				t.Fatalf("it loads as %+v", s)
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error does not say %q: %v", want, err)
				}
			}
		})
	}
	t.Run("a file that is not there", func(t *testing.T) {
		flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
		AddFlags(flags)
		if _, _, err := Load("nowhere.yaml", flags); err == nil || !strings.Contains(err.Error(), "nowhere.yaml") {
			t.Errorf("the error is %v", err)
		}
	})
}
