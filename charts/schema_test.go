package charts_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	"sigs.k8s.io/yaml"

	"github.com/gpuctl/gpuctl/charts"
)

// A value that cannot be meant is refused, and the key named.
func TestSchemaRefuses(t *testing.T) {
	tests := map[string]struct{ values, want string }{
		"variant":                           {"gpu: {variant: mig}", "gpu.variant"},
		"enabled as text":                   {`gpu: {enabled: "true"}`, "gpu.enabled"},
		"misspelt key":                      {"gpu: {enable: true}", "enable"},
		"misspelt section":                  {"agents: {}", "agents"},
		"selector":                          {"gpu: {permittedHostDevices: {pciHostDevices: [{pciVendorSelector: 10DE, resourceName: n/a}]}}", "gpu.permittedHostDevices.pciHostDevices.0.pciVendorSelector"},
		"no resource name":                  {`gpu: {permittedHostDevices: {pciHostDevices: [{pciVendorSelector: "10DE:2335"}]}}`, "resourceName"},
		"name with a blank":                 {`gpu: {permittedHostDevices: {mediatedDevices: [{mdevNameSelector: T4, resourceName: "nvidia.com/GRID T4"}]}}`, "mediatedDevices.0.resourceName"},
		"in-tree provider":                  {`gpu: {permittedHostDevices: {pciHostDevices: [{pciVendorSelector: "10DE:2335", resourceName: n/a, externalResourceProvider: false}]}}`, "externalResourceProvider"},
		"wait beyond Helm's":                {"hook: {wait: 5m}", "hook.wait"},
		"wait and no time for what follows": {"hook: {wait: 4m1s}", "hook.wait"},
		"wait in seconds, the same":         {"hook: {wait: 241s}", "hook.wait"},
		"first node":                        {"hook: {firstNode: 0s}", "hook.firstNode"},
		"no interval":                       {"agent: {interval: 0s}", "agent.interval"},
		"hold without unit":                 {`agent: {hold: "120"}`, "agent.hold"},
		"misspelt toleration":               {"hook: {tolerations: [{operater: Exists}]}", "operater"},
		"effect":                            {"agent: {tolerations: [{effect: Never}]}", "agent.tolerations.0.effect"},
		"resync below a second":             {"controller: {resync: 400ms}", "controller.resync"},
		"lease in parts of a second":        {"controller: {leaderElection: {leaseDuration: 15.5s}}", "controller.leaderElection.leaseDuration"},
		"no lease at all":                   {"controller: {leaderElection: {leaseDuration: 0s}}", "controller.leaderElection.leaseDuration"},
		"misspelt rollout":                  {"agent: {updateStrategy: {rollingUpdate: {maxUnavailible: 1}}}", "maxUnavailible"},
		"rollout":                           {"agent: {updateStrategy: {rollingUpdate: {maxUnavailable: 101%}}}", "rollingUpdate.maxUnavailable"},
		"quantity":                          {"agent: {resources: {limits: {memory: 1 GB}}}", "agent.resources.limits.memory"},
		"misspelt resources":                {"hook: {resources: {limit: {}}}", "limit"},
		"label":                             {"agent: {nodeSelector: {gpu: true}}", "agent.nodeSelector.gpu"},
		"priority class":                    {"agent: {priorityClassName: High One}", "agent.priorityClassName"},
		"no replica":                        {"controller: {replicas: 0}", "controller.replicas"},
		"log level":                         {"controller: {logLevel: verbose}", "controller.logLevel"},
		"stale without unit":                {"controller: {staleAfter: 24}", "controller.staleAfter"},
		"never a look":                      {"controller: {resync: 0s}", "controller.resync"},
		"no lease":                          {"controller: {leaderElection: {leaseDuration: 0s}}", "controller.leaderElection.leaseDuration"},
		"hardly any time before a retry":    {"controller: {leaderElection: {retryPeriod: 99ms}}", "controller.leaderElection.retryPeriod"},
		"the same, in seconds":              {"controller: {leaderElection: {retryPeriod: 0.05s}}", "controller.leaderElection.retryPeriod"},
		"misspelt election":                 {"controller: {leaderElection: {renew: 10s}}", "renew"},
		"the health port":                   {"controller: {metrics: {port: 8081}}", "controller.metrics.port"},
		"a port with privilege":             {"controller: {metrics: {port: 443}}", "controller.metrics.port"},
		"misspelt affinity":                 {"controller: {affinity: {podAntiAffinities: {}}}", "podAntiAffinities"},
		"spread over nothing":               {"controller: {topologySpreadConstraints: [{maxSkew: 1, whenUnsatisfiable: ScheduleAnyway}]}", "topologyKey"},
		"spread in no way":                  {"controller: {topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: Never}]}", "topologySpreadConstraints.0.whenUnsatisfiable"},
		"misspelt spread":                   {"controller: {topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway, selector: {}}]}", "selector"},
		"no drain ever":                     {"controller: {podDisruptionBudget: {maxUnavailable: 0}}", "podDisruptionBudget.maxUnavailable"},
		"no drain ever, in percent":         {"controller: {podDisruptionBudget: {maxUnavailable: 0%}}", "podDisruptionBudget.maxUnavailable"},
		"misspelt budget":                   {"controller: {podDisruptionBudget: {minAvailable: 1}}", "minAvailable"},
		"misspelt controller":               {"controller: {replica: 2}", "replica"},
		"webhooks on the health port":       {"webhook: {port: 8081}", "webhook.port"},
		"webhooks and a privilege":          {"webhook: {port: 443}", "webhook.port"},
		"a switch of webhooks":              {"webhook: {enabled: true}", "enabled"},
		"misspelt cert-manager":             {"webhook: {certManager: {issuer: {}}}", "issuer"},
		"an issuer of no name":              {"webhook: {certManager: {issuerRef: {kind: ClusterIssuer}}}", "webhook.certManager.issuerRef"},
		"nulled controller":                 {"controller: null", "controller"},
		"controller's priority class":       {"controller: {priorityClassName: High One}", "controller.priorityClassName"},
		"empty peer":                        {"networkPolicy: {metricsFrom: [{}]}", "networkPolicy.metricsFrom.0"},
		"misspelt peer":                     {"networkPolicy: {metricsFrom: [{namespace: monitoring}]}", "namespace"},
		"KubeVirt nowhere":                  {"kubevirt: {namespaces: []}", "kubevirt.namespaces"},
		"KubeVirt in no namespace":          {"kubevirt: {namespaces: [Kube_Virt]}", "kubevirt.namespaces.0"},
		"misspelt KubeVirt":                 {"kubevirt: {namespace: [kubevirt]}", "namespace"},
		"misspelt orders":                   {"orders: {enable: true}", "enable"},
		"nulled orders":                     {"orders: null", "orders"},
		"tenants of nothing":                {"tenants: {selector: 'a=b,'}", "tenants.selector"},
		"tenants as a mapping":              {"tenants: {selector: {matchLabels: {a: b}}}", "tenants.selector"},
		"a provider that nobody knows":      {"tenants: {provider: hnc}", "tenants.provider"},
		"role":                              {"tenants: {roles: {view: true}}", "view"},
		"a reader twice":                    {"tenants: {classReaders: [a, a]}", "tenants.classReaders"},
		"a reader without a name":           {"tenants: {classReaders: ['']}", "tenants.classReaders.0"},
		"a subject for a group":             {"tenants: {classReaders: [{kind: User, name: a}]}", "tenants.classReaders.0"},
		"tag":                               {"image: {tag: a b}", "image.tag"},
		"tag as a number":                   {"image: {tag: 1.5}", "image.tag"},
		"digest in the name":                {"image: {repository: 'r/gpuctl@sha256:00'}", "image.repository"},
		"name":                              {"fullnameOverride: Under_Score", "fullnameOverride"},
		"name too long":                     {"fullnameOverride: " + strings.Repeat("a", 41), "fullnameOverride"},
		"nulled section":                    {"gpu: null", "gpu"},
		"nulled list":                       {"gpu: {resourceNames: null}", "resourceNames"},
		"wait in hours":                     {"hook: {wait: 1h}", "hook.wait"},
		"wait as a number":                  {"hook: {wait: 240}", "hook.wait"},
		"digest":                            {"image: {digest: latest}", "image.digest"},
		"pull policy":                       {"image: {pullPolicy: Sometimes}", "image.pullPolicy"},
		"port":                              {"networkPolicy: {apiServerPorts: [0]}", "networkPolicy.apiServerPorts.0"},
		"pull secret":                       {"imagePullSecrets: [pull]", "imagePullSecrets.0"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := render(t, load(t), tc.values)
			if err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), "/", "."), tc.want) {
				t.Errorf("the error is %v, want one about %s", err, tc.want)
			}
		})
	}
}

func TestSchemaAllows(t *testing.T) {
	for _, values := range []string{
		everything, "hook: {wait: 4m0s}", "hook: {wait: 240s}", "hook: {wait: 3m59s}", "hook: {wait: 90s, firstNode: 5s}", "image: {digest: ''}", "global: {any: thing}", "enabled: true",
		"agent: {interval: 0.5s, hold: 0s}", "controller: {resync: 1m0s, leaderElection: {leaseDuration: 1h10m20s, renewDeadline: 1.5s}}", "agent: {interval: 1m0s}", "agent: {updateStrategy: {type: OnDelete}}", "agent: {updateStrategy: {rollingUpdate: {maxUnavailable: 0, maxSurge: 100%}}}",
		"hook: {resources: {limits: {cpu: 1, memory: 1.5Gi}, requests: {cpu: 0.5, memory: 1e6}}}", "image: {repository: 'registry.example:5000/a/b'}",
		"kubevirt: {namespaces: [virt]}", "controller: {enabled: false}", "controller: {replicas: 1, priorityClassName: ''}", "controller: {staleAfter: 168h, resync: 1m30s}", "controller: {metrics: {enabled: false}}",
		"controller: {podDisruptionBudget: {maxUnavailable: 100%}}", "controller: {topologySpreadConstraints: []}",
		"controller: {topologySpreadConstraints: [{maxSkew: 1, minDomains: 2, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, nodeTaintsPolicy: Honor, nodeAffinityPolicy: Ignore, labelSelector: {}}]}",
		"networkPolicy: {metricsFrom: [{podSelector: {}, namespaceSelector: {}}, {ipBlock: {cidr: 10.0.0.0/8}}]}",
		"agent: {tolerations: [{key: nvidia.com/gpu, operator: Equal, value: 'true', effect: NoExecute, tolerationSeconds: 5}]}",
	} {
		if _, err := render(t, load(t), values); err != nil {
			t.Errorf("%s: %v", values, err)
		}
	}
}

// helm lint --strict.
func TestLint(t *testing.T) {
	tests := map[string]struct {
		chart, values string
		want          bool // complaints
	}{
		"defaults":      {charts.GPUOperatorHooks, "{}", false},
		"everything":    {charts.GPUOperatorHooks, everything, false},
		"nonsense":      {charts.GPUOperatorHooks, "gpu: {variant: mig}", true},
		"VM":            {vmChart, "{}", false},
		"VM with GPUs":  {vmChart, vmEverything, false},
		"VM of no kind": {vmChart, "runStrategy: Sometimes", true},
	}
	for name, tc := range tests {
		var v map[string]any
		if err := yaml.Unmarshal([]byte(tc.values), &v); err != nil {
			t.Fatal(err)
		}
		var complaints []string
		for _, m := range lint.AllWithKubeVersion(tc.chart, v, "gpuctl-system", nil).Messages {
			if m.Severity > support.InfoSev {
				complaints = append(complaints, m.Error())
			}
		}
		if got := len(complaints) > 0; got != tc.want {
			t.Errorf("%s: complaints %q, want any: %t", name, complaints, tc.want)
		}
	}
}

// Every value has its line in the chart's README.
func TestREADMEKnowsAllValues(t *testing.T) {
	for _, chart := range []string{charts.GPUOperatorHooks, vmChart} {
		readme, err1 := os.ReadFile(filepath.Join(chart, "README.md"))
		data, err2 := os.ReadFile(filepath.Join(chart, "values.yaml"))
		var values map[string]any
		if err := errors.Join(err1, err2, yaml.Unmarshal(data, &values)); err != nil {
			t.Fatal(err)
		}
		for section, v := range values {
			m, ok := v.(map[string]any)
			if !ok || len(m) == 0 {
				m = map[string]any{"": nil}
			}
			for key := range m {
				name := strings.TrimSuffix(section+"."+key, ".")
				if !strings.Contains(string(readme), "| "+name) {
					t.Errorf("README.md of %s has no line for %s", chart, name)
				}
			}
		}
	}
}
