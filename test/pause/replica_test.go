package pause

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/gpuctl/gpuctl/test/cluster"
)

// replica is a process of the controller.
type replica struct {
	*wire
	name  string
	cmd   *exec.Cmd
	ended <-chan struct{}
	log   string
}

// build builds gpuctl.
func build(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "gpuctl")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", path, "github.com/gpuctl/gpuctl/cmd/gpuctl").CombinedOutput(); err != nil {
		t.Fatalf("build gpuctl: %v\n%s", err, out)
	}
	return path
}

// newReplica starts a process that reaches the API server by a wire of its own. It
// believes in its Lease for longer than any pause: when it wakes it goes on as leader.
func newReplica(t *testing.T, c *cluster.Cluster, gpuctl, namespace, name string) *replica {
	t.Helper()
	r := &replica{name: name, log: filepath.Join(t.TempDir(), name+".log")}
	r.wire = newWire(t, c.Config(), r.pause)
	log, err := os.Create(r.log)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	r.cmd = &exec.Cmd{
		Path: gpuctl, Stdout: log, Stderr: log, Dir: filepath.Dir(r.log),
		Args: []string{
			gpuctl, "serve", "--kubeconfig", c.KubeconfigFor(&rest.Config{Host: r.url}), "--orders-enabled", "--wiring-enabled=false", "--metrics-port=0", "--health-port=0",
			"--leader-election-retry-period=100ms", "--leader-election-renew-deadline=20m", "--leader-election-lease-duration=30m",
		},
		Env: []string{"HOME=" + filepath.Dir(r.log), "POD_NAMESPACE=" + namespace, "POD_NAME=" + name},
	}
	r.ended = c.Launch(r.cmd)
	t.Cleanup(func() {
		if text, err := os.ReadFile(r.log); err == nil && t.Failed() {
			t.Logf("the log of %s ends with:\n%s", name, text[max(0, len(text)-4000):])
		}
	})
	return r
}

// pause stops the process, and returns when it does nothing any more.
func (r *replica) pause() error {
	if err := r.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for range 1000 {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", r.cmd.Process.Pid))
		if err != nil {
			return err
		}
		if _, after, ok := bytes.Cut(text, []byte(") ")); ok && after[0] == 'T' { // "1 (gpuctl) T …"
			return nil
		}
		time.Sleep(time.Millisecond)
	}
	return fmt.Errorf("%s runs on after SIGSTOP", r.name)
}

// wake lets a stopped process go on, and returns when it was answered what it tried.
func (r *replica) wake(t *testing.T) {
	t.Helper()
	seen := r.wakes()
	if err := r.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	select {
	case <-seen:
	case <-r.ended:
		t.Fatalf("%s has ended: %s", r.name, r.cmd.ProcessState)
	case <-time.After(soon):
		t.Fatalf("%s woke, and tried nothing", r.name)
	}
}
