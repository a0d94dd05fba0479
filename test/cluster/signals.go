package cluster

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
)

// stopOnSignal has the cluster stopped when this process is told to end by
// Ctrl-C or a signal, and then ends the process. (A signal that cannot be caught
// ends the cluster too, but leaves its folder to the next start.) The returned
// function calls this off.
func (s *stack) stopOnSignal() (cancel func()) {
	signals := make(chan os.Signal, 1)
	done := make(chan struct{})
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		select {
		case <-done:
		case got := <-signals:
			if err := s.close(false); err != nil {
				fmt.Fprintln(os.Stderr, "stop the cluster:", err)
			}
			number, _ := got.(syscall.Signal)
			os.Exit(128 + int(number))
		}
	}()
	return sync.OnceFunc(func() {
		signal.Stop(signals)
		close(done)
	})
}

// Up starts a cluster for people, with some nodes, says how to use it, and stops
// it when ctx ends.
func Up(ctx context.Context, out io.Writer, nodes []Node, opts ...Option) error {
	s, err := launch(ctx, apply(opts), out)
	if err != nil {
		return err
	}
	for _, n := range nodes {
		if err := s.addNode(ctx, n); err != nil {
			_ = s.close(true)
			return fmt.Errorf("add node %q: %w", n.Name, err)
		}
	}
	kubectl := s.built.files["kubectl"]
	fmt.Fprintf(out, `
The cluster runs: %s.

  export KUBECONFIG=%s
  export PATH=%s:$PATH    # kubectl
  kubectl get nodes,kubevirt -A

Logs of all components: %s
Ctrl-C stops it and removes everything.
`, s.took(), s.kubeconfig(), filepath.Dir(kubectl), s.dir.logs())
	<-ctx.Done()
	fmt.Fprintln(out, "\nstopping")
	return s.close(false)
}
