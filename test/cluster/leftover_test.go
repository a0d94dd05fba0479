package cluster

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// childMode is the environment variable that has TestChild do something. Its
// value says how the child ends.
const childMode = "GPUCTL_CLUSTER_CHILD"

// Nothing is left of a cluster, however the process that started it ends.
func TestNothingIsLeftBehind(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("reads /proc")
	}
	t.Parallel()
	for name, tc := range map[string]struct {
		mode       string
		signal     syscall.Signal
		components int
		want       []string // left in the cluster's folder, at least
	}{
		"test fails":    {mode: "fail", components: 2, want: []string{"logs"}},
		"test panics":   {mode: "panic", components: 2, want: []string{"logs"}},
		"another panic": {mode: "crash", components: 2, want: []string{"etcd", "logs", "pki"}},
		"Ctrl-C":        {mode: "wait", signal: syscall.SIGINT, components: 2},
		"killed, with KubeVirt": {mode: "whole", signal: syscall.SIGKILL, components: 7, // one is a pod
			want: []string{"etcd", "logs", "pki"}},
	} {
		t.Run(name, func(t *testing.T) {
			child := startChild(t, tc.mode)
			processes := mentioning(t, child.dir)
			ports := portsIn(processes)
			if len(processes) != tc.components || len(ports) < tc.components {
				t.Fatalf("the child has %d processes, want %d, on ports %v: %q", len(processes), tc.components, ports, processes)
			}
			child.end(t, tc.signal)
			awaitNone(t, child.dir, ports)
			left := filesIn(child.dir)
			for _, name := range tc.want {
				if !slices.Contains(left, name) {
					t.Errorf("the folder holds %q, but not %q", left, name)
				}
			}
			if len(tc.want) < 2 && len(left) != len(tc.want) {
				t.Errorf("the folder holds %q, want %q", left, tc.want)
			}
			sweep(filepath.Dir(child.dir), time.Now().Add(time.Hour))
			if left := filesIn(child.dir); len(left) > 0 && !slices.Equal(left, []string{"logs"}) {
				t.Errorf("the start of another cluster leaves %q", left)
			}
		})
	}
}

// TestChild is what TestNothingIsLeftBehind runs.
func TestChild(t *testing.T) {
	mode := os.Getenv(childMode)
	if mode == "" {
		t.Skip("is run by TestNothingIsLeftBehind")
	}
	contents := func(o *options) { o.kind = bare }
	if mode == "whole" {
		contents = func(*options) {}
	}
	c := Start(t, contents)
	if mode == "whole" {
		runPodOf(t, c)
	}
	fmt.Printf("dir=%s\n", c.stack.dir.path)
	// Nothing comes, but the end of the pipe when the parent has looked around.
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		t.Fatal(err)
	}
	switch mode {
	case "fail":
		t.FailNow()
	case "panic":
		panic("on purpose")
	case "crash":
		go panic("on purpose, where nothing can be cleaned up")
		select {}
	}
}

// runPodOf has a pod of the test binary run that mentions the cluster's folder.
func runPodOf(t *testing.T, c *Cluster) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c.RunImage("registry.invalid/left", self)
	c.AddNode(Node{Name: "left"})
	u := c.Create(c.Decode(`
apiVersion: v1
kind: Pod
metadata: {name: left, namespace: default}
spec:
  containers:
  - {name: main, image: registry.invalid/left, args: [hang, "--at=/scratch"], env: [{name: GPUCTL_POD_PROGRAM, value: "1"}],
     volumeMounts: [{name: scratch, mountPath: /scratch}]}
  volumes: [{name: scratch, emptyDir: {}}]`))
	c.must("run a pod", func(ctx context.Context) error {
		return poll(ctx, func(ctx context.Context) error {
			pod, err := c.Clientset().CoreV1().Pods("default").Get(ctx, u.GetName(), metav1.GetOptions{})
			if err == nil && pod.Status.Phase != corev1.PodRunning {
				err = fmt.Errorf("it is %s", describePod(pod))
			}
			return err
		})
	})
}

type child struct {
	cmd    *exec.Cmd
	stdin  io.Closer
	output *buffer
	dir    string // of its cluster
}

// startChild runs TestChild until its cluster is there.
func startChild(t *testing.T, mode string) child {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := child{cmd: exec.CommandContext(t.Context(), program, "-test.run=^TestChild$", "-test.v"), output: &buffer{}}
	c.cmd.Env = append(os.Environ(), childMode+"="+mode, "TMPDIR="+shortTempDir(t))
	c.cmd.Stderr = c.output
	stdin, err := c.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.stdin = stdin
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		if dir, ok := strings.CutPrefix(lines.Text(), "dir="); ok {
			c.dir = dir
			go func() { _, _ = io.Copy(io.Discard, stdout) }()
			return c
		}
		fmt.Fprintln(c.output, lines.Text())
	}
	t.Fatalf("the child did not start a cluster:\n%s", c.output)
	return c
}

// shortTempDir returns a folder whose name leaves room for that of a socket.
func shortTempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "leftover-") //nolint:usetesting // its names are too long
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// end ends the child by a signal, or lets it end by itself.
func (c child) end(t *testing.T, signal syscall.Signal) {
	t.Helper()
	if signal != 0 {
		if err := c.cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
	} else if err := c.stdin.Close(); err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Wait(); err == nil {
		t.Errorf("the child ended well:\n%s", c.output)
	}
}

// mentioning returns the command lines of all processes, other than the child,
// in which a path is mentioned.
func mentioning(t *testing.T, path string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err == nil && bytes.Contains(data, []byte(path)) {
			found = append(found, string(bytes.ReplaceAll(data, []byte{0}, []byte(" "))))
		}
	}
	return found
}

// portsIn returns the ports on which programs listen by their command lines.
func portsIn(commandLines []string) []int {
	var ports []int
	for _, line := range commandLines {
		for _, match := range regexp.MustCompile(`(?:port=|listen-\S*=http://127\.0\.0\.1:)(\d+)`).FindAllStringSubmatch(line, -1) {
			port, _ := strconv.Atoi(match[1])
			ports = append(ports, port)
		}
	}
	return ports
}

// awaitNone waits until no process mentions a path and nothing listens on ports.
// The kernel needs a moment.
func awaitNone(t *testing.T, path string, ports []int) {
	t.Helper()
	var left []string
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(interval) {
		left = mentioning(t, path)
		for _, port := range ports {
			conn, err := net.DialTimeout("tcp", loopback(port), time.Second)
			if err == nil {
				left = append(left, fmt.Sprintf("a server on port %d (%v)", port, conn.Close()))
			}
		}
		if left == nil {
			return
		}
	}
	t.Errorf("left after the end of the child: %q", left)
}

func filesIn(dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
