package charts_test

import (
	"flag"
	"io/fs"
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

	"github.com/gpuctl/gpuctl/charts"
)

var update = flag.Bool("update", false, "write the golden files")

// load loads the embedded chart.
func load(t *testing.T) *chart.Chart {
	t.Helper()
	var files []*loader.BufferedFile
	err := fs.WalkDir(charts.FS, charts.GPUOperatorHooks, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := charts.FS.ReadFile(path)
		files = append(files, &loader.BufferedFile{Name: strings.TrimPrefix(path, charts.GPUOperatorHooks+"/"), Data: data})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	c, err := loader.LoadFiles(files)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// render renders a chart with values in YAML, as helm template does.
func render(t *testing.T, c *chart.Chart, values string) (map[string]string, error) {
	t.Helper()
	var v map[string]any
	if err := yaml.Unmarshal([]byte(values), &v); err != nil {
		t.Fatal(err)
	}
	options := chartutil.ReleaseOptions{Name: "gpu-operator-hooks", Namespace: "gpuctl-system", Revision: 1, IsInstall: true}
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
		"bare":        "{gpu: {enabled: true}, hook: {enabled: false}, agent: {enabled: false}, crds: {enabled: false}, networkPolicy: {enabled: false}}",
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

// The chart installs under another one, gpu-operator for example.
func TestSubchart(t *testing.T) {
	parent, err := loader.Load("testdata/parent")
	if err != nil {
		t.Fatal(err)
	}
	parent.SetDependencies(load(t))
	files, err := render(t, parent, "{gpu-operator-hooks: {gpu: {enabled: true}}, global: {imagePullSecrets: [{name: pull}]}}")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "subchart", text(files))
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
