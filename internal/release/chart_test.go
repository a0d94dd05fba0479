package release

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestLookup(t *testing.T) {
	file := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, []byte("gpu: {variant: vgpu}\nhook: {wait: 1m}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		values   Values
		defaults map[string]any
		path     string
		want     any
	}{
		"the chart's own":        {Values{}, nil, "gpu.enabled", false},
		"of the defaults":        {Values{}, tree("gpu", "enabled", true), "gpu.enabled", true},
		"beside a default":       {Values{}, tree("gpu", "enabled", true), "gpu.variant", "passthrough"},
		"--set over the default": {Values{Sets: []string{"gpu.enabled=false"}}, tree("gpu", "enabled", true), "gpu.enabled", false},
		"of a file":              {Values{Files: []string{file}}, nil, "gpu.variant", "vgpu"},
		"--set over a file":      {Values{Files: []string{file}, Sets: []string{"gpu.variant=container"}}, nil, "gpu.variant", "container"},
		"beside --set in a file": {Values{Files: []string{file}, Sets: []string{"gpu.variant=container"}}, nil, "hook.wait", "1m"},
		"--set-string":           {Values{SetStrings: []string{"image.tag=1"}}, nil, "image.tag", "1"},
		"nothing there":          {Values{}, nil, "gpu.nothing.there", nil},
	} {
		t.Run(name, func(t *testing.T) {
			given, err := tc.values.Merge()
			if err != nil {
				t.Fatal(err)
			}
			effective, err := NewEffective(given, tc.defaults)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, effective.Get(tc.path)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// What a look adds would become the user's own values, and outlive upgrades.
func TestLookupLeavesTheDefaultsAlone(t *testing.T) {
	defaults := tree("gpu", "enabled", true)
	given := map[string]any{"gpu": map[string]any{"variant": "vgpu"}}
	effective, err := NewEffective(given, defaults)
	if err != nil {
		t.Fatal(err)
	}
	if effective.Get("gpu.variant") != "vgpu" || effective.Get("gpu.enabled") != true || effective.Get("hook.wait") == nil {
		t.Errorf("the values are %v", effective)
	}
	if diff := cmp.Diff(tree("gpu", "enabled", true), defaults); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(tree("gpu", "variant", any("vgpu")), given); diff != "" {
		t.Error(diff)
	}
}

func TestValuesThatCannotBeRead(t *testing.T) {
	for name, v := range map[string]Values{
		"no such file":   {Files: []string{filepath.Join(t.TempDir(), "none.yaml")}},
		"no key=value":   {Sets: []string{"gpu.enabled"}},
		"a list in text": {Sets: []string{"gpu.resourceNames={a"}},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := v.Merge(); err == nil {
				t.Errorf("Merge() = %v, want an error", got)
			}
		})
	}
}

func tree(outer, inner string, value any) map[string]any {
	return map[string]any{outer: map[string]any{inner: value}}
}
