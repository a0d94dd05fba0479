package discover

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/gpuctl/gpuctl/test/fakesys"
)

// TestHostIsQuiet watches the process's standard error while ghw meets
// everything it would complain about, with an environment that invites it to
// look elsewhere.
func TestHostIsQuiet(t *testing.T) {
	root := fakesys.New(t, twoGPUs(), "0000:18:00.0/modalias", "0000:2a:00.0/numa_node")
	t.Setenv("GHW_CHROOT", t.TempDir())
	t.Setenv("GHW_LOG_LEVEL", "debug")
	t.Setenv("PCIDB_PATH", filepath.Join(root, "no-such-file"))
	t.Setenv("PCIDB_ENABLE_NETWORK_FETCH", "1")
	printed := stderrOf(t, func() {
		got, _, err := Host(root)
		if err != nil || len(got.Functions) != 2 {
			t.Errorf("Host(): %d functions, error %v", len(got.Functions), err)
		}
	})
	if printed != "" {
		t.Errorf("Host() prints to stderr: %q", printed)
	}
}

// stderrOf returns what is written to file descriptor 2 while f runs: ghw holds
// on to os.Stderr from before any test could replace it.
func stderrOf(t *testing.T, f func()) string {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	saved, err := syscall.Dup(2)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Close(saved) }()
	if err := syscall.Dup3(int(file.Fd()), 2, 0); err != nil {
		t.Fatal(err)
	}
	f()
	if err := syscall.Dup3(saved, 2, 0); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(file.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
