package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuctl/gpuctl/test/fakesys"
)

const vectors = "../gpu/testdata/vectors"

// TestDiscoverPredictsThePlugin reads made-up hosts through the whole command and
// compares what it predicts with what the real plugin registered on them: names
// and device ids, by release.
func TestDiscoverPredictsThePlugin(t *testing.T) {
	want := registered(t)
	trees := map[string]string{}
	for key, resources := range want {
		layout, release, _ := strings.Cut(key, " ")
		if trees[layout] == "" {
			trees[layout] = tree(t, layout)
		}
		code, stdout, stderr := run(t, "discover", "--root", trees[layout], "--plugin-version", release, "-o", "json")
		if code != 0 {
			t.Fatalf("%s: exit %d\n%s", key, code, stderr)
		}
		var view struct {
			Nodes []struct {
				Plugin struct {
					Resources []struct {
						Name      string
						DeviceIDs []string
						Collides  bool
					}
				}
			}
		}
		if err := json.Unmarshal([]byte(stdout), &view); err != nil {
			t.Fatal(err)
		}
		got := map[string][]string{}
		for _, r := range view.Nodes[0].Plugin.Resources {
			if !r.Collides { // the plugin then shows one half, in a race
				slices.Sort(r.DeviceIDs)
				got[r.Name] = r.DeviceIDs
			}
		}
		if diff := cmp.Diff(resources, got); diff != "" {
			t.Errorf("layout %s, plugin %s (-real +predicted):\n%s", layout, release, diff)
		}
	}
}

// registered returns what the real plugin did, by "layout release": the device
// ids of every resource name. Runs with faults and name collisions are left out.
func registered(t *testing.T) map[string]map[string][]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(vectors, "plugin_runs.tsv"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]map[string][]string{}
	for line := range strings.Lines(string(text)) {
		f := strings.Split(line, "\t")
		if f[0] == "layout" || strings.Contains(f[0], "/") {
			continue
		}
		key := f[0] + " " + f[1]
		if out[key] == nil {
			out[key] = map[string][]string{}
		}
		if !strings.Contains(line, "COLLISION") {
			ids := strings.Split(f[4], ",")
			slices.Sort(ids)
			out[key][f[2]] = ids
		}
	}
	if len(out) < 60 {
		t.Fatalf("%d runs, want at least 60", len(out))
	}
	return out
}

func tree(t *testing.T, layout string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(vectors, "layouts", layout+".tsv"))
	if err != nil {
		t.Fatal(err)
	}
	machine, err := fakesys.ParseLayout(string(text))
	if err != nil {
		t.Fatal(err)
	}
	return fakesys.New(t, machine.Host, machine.Omit...)
}
