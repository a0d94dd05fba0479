package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// component is a program that is kept running, as a kubelet would keep it.
type component struct {
	name  string
	path  string
	args  []string
	env   []string                    // on top of this process's
	log   string                      // file to which all runs of it append
	ready func(context.Context) error // nil once it serves

	mu      sync.Mutex
	running *run // nil unless started
}

// run is the time from one start of a component to the next stop.
type run struct {
	stop  chan struct{} // closed to stop it
	ended chan struct{} // closed when its last process has ended
	exits chan struct{} // one value for each process that ended by itself
}

// Back-off of a component that ends by itself.
const (
	firstRestart = 200 * time.Millisecond
	lastRestart  = 5 * time.Second
	settled      = 10 * time.Second // a process that ran this long was not failing
	maxExits     = 3                // before a component that never served is given up
)

// start starts the component, unless it runs. It does not wait until it serves.
func (c *component) start(l *launcher) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running != nil {
		return nil
	}
	r := &run{stop: make(chan struct{}), ended: make(chan struct{}), exits: make(chan struct{}, maxExits)}
	cmd, err := c.launch(l)
	if err != nil {
		return err
	}
	c.running = r
	go c.keep(l, r, cmd)
	return nil
}

// stop kills the component and waits until it is gone. One that is not running
// stays so.
func (c *component) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running == nil {
		return
	}
	close(c.running.stop)
	<-c.running.ended
	c.running = nil
}

func (c *component) isRunning() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.running != nil
}

// keep waits for the component's process and starts another one whenever it has
// ended by itself.
func (c *component) keep(l *launcher, r *run, cmd *exec.Cmd) {
	defer close(r.ended)
	delay := firstRestart
	for {
		started := time.Now()
		if c.wait(r, cmd) {
			return
		}
		select {
		case r.exits <- struct{}{}:
		default:
		}
		if time.Since(started) > settled {
			delay = firstRestart
		}
		select {
		case <-r.stop:
			return
		case <-time.After(delay):
		}
		delay = min(2*delay, lastRestart)
		var err error
		if cmd, err = c.launch(l); err != nil {
			c.note("cannot be started again: %v", err)
			return
		}
	}
}

// wait waits for the end of cmd and reports whether the component was to stop.
func (c *component) wait(r *run, cmd *exec.Cmd) bool {
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		c.note("ended by itself: %s", outcome(err))
		return false
	case <-r.stop:
		// Nothing is worth a graceful end, and none of them needs it.
		if err := signalGroup(cmd, syscall.SIGKILL); err != nil {
			c.note("%v", err)
		}
		c.note("stopped: %s", outcome(<-ended))
		return true
	}
}

// outcome words the result of Wait.
func outcome(err error) string {
	if err == nil {
		return "exit status 0"
	}
	return err.Error()
}

func (c *component) launch(l *launcher) (*exec.Cmd, error) {
	out, err := os.OpenFile(c.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd := &exec.Cmd{
		Path: c.path, Args: append([]string{c.path}, c.args...),
		Env: append(os.Environ(), c.env...), Stdout: out, Stderr: out,
	}
	if err := l.start(cmd); err != nil {
		return nil, fmt.Errorf("start %s: %w", c.name, err)
	}
	return cmd, nil
}

// awaitReady waits until the component serves. It gives up early on one that
// keeps ending.
func (c *component) awaitReady(ctx context.Context) error {
	c.mu.Lock()
	r := c.running
	c.mu.Unlock()
	if r == nil {
		return fmt.Errorf("wait for %s: it was not started", c.name)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		for range maxExits {
			select {
			case <-r.exits:
			case <-ctx.Done():
				return
			}
		}
		cancel(fmt.Errorf("it ended %d times by itself", maxExits))
	}()
	if err := poll(ctx, c.ready); err != nil {
		return fmt.Errorf("wait for %s: %w; its log ends with:\n%s", c.name, err, tail(c.log))
	}
	return nil
}

// note adds a line to the component's log.
func (c *component) note(format string, args ...any) {
	appendLine(c.log, fmt.Sprintf("[%s] %s %s", time.Now().Format(time.TimeOnly), c.name, fmt.Sprintf(format, args...)))
}
