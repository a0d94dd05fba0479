package bind

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
)

// wire is the connection of one party to the API server.
type wire struct {
	mu    sync.Mutex
	next  http.RoundTripper
	fault fault
	log   []string // "PUT ledger 409", of answers that the API server gave
}

type (
	response = http.Response
	// sender has the API server handle a request.
	sender = func() (*response, error)
)

// fault does what happens to a request. Nil: nothing happens to it.
type fault func(r request, send sender) (*response, error)

// request is what a fault chooses by.
type request struct {
	verb string // GET, PUT or POST
	what string // ledger, device (metadata), status or devices (a list)
	name string
	n    int // of the same verb and what, since the fault was set; the first is 1
}

func (w *wire) wrap(next http.RoundTripper) http.RoundTripper {
	w.next = next
	return w
}

// set makes something happen to requests; nil: nothing any more.
func (w *wire) set(f fault) {
	counted := map[string]int{}
	var mu sync.Mutex
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fault = f; f == nil {
		return
	}
	w.fault = func(r request, send sender) (*response, error) {
		mu.Lock()
		counted[r.verb+r.what]++
		r.n = counted[r.verb+r.what]
		mu.Unlock()
		return f(r, send)
	}
}

// took returns the log, and empties it.
func (w *wire) took() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.log
	w.log = nil
	return out
}

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	asked := request{verb: r.Method}
	path := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch last := path[len(path)-1]; {
	case last == "gpudevices":
		asked.what = "devices"
	case last == "status":
		asked.what, asked.name = "status", path[len(path)-2]
	case strings.Contains(r.URL.Path, "/gpudevices/"):
		asked.what, asked.name = "device", last
	default:
		asked.what = "ledger"
	}
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
	}
	send := func() (*http.Response, error) {
		again := r.Clone(context.WithoutCancel(r.Context())) // who pauses or stops does not call back what is sent
		again.Body = io.NopCloser(bytes.NewReader(body))
		resp, err := w.next.RoundTrip(again)
		if err == nil {
			w.mu.Lock()
			w.log = append(w.log, fmt.Sprintf("%s %s %d", asked.verb, asked.what, resp.StatusCode))
			w.mu.Unlock()
		}
		return resp, err
	}
	w.mu.Lock()
	f := w.fault
	w.mu.Unlock()
	if f == nil {
		return send()
	}
	return f(asked, send)
}

// errLost is a connection that was lost.
var errLost = errors.New("connection lost")

// drop has the API server handle the request, and loses the answer.
func drop(send sender) (*http.Response, error) {
	if resp, err := send(); err == nil {
		resp.Body.Close()
	}
	return nil, errLost
}

// instead has the API server handle the request, and makes something before it answer
// with a code.
func instead(send sender, code int) (*http.Response, error) {
	resp, err := send()
	if err != nil {
		return nil, err
	}
	resp.Body.Close()
	return &http.Response{
		StatusCode: code, Status: fmt.Sprint(code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: resp.Request,
		Header: http.Header{"Content-Type": {"text/plain"}}, Body: io.NopCloser(strings.NewReader("no")),
	}, nil
}

// gate holds requests.
type gate struct {
	held chan struct{} // gets one for each that is held
	open chan struct{} // closed to let them go
}

func newGate() *gate { return &gate{held: make(chan struct{}, 1000), open: make(chan struct{})} }

// pass holds a request, and then sends it.
func (g *gate) pass(send sender) (*http.Response, error) {
	g.held <- struct{}{}
	<-g.open
	return send()
}

// background runs f, and returns a function that waits for it.
func background[T any](f func() (T, error)) func() (T, error) {
	var v T
	var err error
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		v, err = f()
	}()
	return func() (T, error) {
		<-finished
		return v, err
	}
}
