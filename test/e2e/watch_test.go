package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/test/cluster"
)

// watched is a running gpuctl status --watch, and what it has printed.
type watched struct {
	cmd   *exec.Cmd
	mu    sync.Mutex
	lines []string
	done  chan struct{} // closed when all is read
}

// watch starts gpuctl with a kubeconfig, and stops it when the test ends.
func watch(t *testing.T, kubeconfig string, args ...string) *watched {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	w := &watched{cmd: exec.Command(path, args...), done: make(chan struct{})}
	w.cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go w.read(out)
	t.Cleanup(func() { _ = w.cmd.Process.Kill() })
	return w
}

func (w *watched) read(out io.Reader) {
	defer close(w.done)
	for scanner := bufio.NewScanner(out); scanner.Scan(); {
		w.mu.Lock()
		w.lines = append(w.lines, scanner.Text())
		w.mu.Unlock()
	}
}

// shows returns a check that the last line starts with a text.
func (w *watched) shows(prefix string) func(context.Context) error {
	return func(context.Context) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.lines) == 0 || !strings.HasPrefix(w.lines[len(w.lines)-1], prefix) {
			return errorf("shown so far: %q", w.lines)
		}
		return nil
	}
}

// TestStatusWatch changes a cluster under a watch, takes the way to it away and gives
// it back, and stops the watch as a terminal does.
func TestStatusWatch(t *testing.T) {
	c := shared.For(t)
	unwired(c)
	noInstances(c)
	c.AddNode(gpuNode("watched", "nvidia.com/GA102GL_A10", 2))
	way := dropping(t, c, false)
	w := watch(t, c.KubeconfigFor(way.config), "status", "--watch", "--interval", "100ms", "-o", "short")
	const patience = 20 * time.Second
	c.Eventually(patience, "the first look", w.shows("2 GPUs: 2 free, 0 used"))
	c.SetAllocatable("watched", "nvidia.com/GA102GL_A10", 1)
	c.Eventually(patience, "the change", w.shows("1 GPUs: 1 free, 0 used"))
	way.block(true)
	c.Eventually(patience, "the lost cluster", w.shows("error: "))
	way.block(false)
	c.Eventually(patience, "the cluster again", w.shows("1 GPUs: 1 free, 0 used"))
	if err := w.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	<-w.done
	if err := w.cmd.Wait(); err != nil {
		t.Errorf("a watch that is stopped ends with %v", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := 1; i < len(w.lines); i++ {
		if w.lines[i] == w.lines[i-1] {
			t.Errorf("line %d repeats the one before: %q", i+1, w.lines[i])
		}
	}
}

// TestCompletionOfNames asks for names as a shell does when tab is pressed.
func TestCompletionOfNames(t *testing.T) {
	c := shared.For(t)
	unwired(c)
	ns := c.Namespace()
	c.AddNode(cluster.Node{Name: "completed"})
	c.Create(vmi(c, ns, "completed-vmi", "gpus", "nvidia.com/X"))
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"nodes":      {[]string{"diagnose", "node/"}, "node/completed"},
		"instances":  {[]string{"diagnose", "-n", ns, "vmi/"}, "vmi/completed-vmi"},
		"namespaces": {[]string{"status", "-n", ""}, ns},
		"other flag": {[]string{"wire", "--context", ""}, "gpuctl-test"},
	} {
		t.Run(name, func(t *testing.T) {
			args := slices.Concat([]string{"__complete", tc.args[0], "--kubeconfig", c.Kubeconfig()}, tc.args[1:])
			code, stdout, stderr := run(args...)
			if lines := strings.Split(stdout, "\n"); code != 0 || !slices.Contains(lines, tc.want) {
				t.Errorf("exit %d, %q is not among %q\n%s", code, tc.want, lines, stderr)
			}
		})
	}
}

// TestInventoryBesideCluster gives lspci of a node whose agent is not installed, while
// the cluster is read: both are looked at.
func TestInventoryBesideCluster(t *testing.T) {
	c := shared.For(t)
	unwired(c)
	noInstances(c)
	c.AddNode(gpuNode("worker-1", h200, 1))
	lspci := filepath.Join(t.TempDir(), "lspci.txt")
	text := "18:00.0 3D controller [0302]: NVIDIA Corporation GH100 [H200 SXM 141GB] [10de:2335] (rev a1)\n\tKernel driver in use: vfio-pci\n" +
		"2a:00.0 3D controller [0302]: NVIDIA Corporation GH100 [H200 SXM 141GB] [10de:2335] (rev a1)\n\tKernel driver in use: nvidia\n"
	if err := os.WriteFile(lspci, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	stdout, _ := succeed(t, c, "status", "-o", "json", "--fail-on", "never", "--lspci", "worker-1="+lspci)
	var o diagnose.Overview
	if err := json.Unmarshal([]byte(stdout), &o); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(diagnose.Tally{Free: 1, Unusable: 1}, o.Totals.GPUs); diff != "" {
		t.Errorf("GPUs (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(diagnose.AgentsView{Known: true, Silent: []diagnose.SilentView{}}, o.Agents); diff != "" {
		t.Errorf("agents (-want +got):\n%s", diff)
	}
}
