package cluster_test

import (
	"os/exec"
	"syscall"
	"testing"
)

// A process that a test has launched ends with the test, also one that is stopped.
func TestLaunch(t *testing.T) {
	var ended <-chan struct{}
	t.Run("a test", func(t *testing.T) {
		cmd := exec.Command("sleep", "1000")
		ended = shared.For(t).Launch(cmd)
		if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	})
	select {
	case <-ended:
	default:
		t.Error("the process outlives the test")
	}
}
