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

// merge merges the values; defaults are below all of them.
func (v *Values) merge(defaults map[string]any) (map[string]any, error) {
	o := values.Options{ValueFiles: v.Files, Values: v.Sets, StringValues: v.SetStrings}
	merged, err := o.MergeValues(getter.All(cli.New()))
	if err != nil {
		return nil, fmt.Errorf("read the values: %w", err)
	}
	below(merged, defaults)
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

// Lookup returns the value at a dotted path of the given values over the chart's
// own, nil when there is none.
func (v *Values) Lookup(defaults map[string]any, path string) (any, error) {
	merged, err := v.merge(defaults)
	if err != nil {
		return nil, err
	}
	c, err := load()
	if err != nil {
		return nil, err
	}
	below(merged, c.Values)
	var at any = merged
	for key := range strings.SplitSeq(path, ".") {
		m, _ := at.(map[string]any)
		at = m[key]
	}
	return at, nil
}
