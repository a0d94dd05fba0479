package diagnose

import "github.com/gpuctl/gpuctl/internal/gpu"

// State is how one link of a chain stands.
type State string

// The states of a link.
const (
	Passed  State = "ok"
	Broken  State = "broken"
	Unknown State = "unknown"     // the evidence does not tell
	Beyond  State = "not reached" // an earlier link is broken
)

// Step is one link of a chain, and what is known of it.
type Step struct {
	Link    Link
	State   State
	Text    string
	Finding *Finding // of a broken link
}

// Chain is the way of the GPUs into one VM, or to the table on one node. It stops
// at the first broken link.
type Chain struct {
	Subject string // "VirtualMachine tenant-a/trainer", "node/worker-1"
	VM      *VM    // nil for a node
	Steps   []Step
}

// Root returns the finding of the first broken link, nil when none is.
func (c *Chain) Root() *Finding {
	for i := range c.Steps {
		if c.Steps[i].State == Broken {
			return c.Steps[i].Finding
		}
	}
	return nil
}

// walker builds a chain link by link, and lets nothing pass behind a broken one.
type walker struct {
	chain  Chain
	broken bool
}

// on adds a step, unless the chain has ended.
func (w *walker) on(link Link, state State, text string) {
	if w.broken {
		state, text = Beyond, ""
	}
	w.chain.Steps = append(w.chain.Steps, Step{Link: link, State: state, Text: text})
}

// check adds a step that a finding breaks; without one it passes with the text.
func (w *walker) check(link Link, f *Finding, text string) {
	if w.broken || f == nil {
		w.on(link, Passed, text)
		return
	}
	w.chain.Steps = append(w.chain.Steps, Step{Link: link, State: Broken, Text: f.Message, Finding: f})
	w.broken = true
}

// raised returns the finding as an error: it keeps somebody from a GPU, whatever it
// is worth where nobody asks for one.
func raised(f Finding) *Finding {
	f.Severity = Error
	return &f
}

// units returns "4 x nvidia.com/…".
func units(n int64, name gpu.ResourceName) string {
	return itoa(n) + " x " + string(name)
}
