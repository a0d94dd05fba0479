package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// versionFile holds the version of what is built in a folder of the cache.
const versionFile = "VERSION"

// unfinished ends the name of a folder that is being built.
const unfinished = ".unfinished"

// build builds s into a new folder, which appears complete or not at all.
func (b builder) build(ctx context.Context, s source, dir, folder string) error {
	version, err := b.goCommand(ctx, dir, "list", "-m", "-f", "{{.Version}}", s.release)
	if err != nil {
		return err
	}
	temporary := folder + unfinished
	if err := os.MkdirAll(temporary, 0o750); err != nil {
		return err
	}
	// What an error leaves here, the next build removes.
	if err := b.compile(ctx, s, dir, temporary, version); err != nil {
		return err
	}
	for from, to := range s.rename {
		if err := os.Rename(filepath.Join(temporary, from), filepath.Join(temporary, to)); err != nil {
			return err
		}
	}
	if s.generate != "" {
		document, err := exec.CommandContext(ctx, filepath.Join(temporary, s.generate)).Output()
		if err != nil {
			return fmt.Errorf("run %s: %w", s.generate, err)
		}
		if err := os.WriteFile(filepath.Join(temporary, s.document), document, 0o600); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(temporary, versionFile), []byte(version), 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, folder)
}

// compile runs go build and tells about its progress.
func (b builder) compile(ctx context.Context, s source, dir, out, version string) error {
	began := time.Now()
	// Where the next build finds it, should this one be killed.
	work := filepath.Join(out, "work")
	if err := os.Mkdir(work, 0o750); err != nil {
		return err
	}
	log := &compileLog{}
	args := []string{"build", "-v", "-ldflags", s.linkerFlags(version), "-o", out + string(filepath.Separator)}
	cmd := exec.CommandContext(ctx, "go", append(args, s.packages...)...)
	cmd.Dir, cmd.Env, cmd.Stderr = dir, append(environment(), "GOTMPDIR="+work), log
	// The go command cleans up and ends when it is interrupted.
	cmd.Cancel = func() error { return signalGroup(cmd, syscall.SIGINT) }
	cmd.WaitDelay = 10 * time.Second
	fmt.Fprintf(b.progress, "cluster: building %s %s from source; this takes minutes, once\n", s.name, version)
	done := make(chan struct{})
	go b.tell(done, func() string {
		return fmt.Sprintf("cluster: building %s: %d packages in %v", s.name, log.lines(), time.Since(began).Round(time.Second))
	})
	err := b.launcher.start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	close(done)
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("stopped after %v (what is compiled is kept; go run ./test/cluster/up -build does the rest): %w",
			time.Since(began).Round(time.Second), context.Cause(ctx))
	case err != nil:
		return fmt.Errorf("go build: %w\n%s", err, log.tail())
	}
	fmt.Fprintf(b.progress, "cluster: built %s in %v\n", s.name, time.Since(began).Round(time.Second))
	return os.RemoveAll(work)
}

// tell prints a line now and then until done is closed.
func (b builder) tell(done <-chan struct{}, line func() string) {
	tick := time.NewTicker(30 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
			fmt.Fprintln(b.progress, line())
		}
	}
}

// goCommand returns the output of a short go command in dir, on one line.
func (b builder) goCommand(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env = dir, environment()
	out, err := cmd.Output()
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			err = fmt.Errorf("%w: %s", err, bytes.TrimSpace(exit.Stderr))
		}
		return "", fmt.Errorf("go %s: %w", strings.Join(args, " "), err)
	}
	return strings.Join(strings.Fields(string(out)), " "), nil
}

// environment is that of the go command: this process's, but for what would
// build something else.
func environment() []string {
	return append(os.Environ(), "GOFLAGS="+goFlags, "CGO_ENABLED="+cgoEnabled, "GOWORK=off", "GOOS=", "GOARCH=")
}

// compileLog takes what go build -v prints: a line for each package, and errors.
type compileLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *compileLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *compileLog) lines() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Count(l.text.Bytes(), []byte("\n"))
}

func (l *compileLog) tail() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return lastLines(l.text.Bytes())
}
