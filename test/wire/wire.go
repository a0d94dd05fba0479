// Package wire plays the connection of one process to the API server, which loses, holds
// and repeats what a test wants it to.
package wire

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// Wire is the connection of one party to the API server.
type Wire struct {
	mu    sync.Mutex
	next  http.RoundTripper
	fault Fault
	log   []string // "PUT ledger 409", of answers that the API server gave
}

// Fault does what happens to a request. An error is what the client gets instead of an
// answer.
type Fault func(*Exchange) error

// Exchange is a request, and its answer.
type Exchange struct {
	Verb string // GET, PUT, POST or DELETE
	What string // ledger, device (metadata), status, devices (a list), or any other resource
	Name string
	N    int // of the same verb and what, since the fault was set; the first is 1

	wire   *Wire
	r      *http.Request
	body   []byte
	answer *http.Response
}

// Wrap is for rest.Config.Wrap.
func (w *Wire) Wrap(next http.RoundTripper) http.RoundTripper {
	w.next = next
	return w
}

// Set makes something happen to requests; nil: nothing any more.
func (w *Wire) Set(f Fault) {
	counted := map[string]int{}
	var mu sync.Mutex
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fault = f; f == nil {
		return
	}
	w.fault = func(x *Exchange) error {
		mu.Lock()
		counted[x.Verb+x.What]++
		x.N = counted[x.Verb+x.What]
		mu.Unlock()
		return f(x)
	}
}

// Took returns the log, and empties it.
func (w *Wire) Took() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.log
	w.log = nil
	return out
}

// RoundTrip implements http.RoundTripper.
func (w *Wire) RoundTrip(r *http.Request) (*http.Response, error) {
	x := &Exchange{Verb: r.Method, wire: w, r: r}
	x.What, x.Name = classify(r.URL.Path)
	if r.Body != nil {
		x.body, _ = io.ReadAll(r.Body)
	}
	w.mu.Lock()
	f := w.fault
	w.mu.Unlock()
	if f == nil {
		f = (*Exchange).Send
	}
	if err := f(x); err != nil {
		x.close()
		return nil, err
	}
	return x.answer, nil
}

// classify says what a path is about.
func classify(path string) (what, name string) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	last := parts[len(parts)-1]
	switch {
	case last == "gpudevices":
		return "devices", ""
	case last == "status":
		return "status", parts[len(parts)-2]
	case strings.Contains(path, "/gpudevices/"):
		return "device", last
	case strings.HasSuffix(path, "/configmaps") || strings.Contains(path, "/configmaps/"):
		return "ledger", last
	}
	if at := slices.Index(parts, "namespaces"); at >= 0 && at+2 < len(parts) {
		return parts[at+2], last
	}
	return last, ""
}

// Context is the request's: it ends when the client no longer waits.
func (x *Exchange) Context() context.Context { return x.r.Context() }

// Send has the API server handle the request. Who pauses or stops does not call back what
// is sent.
func (x *Exchange) Send() error {
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
	x.wire.log = append(x.wire.log, fmt.Sprintf("%s %s %d", x.Verb, x.What, answer.StatusCode))
	return nil
}

func (x *Exchange) close() {
	if x.answer != nil {
		_ = x.answer.Body.Close()
	}
}

// ErrLost is a connection that was lost.
var ErrLost = errors.New("connection lost")

// Drop has the API server handle the request, and loses the answer.
func (x *Exchange) Drop() error { return errors.Join(ErrLost, x.Send()) }

// Later loses a request that the API server handles when the gate opens.
func (x *Exchange) Later(g *Gate) error {
	late := *x
	go func() {
		_ = g.Pass(&late)
		late.close()
	}()
	return ErrLost
}

// Instead has the API server handle the request, and something before it answer.
func (x *Exchange) Instead(code int) error { return errors.Join(x.Send(), x.Say(code)) }

// Say answers as something does that is not the API server.
func (x *Exchange) Say(code int) error {
	x.close()
	x.answer = &http.Response{
		StatusCode: code, Status: fmt.Sprint(code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: x.r,
		Header: http.Header{"Content-Type": {"text/plain"}}, Body: io.NopCloser(strings.NewReader("no")),
	}
	return nil
}

// Gate holds requests.
type Gate struct {
	Held chan struct{} // gets one for each that is held
	Open chan struct{} // closed to let them go
}

// NewGate returns a gate that is shut.
func NewGate() *Gate { return &Gate{Held: make(chan struct{}, 1000), Open: make(chan struct{})} }

// Pass holds a request, and then sends it.
func (g *Gate) Pass(x *Exchange) error {
	g.Held <- struct{}{}
	<-g.Open
	return x.Send()
}

// Background runs f, and returns a function that waits for it.
func Background[T any](f func() (T, error)) func() (T, error) {
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
