package agent

import (
	"net/http"
	"sync"
	"time"
)

// health is what the probes ask for.
type health struct {
	patience time.Duration // without a look before the agent is not well
	now      func() time.Time

	mu   sync.Mutex
	last time.Time // the last look, successful or not
	good bool      // it was reported
}

func (h *health) looked(good bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last, h.good = h.now(), good
}

// well says whether the agent still looks at its host; before the first look it
// has the same patience.
func (h *health) well() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.last.IsZero() {
		h.last = h.now()
	}
	return h.now().Sub(h.last) < h.patience
}

func (h *health) ready() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.good
}

// Handler answers /healthz: the agent still looks at its host, and /readyz: what
// it saw last is reported.
func (a *Agent) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", answer(a.health.well, "no look at the host for too long"))
	mux.HandleFunc("GET /readyz", answer(a.health.ready, "the inventory is not reported"))
	return mux
}

func answer(ok func() bool, problem string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if !ok() {
			http.Error(w, problem, http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ok\n"))
	}
}
