package release

import (
	"fmt"
	"io/fs"
	"strings"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/cli"
	"helm.sh/helm/v3/pkg/cli/values"
	"helm.sh/helm/v3/pkg/getter"

	"github.com/gpuctl/gpuctl/charts"
)

// load loads the embedded chart.
func load() (*chart.Chart, error) {
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
		return nil, fmt.Errorf("read the embedded chart: %w", err)
	}
	c, err := loader.LoadFiles(files)
	if err != nil {
		return nil, fmt.Errorf("load the embedded chart: %w", err)
	}
	return c, nil
}

// Values are values as the user gives them, in the order in which they count:
// files, then --set, then --set-string.
type Values struct {
	Files      []string // "-" is stdin
	Sets       []string // key=value
	SetStrings []string
}

// Merge reads the values into one mapping. It is called once: stdin is gone then.
func (v *Values) Merge() (map[string]any, error) {
	o := values.Options{ValueFiles: v.Files, Values: v.Sets, StringValues: v.SetStrings}
	merged, err := o.MergeValues(getter.All(cli.New()))
	if err != nil {
		return nil, fmt.Errorf("read the values: %w", err)
	}
	return merged, nil
}

// below adds to the given values copies of what they lack of the defaults.
func below(given, defaults map[string]any) {
	for key, d := range defaults {
		deeper, deep := d.(map[string]any)
		have, there := given[key]
		inner, ok := have.(map[string]any)
		switch {
		case !there && deep:
			own := map[string]any{}
			below(own, deeper)
			given[key] = own
		case !there:
			given[key] = d
		case ok && deep:
			below(inner, deeper)
		}
	}
}

// over returns copies of the layers' values, the first above the others.
func over(layers ...map[string]any) map[string]any {
	out := map[string]any{}
	for _, layer := range layers {
		below(out, layer)
	}
	return out
}

// Effective is what a release is rendered with: the first of the layers above the
// others, and all above the chart's own values.
type Effective map[string]any

// NewEffective makes the values of the layers, which it leaves alone.
func NewEffective(layers ...map[string]any) (Effective, error) {
	c, err := load()
	if err != nil {
		return nil, err
	}
	return over(append(layers, c.Values)...), nil
}

// Get returns the value at a dotted path, nil when there is none.
func (e Effective) Get(path string) any {
	var at any = map[string]any(e)
	for key := range strings.SplitSeq(path, ".") {
		m, _ := at.(map[string]any)
		at = m[key]
	}
	return at
}
