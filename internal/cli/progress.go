package cli

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// progress tells what is being done: on a terminal in one line that goes away, else
// a line each.
type progress struct {
	w        io.Writer
	terminal bool

	mu    sync.Mutex
	shown bool
}

func newProgress(s *streams) *progress { return &progress{w: s.err, terminal: terminal(s.err)} }

// step says what is done now.
func (p *progress) step(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.terminal {
		fmt.Fprintln(p.w, text)
		return
	}
	fmt.Fprintf(p.w, "\r\x1b[K%s …", text)
	p.shown = true
}

// done clears the line.
func (p *progress) done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shown {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.shown = false
	}
}

// patience is how long a command is silent before it says what it waits for.
const patience = 400 * time.Millisecond

// meanwhile does something that may take long, and says so at a terminal while it
// lasts.
func (s *streams) meanwhile(what string, do func() error) error {
	if !terminal(s.err) {
		return do()
	}
	p := newProgress(s)
	done, shown := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(shown)
		select {
		case <-done:
		case <-time.After(patience):
			p.step(what)
		}
	}()
	err := do()
	close(done)
	<-shown
	p.done()
	return err
}
