package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What can be said without a cluster.
func TestReleaseCommandLines(t *testing.T) {
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text := `{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}],
clusters: [{name: a, cluster: {server: "http://127.0.0.1:1"}}], users: [{name: a, user: {}}]}`
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		args string
		code int
		want string
	}{
		"install an argument":      {"install gpus", exitUsage, `see: gpuctl install --help`},
		"uninstall an argument":    {"uninstall gpu-operator-hooks", exitUsage, `see: gpuctl uninstall --help`},
		"no such flag":             {"uninstall --dry-run", exitUsage, `unknown flag: --dry-run; see: gpuctl uninstall --help`},
		"no duration":              {"upgrade --timeout 5", exitUsage, `invalid argument "5" for "--timeout"`},
		"a value without =":        {"install --set gpu.enabled", exitUsage, `key "enabled" has no value`},
		"a file that is not there": {"install -f no/such.yaml", exitUsage, `no/such.yaml: no such file or directory`},
		"no such context":          {"install --context prod", exitFailed, `see --kubeconfig and --context`},
		"install, no cluster":      {"install", exitFailed, `is the API server at http://127.0.0.1:1 up?`},
		"upgrade, no cluster":      {"upgrade", exitFailed, `is the API server at http://127.0.0.1:1 up?`},
		"uninstall, no cluster":    {"uninstall", exitFailed, `is the API server at http://127.0.0.1:1 up?`},
	} {
		t.Run(name, func(t *testing.T) {
			var out, err bytes.Buffer
			args := append(strings.Fields(tc.args), "--kubeconfig", kubeconfig)
			if code := Main("gpuctl", args, strings.NewReader(""), &out, &err); code != tc.code || out.Len() > 0 || !strings.Contains(err.String(), tc.want) {
				t.Errorf("exit %d, want %d; stdout %q, stderr %q, want %q in it", code, tc.code, out.String(), err.String(), tc.want)
			}
		})
	}
}

func TestProgress(t *testing.T) {
	for name, tc := range map[string]struct {
		terminal bool
		want     string
	}{
		"to a file":     {false, "create 3 objects\nrun hook job/wire\n"},
		"to a terminal": {true, "\r\x1b[Kcreate 3 objects …\r\x1b[Krun hook job/wire …\r\x1b[K"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			p := &progress{w: &out, terminal: tc.terminal}
			p.step("create 3 objects")
			p.step("run hook job/wire")
			p.done()
			p.done()
			if out.String() != tc.want {
				t.Errorf("printed %q, want %q", out.String(), tc.want)
			}
		})
	}
}
