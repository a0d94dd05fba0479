package charts_test

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"sigs.k8s.io/yaml"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/charts"
)

var update = flag.Bool("update", false, "write the golden files")

// load loads the chart that installs gpuctl.
func load(t *testing.T) *chart.Chart {
	t.Helper()
	return loadChart(t, charts.GPUOperatorHooks)
}

func loadChart(t *testing.T, name string) *chart.Chart {
	t.Helper()
	c, err := loader.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// first is the first revision of a release.
var first = chartutil.ReleaseOptions{Name: "gpu-operator-hooks", Namespace: "gpuctl-system", Revision: 1, IsInstall: true}

// render renders a chart with values in YAML, as helm template does.
func render(t *testing.T, c *chart.Chart, values string) (map[string]string, error) {
	t.Helper()
	return renderAs(t, c, values, first)
}

func renderAs(t *testing.T, c *chart.Chart, values string, options chartutil.ReleaseOptions) (map[string]string, error) {
	t.Helper()
	var v map[string]any
	if err := yaml.Unmarshal([]byte(values), &v); err != nil {
		t.Fatal(err)
	}
	if err := chartutil.ProcessDependenciesWithMerge(c, v); err != nil {
		t.Fatal(err)
	}
	all, err := chartutil.ToRenderValues(c, v, options, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	return engine.Render(c, all)
}

// text joins what was rendered, without empty files and the CRDs, which are as they
// are in files/crds.
func text(files map[string]string) string {
	var names []string
	for name, content := range files {
		if base := filepath.Base(name); strings.TrimSpace(content) != "" && !strings.HasPrefix(base, "_") && base != "crds.yaml" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var b strings.Builder
	for _, name := range names {
		b.WriteString("# Source: " + name + "\n" + strings.TrimSpace(files[name]) + "\n")
	}
	return b.String()
}

const everything = `
gpu:
  enabled: true
  permittedHostDevices:
    pciHostDevices: [{pciVendorSelector: "10DE:2335", resourceName: nvidia.com/GH100_H200_SXM_141GB, externalResourceProvider: true}]
    mediatedDevices: [{mdevNameSelector: "GRID T4-16Q", resourceName: nvidia.com/GRID_T4-16Q}]
  resourceNames: [example.com/gpu]
hook: {strict: true, wait: 2m30s, forceRemove: true, nodeSelector: {infra: "true"}, tolerations: [{key: infra, operator: Exists}], podAnnotations: {a: b}, serviceAccountAnnotations: {c: d}}
agent: {nodeSelector: {gpu: "yes"}, priorityClassName: system-node-critical, podAnnotations: {a: b}, serviceAccountAnnotations: {c: d}}
controller:
  replicas: 3
  logLevel: debug
  staleAfter: 36h
  resync: 10m
  leaderElection: {leaseDuration: 30s, renewDeadline: 20s, retryPeriod: 5s}
  metrics: {port: 9443}
  nodeSelector: {infra: "true"}
  affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchExpressions: [{key: infra, operator: Exists}]}}]}}
  tolerations: [{key: infra, operator: Exists}]
  topologySpreadConstraints:
    - {maxSkew: 1, topologyKey: rack, whenUnsatisfiable: DoNotSchedule}
    - {maxSkew: 2, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {my: own}}}
  priorityClassName: high
  podDisruptionBudget: {maxUnavailable: 50%}
  serviceAccountAnnotations: {c: d}
  podAnnotations: {a: b}
networkPolicy: {metricsFrom: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}]}
orders: {enabled: true}
kubevirt: {namespaces: [virt]}
webhook: {port: 9444}
tenants: {classReaders: [tenants, "oidc:customers"]}
image: {repository: registry.example/gpuctl, digest: "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}
imagePullSecrets: [{name: pull}]
global: {imagePullSecrets: [everywhere]}
`

func TestTemplates(t *testing.T) {
	tests := map[string]string{
		"disabled":    "{}",
		"passthrough": "gpu: {enabled: true}",
		"vgpu":        "gpu: {enabled: true, variant: vgpu, permittedHostDevices: {mediatedDevices: [{mdevNameSelector: NVIDIA A10-12Q, resourceName: nvidia.com/NVIDIA_A10-12Q}]}}",
		"container":   "gpu: {enabled: true, variant: container}",
		"everything":  everything,
		"bare":        "{gpu: {enabled: true}, hook: {enabled: false}, agent: {enabled: false}, controller: {enabled: false}, crds: {enabled: false}, networkPolicy: {enabled: false}}",
		"orders":      "{gpu: {enabled: true}, orders: {enabled: true}, hook: {enabled: false}, agent: {enabled: false}, controller: {metrics: {enabled: false}}}",
		"orders-only": "{gpu: {enabled: true, resourceNames: [example.com/gpu]}, orders: {enabled: true}, tenants: {selector: 'tenant=true', provider: cozystack, roles: {enabled: false}, classReaders: []}, hook: {enabled: false}, agent: {enabled: false}, networkPolicy: {enabled: false}}",
		"certmanager": "{gpu: {enabled: true}, hook: {enabled: false}, agent: {enabled: false}, orders: {enabled: true}, webhook: {port: 9444, certManager: {enabled: true}}}",
		"controller":  "{gpu: {enabled: true}, hook: {enabled: false}, agent: {enabled: false}, controller: {replicas: 1, metrics: {enabled: false}, topologySpreadConstraints: [], priorityClassName: ''}, crds: {enabled: false}, networkPolicy: {enabled: false}}",
	}
	for name, values := range tests {
		t.Run(name, func(t *testing.T) {
			files, err := render(t, load(t), values)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, name, text(files))
		})
	}
}

// The chart installs under another one, gpu-operator for example, whose release it
// then belongs to, and whose condition may leave it out.
func TestSubchart(t *testing.T) {
	tests := map[string]string{
		"subchart":          "{gpu-operator-hooks: {gpu: {enabled: true}}, global: {imagePullSecrets: [{name: pull}]}}",
		"subchart-disabled": "{gpu-operator-hooks: {enabled: true}}",
		"subchart-left-out": "{gpu-operator-hooks: {enabled: false, gpu: {enabled: true}}}",
	}
	for name, values := range tests {
		t.Run(name, func(t *testing.T) {
			parent, err := loader.Load("testdata/parent")
			if err != nil {
				t.Fatal(err)
			}
			parent.SetDependencies(load(t))
			release := first
			release.Name, release.Namespace = "gpu-operator", "nvidia"
			files, err := renderAs(t, parent, values, release)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, name, text(files))
		})
	}
}

// An upgrade that changes nothing changes no object: only the hook's, which are made
// anew each time, know the revision.
func TestUpgradeChangesNothing(t *testing.T) {
	before, err1 := renderAs(t, load(t), everything, first)
	second := first
	second.Revision, second.IsInstall, second.IsUpgrade = 2, false, true
	after, err2 := renderAs(t, load(t), everything, second)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	const job = "gpu-operator-hooks/templates/hook/job.yaml"
	if before[job] == after[job] {
		t.Error("the hook's Job does not know its revision")
	}
	delete(before, job)
	delete(after, job)
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("an upgrade changes (-before +after):\n%s", diff)
	}
}

// Two releases have nothing that belongs to the whole cluster in common but the CRDs.
func TestReleasesDoNotClash(t *testing.T) {
	other := first
	other.Namespace = "other"
	seen := map[string]bool{}
	for i, release := range []chartutil.ReleaseOptions{first, other} {
		files, err := renderAs(t, load(t), everything, release)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range objects(t, files) {
			key := o.Kind + " " + o.Metadata.Namespace + "/" + o.Metadata.Name
			if seen[key] && o.Kind != "CustomResourceDefinition" {
				t.Errorf("release %d has %s as well", i, key)
			}
			seen[key] = true
			if o.Metadata.Namespace != "" && o.Metadata.Namespace != release.Namespace {
				t.Errorf("%s is not in the release's namespace", key)
			}
		}
	}
	if len(seen) < 60 {
		t.Errorf("compared %d objects only", len(seen))
	}
}

// CRDs outlive the release, and Helm knows whose they are. Kinds that nothing acts on
// yet are installed for who asks for them only.
func TestCRDsAreKept(t *testing.T) {
	for name, tc := range map[string]struct {
		values string
		want   []string
	}{
		"by default": {"gpu: {enabled: true}", []string{"gpunodes.gpuctl.dev", "gpuwirings.gpuctl.dev"}},
		"orders": {
			"{gpu: {enabled: true}, orders: {enabled: true}}",
			[]string{"gpuclasses.gpuctl.dev", "gpudevices.gpuctl.dev", "gpunodes.gpuctl.dev", "gpuwirings.gpuctl.dev"},
		},
		"orders, by a second release": {"{gpu: {enabled: true}, orders: {enabled: true}, crds: {enabled: false}}", nil},
	} {
		t.Run(name, func(t *testing.T) {
			var crds []string
			for _, o := range objects(t, mustRender(t, tc.values)) {
				if o.Kind != "CustomResourceDefinition" {
					continue
				}
				crds = append(crds, o.Metadata.Name)
				if o.Metadata.Annotations["helm.sh/resource-policy"] != "keep" || o.Metadata.Labels["app.kubernetes.io/instance"] != first.Name {
					t.Errorf("%s: labels %v, annotations %v", o.Metadata.Name, o.Metadata.Labels, o.Metadata.Annotations)
				}
			}
			if diff := cmp.Diff(tc.want, crds); diff != "" {
				t.Errorf("CRDs (-want +got):\n%s", diff)
			}
		})
	}
}

// What reads the settings can read what the chart writes, whatever the values.
func TestSettingsDecode(t *testing.T) {
	for name, tc := range map[string]struct {
		values string
		want   []string
	}{
		"none": {"gpu: {enabled: true}", []string{}},
		"two":  {"gpu: {enabled: true, resourceNames: [example.com/gpu, nvidia.com/NVIDIA_A10-12Q]}", []string{"example.com/gpu", "nvidia.com/NVIDIA_A10-12Q"}},
	} {
		t.Run(name, func(t *testing.T) {
			settings, found := as[struct{ Data map[string]string }](t, mustRender(t, tc.values), "ConfigMap", v1alpha1.SettingsName)
			if !found {
				t.Fatal("there is no such ConfigMap")
			}
			got, err := v1alpha1.DecodeResourceNames(settings.Data)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("resource names (-want +got):\n%s", diff)
			}
		})
	}
}

// object is what these tests look at of an object.
type object struct {
	Kind     string
	Metadata struct {
		Name, Namespace     string
		Labels, Annotations map[string]string
	}
}

// objects returns all objects that were rendered.
func objects(t *testing.T, files map[string]string) []object {
	t.Helper()
	var out []object
	for name, content := range files {
		if filepath.Ext(name) != ".yaml" {
			continue
		}
		for document := range strings.SplitSeq("\n"+content, "\n---") {
			var o object
			if err := yaml.Unmarshal([]byte(document), &o); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if o.Kind != "" {
				out = append(out, o)
			}
		}
	}
	return out
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", "golden", name+".yaml")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got; -update writes it):\n%s", path, diff)
	}
}

// What touches nothing renders nothing.
func TestNothingButTheNote(t *testing.T) {
	for name, values := range map[string]string{"disabled": "{}", "container": "gpu: {enabled: true, variant: container}"} {
		files, err := render(t, load(t), values)
		if err != nil {
			t.Fatal(err)
		}
		for file, content := range files {
			if base := filepath.Base(file); strings.TrimSpace(content) != "" && base != "NOTES.txt" {
				t.Errorf("%s: %s is rendered:\n%s", name, file, content)
			}
		}
	}
}
