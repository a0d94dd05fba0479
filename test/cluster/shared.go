package cluster

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
)

// Shared is one cluster for all tests of a package:
//
//	var shared = cluster.NewShared()
//
//	func TestMain(m *testing.M) { os.Exit(shared.Main(m)) }
//
//	func TestSomething(t *testing.T) { c := shared.For(t); … }
//
// It starts when the first test asks for it. Tests may run at the same time if
// they use nodes, namespaces and resource names of their own.
type Shared struct {
	options options
	once    sync.Once
	stack   *stack
	err     error
	failed  atomic.Bool
}

// NewShared returns a cluster that is not started yet.
func NewShared(opts ...Option) *Shared { return &Shared{options: apply(opts)} }

// Main runs the tests, stops the cluster and returns the exit code.
func (s *Shared) Main(m *testing.M) int {
	code := m.Run()
	if s.stack == nil {
		return code
	}
	keepLogs := s.failed.Load() || code != 0
	if err := s.stack.close(keepLogs); err != nil {
		fmt.Fprintln(os.Stderr, "stop the cluster:", err)
		code = max(code, 1)
	}
	if keepLogs {
		fmt.Fprintln(os.Stderr, "the logs of the cluster are in", s.stack.dir.logs())
	}
	return code
}

// For returns the cluster for the use of one test.
func (s *Shared) For(t testing.TB) *Cluster {
	t.Helper()
	s.once.Do(func() {
		ctx, cancel := deadline(t)
		defer cancel()
		if s.stack, s.err = launch(ctx, s.options, os.Stderr); s.err != nil {
			return
		}
		s.stack.stopOnSignal()
		t.Logf("cluster started: %s", s.stack.took())
	})
	if s.err != nil {
		t.Fatal(s.err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			s.failed.Store(true)
		}
	})
	return &Cluster{t: t, stack: s.stack}
}
