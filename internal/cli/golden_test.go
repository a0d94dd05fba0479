package cli

import (
	"bytes"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/google/go-cmp/cmp"

	"github.com/gpuctl/gpuctl/internal/bundle"
	"github.com/gpuctl/gpuctl/internal/manifest"
)

var update = flag.Bool("update", false, "write the golden files")

// scene packs the cluster of testdata/scene as of a fixed time, so that its ages do
// not change.
func scene(t *testing.T) string {
	t.Helper()
	docs, skipped, err := manifest.Load(nil, "testdata/scene/cluster.yaml")
	if err != nil || len(skipped) > 0 {
		t.Fatal(err, skipped)
	}
	file := filepath.Join(t.TempDir(), "scene.tar.gz")
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	if err := bundle.Write(file, &bundle.Bundle{About: bundle.About{Read: at, Packed: at, Pods: true, Agents: true, Control: true}, Docs: docs}); err != nil {
		t.Fatal(err)
	}
	return file
}

// shown are the commands whose output is kept in testdata/golden, in every format
// that they know. SCENE stands for the bundle of the scene.
var shown = map[string]struct {
	args    string
	formats []string
}{
	"status":          {"status -f SCENE", []string{"table", "wide", "json", "yaml", "short"}},
	"diagnose":        {"diagnose -f SCENE", []string{"table", "wide", "json", "yaml", "short"}},
	"diagnose-vm":     {"diagnose -f SCENE vm/trainer -n tenant-acme", []string{"table", "wide", "json", "yaml", "short"}},
	"diagnose-busy":   {"diagnose -f SCENE vm/render-c -n tenant-blue", []string{"table", "json", "short"}},
	"diagnose-good":   {"diagnose -f SCENE vm/bert -n tenant-acme", []string{"table", "json", "short"}},
	"diagnose-node":   {"diagnose -f SCENE node/worker-7", []string{"table", "json"}},
	"discover":        {"discover --lspci hgx=testdata/cases/44-hgx-h200-with-nvswitches/lspci.txt", []string{"table", "wide", "json", "yaml"}},
	"wire":            {"wire -f testdata/cases/20-cozystack-default-cr/kubevirt.yaml -f testdata/cases/20-cozystack-default-cr/node.yaml", []string{"diff", "yaml", "json"}},
	"explain":         {"explain GPU0204", []string{"text", "json", "yaml"}},
	"explain-refusal": {"explain GPU0711", []string{"text"}},
	"explain-all":     {"explain", []string{"text"}},
	"usage-subject":   {"diagnose pod/x", []string{""}},
	"usage-vm":        {"diagnose vm/nobody -f SCENE", []string{""}},
	"usage-elsewhere": {"diagnose vm/trainer -f SCENE", []string{""}},
	"usage-format":    {"status -o xml", []string{""}},
	"usage-both":      {"status -f SCENE --context other", []string{""}},
	"usage-name-a":    {"devices train-a -A", []string{""}},
	"usage-name-l":    {"devices train-a -l a=b", []string{""}},
	"usage-selector":  {"devices -l a=b=c", []string{""}},
	"usage-two-w":     {"classes h200 a10 -w", []string{""}},
	"usage-watch":     {"status --watch -f SCENE", []string{""}},
}

func TestGolden(t *testing.T) {
	file := scene(t)
	t.Setenv("KUBECONFIG", "/nonexistent")
	for name, tc := range shown {
		for _, format := range tc.formats {
			t.Run(name+"."+format, func(t *testing.T) {
				args := strings.Fields(strings.ReplaceAll(tc.args, "SCENE", file))
				if format != "" {
					args = append(args, "-o", format)
				}
				code, stdout, stderr := run(t, args...)
				compareGolden(t, strings.TrimSuffix(name+"."+format, "."), file, code, stdout, stderr)
			})
		}
	}
}

func compareGolden(t *testing.T, name, file string, code int, stdout, stderr string) {
	t.Helper()
	got := stdout
	if stderr != "" {
		got += "--- stderr\n" + stderr
	}
	compareText(t, name, strings.ReplaceAll(got, file, "SCENE")+"--- exit code "+string(rune('0'+code))+"\n")
}

// compareText compares a text with its golden file.
func compareText(t *testing.T, name, got string) {
	t.Helper()
	golden := filepath.Join("testdata", "golden", name+".golden")
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got), go test -update accepts it:\n%s", golden, diff)
	}
}

// onTerminal runs gpuctl at a terminal of a given width and returns what was shown.
func onTerminal(t *testing.T, columns uint16, args ...string) string {
	t.Helper()
	screen, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer screen.Close()
	if err := pty.Setsize(tty, &pty.Winsize{Rows: 40, Cols: columns}); err != nil {
		t.Fatal(err)
	}
	out := make(chan string)
	go func() {
		var seen bytes.Buffer
		_, _ = io.Copy(&seen, screen) // it ends with an error when the other side is closed
		out <- seen.String()
	}()
	Main("gpuctl", args, strings.NewReader(""), tty, tty)
	if err := tty.Close(); err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(<-out, "\r\n", "\n")
}

// TestTerminal keeps what a terminal shows: with symbols and colour, broken to its
// width.
func TestTerminal(t *testing.T) {
	file := scene(t)
	t.Setenv("TERM", "xterm-256color")
	t.Setenv("LANG", "C.UTF-8")
	t.Setenv("LC_ALL", "")
	t.Setenv("LC_CTYPE", "")
	t.Setenv("NO_COLOR", "")
	t.Setenv("COLUMNS", "")
	for name, args := range map[string]string{
		"status": "status -f SCENE", "diagnose-vm": "diagnose -f SCENE vm/trainer -n tenant-acme", "diagnose-busy": "diagnose -f SCENE vm/render-c -n tenant-blue", "diagnose": "diagnose -f SCENE", "diagnose-node": "diagnose -f SCENE node/worker-7",
	} {
		for width, columns := range map[string]uint16{"80": 80, "120": 120} {
			t.Run(name+" "+width, func(t *testing.T) {
				got := onTerminal(t, columns, strings.Fields(strings.ReplaceAll(args, "SCENE", file))...)
				compareGolden(t, "terminal-"+name+"-"+width, file, 0, got, "")
				for line := range strings.Lines(got) {
					if n := visible(line); n > int(columns) {
						t.Errorf("a line of %d columns: %q", n, line)
					}
				}
			})
		}
	}
}

// TestNoColour shows that NO_COLOR leaves the symbols and takes the colours, and that
// a dumb terminal gets plain text.
func TestNoColour(t *testing.T) {
	file := scene(t)
	t.Setenv("TERM", "xterm")
	t.Setenv("LANG", "C.UTF-8")
	t.Setenv("LC_ALL", "")
	t.Setenv("LC_CTYPE", "")
	t.Setenv("NO_COLOR", "1")
	if got := onTerminal(t, 80, "status", "-f", file); strings.Contains(got, "\x1b[") || !strings.Contains(got, "■■■■□□□□") {
		t.Errorf("with NO_COLOR the screen is %q", got)
	}
	t.Setenv("NO_COLOR", "")
	if got := onTerminal(t, 80, "status", "-f", file); !strings.Contains(got, "\x1b[") {
		t.Errorf("without NO_COLOR there is no colour: %q", got)
	}
	t.Setenv("LANG", "C")
	if got := onTerminal(t, 80, "status", "-f", file); strings.Contains(got, "■") || !strings.Contains(got, "####") {
		t.Errorf("without a UTF-8 locale the screen is %q", got)
	}
	t.Setenv("TERM", "dumb")
	if got := onTerminal(t, 80, "status", "-f", file); strings.Contains(got, "\x1b[") || !strings.Contains(got, "####....") {
		t.Errorf("a dumb terminal shows %q", got)
	}
}

// visible counts the columns of a line without its colours.
func visible(line string) int {
	n, escape := 0, false
	for _, r := range strings.TrimRight(line, "\n") {
		switch {
		case r == '\x1b':
			escape = true
		case escape:
			escape = r != 'm' && r != 'K'
		default:
			n++
		}
	}
	return n
}
