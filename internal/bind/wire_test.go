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

// fault does what happens to a request. An error is what the client gets instead of an
// answer.
type fault func(*exchange) error

// exchange is a request, and its answer.
type exchange struct {
	verb string // GET, PUT or POST
	what string // ledger, device (metadata), status or devices (a list)
	name string
	n    int // of the same verb and what, since the fault was set; the first is 1

	wire   *wire
	r      *http.Request
	body   []byte
	answer *http.Response
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
	w.fault = func(x *exchange) error {
		mu.Lock()
		counted[x.verb+x.what]++
		x.n = counted[x.verb+x.what]
		mu.Unlock()
		return f(x)
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
	x := &exchange{verb: r.Method, wire: w, r: r}
	path := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch last := path[len(path)-1]; {
	case last == "gpudevices":
		x.what = "devices"
	case last == "status":
		x.what, x.name = "status", path[len(path)-2]
	case strings.Contains(r.URL.Path, "/gpudevices/"):
		x.what, x.name = "device", last
	default:
		x.what = "ledger"
	}
	if r.Body != nil {
		x.body, _ = io.ReadAll(r.Body)
	}
	w.mu.Lock()
	f := w.fault
	w.mu.Unlock()
	if f == nil {
		f = (*exchange).send
	}
	if err := f(x); err != nil {
		x.close()
		return nil, err
	}
	return x.answer, nil
}

// send has the API server handle the request. Who pauses or stops does not call back what
// is sent.
func (x *exchange) send() error {
	x.close()
	again := x.r.Clone(context.WithoutCancel(x.r.Context()))
	again.Body = io.NopCloser(bytes.NewReader(x.body))
	answer, err := x.wire.next.RoundTrip(again) //nolint:bodyclose // close does, or the client
	if err != nil {
		return err
	}
	x.answer = answer
	x.wire.mu.Lock()
	defer x.wire.mu.Unlock()
	x.wire.log = append(x.wire.log, fmt.Sprintf("%s %s %d", x.verb, x.what, answer.StatusCode))
	return nil
}

func (x *exchange) close() {
	if x.answer != nil {
		_ = x.answer.Body.Close()
	}
}

// errLost is a connection that was lost.
var errLost = errors.New("connection lost")

// drop has the API server handle the request, and loses the answer.
func (x *exchange) drop() error { return errors.Join(errLost, x.send()) }

// later loses a request that the API server handles when the gate opens.
func (x *exchange) later(g *gate) error {
	late := *x
	go func() {
		_ = g.pass(&late)
		late.close()
	}()
	return errLost
}

// instead has the API server handle the request, and something before it answer.
func (x *exchange) instead(code int) error { return errors.Join(x.send(), x.say(code)) }

// say answers as something does that is not the API server.
func (x *exchange) say(code int) error {
	x.close()
	x.answer = &http.Response{
		StatusCode: code, Status: fmt.Sprint(code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: x.r,
		Header: http.Header{"Content-Type": {"text/plain"}}, Body: io.NopCloser(strings.NewReader("no")),
	}
	return nil
}

// gate holds requests.
type gate struct {
	held chan struct{} // gets one for each that is held
	open chan struct{} // closed to let them go
}

func newGate() *gate { return &gate{held: make(chan struct{}, 1000), open: make(chan struct{})} }

// pass holds a request, and then sends it.
func (g *gate) pass(x *exchange) error {
	g.held <- struct{}{}
	<-g.open
	return x.send()
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
