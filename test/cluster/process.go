package cluster

import (
	"os/exec"
	"syscall"
)

// Launch starts a process in a process group of its own. The end of the test kills it,
// also one that is stopped; on Linux so does the end of this process, whatever the reason.
// The channel is closed when the process has ended.
func (c *Cluster) Launch(cmd *exec.Cmd) (ended <-chan struct{}) {
	c.t.Helper()
	if err := c.stack.launcher.start(cmd); err != nil {
		c.t.Fatalf("start %s: %v", cmd.Path, err)
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_ = cmd.Wait() // its state says the same
	}()
	c.t.Cleanup(func() {
		_ = signalGroup(cmd, syscall.SIGKILL) // unless it has ended
		<-gone
	})
	return gone
}
