package pause

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
)

// wire is the connection of one replica to the API server.
type wire struct {
	t     *testing.T
	url   string
	proxy *httputil.ReverseProxy

	mu     sync.Mutex
	open   chan struct{} // closed when swaps of the ledger may pass
	order  string        // whose swap stops the process, before it knows that it has swapped
	stop   func() error
	paused chan error // gets what came of that
	woken  bool       // and has not swapped since
	seen   chan struct{}
	counts
}

// counts are what woken processes were answered.
type counts struct {
	late  map[string]int // writes of placements, by answer
	swaps map[string]int // swaps of the ledger that they could not know to be late, by answer
}

// write is a request that can place, or say who may.
type write struct {
	ledger *v1alpha1.Ledger    // that is swapped in
	device *v1alpha1.GPUDevice // that is placed
}

// newWire serves the API server to whoever knows the address, as its administrator.
func newWire(t *testing.T, config *rest.Config, stop func() error) *wire {
	t.Helper()
	target, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{t: t, stop: stop, open: make(chan struct{}), counts: counts{late: map[string]int{}, swaps: map[string]int{}}}
	close(w.open)
	w.proxy = &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1, // watches
		ModifyResponse: func(r *http.Response) error {
			if x, ok := r.Request.Context().Value(w).(write); ok {
				return w.answered(x, r.StatusCode)
			}
			return nil
		},
		ErrorHandler: func(to http.ResponseWriter, _ *http.Request, _ error) { to.WriteHeader(http.StatusBadGateway) },
	}
	server := httptest.NewServer(w)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	w.url = server.URL
	return w
}

// ServeHTTP holds swaps of the ledger while they may not pass.
func (w *wire) ServeHTTP(to http.ResponseWriter, r *http.Request) {
	x, err := writeOf(r)
	if err != nil {
		w.t.Errorf("read %s %s: %v", r.Method, r.URL.Path, err)
	}
	if x.ledger != nil {
		w.mu.Lock()
		open := w.open
		w.mu.Unlock()
		select {
		case <-open:
		case <-r.Context().Done():
			return
		}
	}
	if x.ledger != nil || x.device != nil {
		r = r.WithContext(context.WithValue(r.Context(), w, x))
	}
	w.proxy.ServeHTTP(to, r)
}

// writeOf reads a request that swaps the ledger or writes a device's placement. Of all
// others it returns nothing.
func writeOf(r *http.Request) (x write, err error) {
	ledger := strings.HasSuffix(r.URL.Path, "/configmaps/"+v1alpha1.LedgerName)
	device := strings.Contains(r.URL.Path, "/gpudevices/") && strings.HasSuffix(r.URL.Path, "/status")
	if r.Method != http.MethodPut || !ledger && !device {
		return x, nil
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return x, err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	if device {
		d := &v1alpha1.GPUDevice{}
		if err := json.Unmarshal(body, d); err != nil {
			return x, err
		}
		if d.Status.Placement != nil {
			x.device = d
		}
		return x, nil
	}
	m := &corev1.ConfigMap{}
	if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, m); err != nil { // JSON or protobuf
		return x, err
	}
	l, err := v1alpha1.DecodeLedger(m.Data)
	x.ledger = &l
	return x, err
}

// answered looks at an answer before the process has it.
func (w *wire) answered(x write, code int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	answer, ok := fmt.Sprint(code), code < 300
	switch {
	case x.ledger != nil && ok && w.order != "" && slices.ContainsFunc(x.ledger.Batch, func(e v1alpha1.LedgerEntry) bool { return e.Name == w.order }):
		w.order = ""
		w.paused <- w.stop()
	case x.ledger != nil && w.woken:
		w.swaps[answer]++
		w.woken = !ok
		w.see()
	case x.device != nil && w.woken:
		w.late[answer]++
		if ok {
			w.t.Errorf("a process that woke, and does not lead, has placed %s/%s on %s", x.device.Namespace, x.device.Name, x.device.Status.Placement.Node)
		}
		w.see()
	}
	return nil
}

func (w *wire) see() {
	if w.seen != nil {
		close(w.seen)
		w.seen = nil
	}
}

// hold lets no swap of the ledger pass until it is released.
func (w *wire) hold() (release func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	open := make(chan struct{})
	w.open = open
	return sync.OnceFunc(func() { close(open) })
}

// pauseAt has the process stopped when it has decided about an order. The channel gets
// what came of that.
func (w *wire) pauseAt(order string) <-chan error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.order, w.paused = order, make(chan error, 1)
	return w.paused
}

// wakes says that the process goes on. The channel is closed when it was answered a late
// write or swap.
func (w *wire) wakes() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.woken, w.seen = true, make(chan struct{})
	return w.seen
}

// took returns the counts.
func (w *wire) took() counts {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.counts
}
