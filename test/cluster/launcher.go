package cluster

import (
	"fmt"
	"os/exec"
	"runtime"
	"syscall"
)

// launcher starts processes that do not outlive this one. Where the kernel can
// tie a child to its parent (Linux), it ties it to the thread that started it,
// not to the process: a thread that Go ends would take its children with it.
// So one goroutine, bound to a thread of its own, starts them all.
type launcher struct{ work chan func() }

func newLauncher() *launcher {
	l := &launcher{work: make(chan func())}
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for f := range l.work {
			f()
		}
	}()
	return l
}

// start starts cmd in a process group of its own, so that Ctrl-C reaches this
// process only, and this process can stop cmd and all it has started.
func (l *launcher) start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = tied()
	result := make(chan error)
	l.work <- func() { result <- cmd.Start() }
	return <-result
}

// close ends the launcher, which can start nothing any more. Its processes have
// to be stopped before.
func (l *launcher) close() { close(l.work) }

// signalGroup signals a process that a launcher has started, and all that it
// has started.
func signalGroup(cmd *exec.Cmd, signal syscall.Signal) error {
	if err := syscall.Kill(-cmd.Process.Pid, signal); err != nil {
		return fmt.Errorf("send %v to %s: %w", signal, cmd.Path, err)
	}
	return nil
}
