package cluster

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// egress is the CONNECT proxy through which the API server reaches webhooks and
// aggregated APIs. It stands for the cluster's network: what the API server
// sends to the ClusterIP of a Service, it sends to the local address that plays
// this Service's pods.
type egress struct {
	listener net.Listener
	client   kubernetes.Interface
	log      string

	mu     sync.Mutex
	routes map[string]string // "namespace/name" of a Service → "127.0.0.1:8443"
}

const dialTimeout = 2 * time.Second

// newEgress listens on a socket. The client is used when the first Service is
// looked up, which is when the API server serves.
func newEgress(socket, log string, client kubernetes.Interface) (*egress, error) {
	l, err := new(net.ListenConfig).Listen(context.Background(), "unix", socket)
	if err != nil {
		return nil, fmt.Errorf("listen for the API server's connections (a shorter TMPDIR may help): %w", err)
	}
	e := &egress{listener: l, client: client, log: log, routes: map[string]string{}}
	go e.serve()
	return e, nil
}

// expose makes a Service reach an address; none makes it reach nothing.
func (e *egress) expose(service, addr string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if addr == "" {
		delete(e.routes, service)
		return
	}
	e.routes[service] = addr
}

// exposed returns the Services that reach an address.
func (e *egress) exposed() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Collect(maps.Keys(e.routes))
}

func (e *egress) close() error { return e.listener.Close() }

func (e *egress) serve() {
	for {
		conn, err := e.listener.Accept()
		if err != nil {
			return // closed
		}
		go func() {
			if err := e.connect(conn); err != nil {
				appendLine(e.log, fmt.Sprintf("%s %v", time.Now().Format(time.TimeOnly), err))
			}
			_ = conn.Close()
		}()
	}
}

// connect serves one CONNECT request.
func (e *egress) connect(conn net.Conn) error {
	in := bufio.NewReader(conn)
	req, err := http.ReadRequest(in)
	if err != nil {
		return fmt.Errorf("read a request: %w", err)
	}
	if req.Method != http.MethodConnect {
		return fmt.Errorf("unexpected %s %s", req.Method, req.URL)
	}
	remote, err := e.dial(req.Host)
	if err != nil {
		fmt.Fprintf(conn, "HTTP/1.1 502 %s\r\nContent-Length: 0\r\n\r\n", strings.ReplaceAll(err.Error(), "\n", " "))
		return err
	}
	fmt.Fprint(conn, "HTTP/1.1 200 Connection established\r\n\r\n")
	// Either side may go at any time; then both connections are closed.
	ended := make(chan struct{}, 2)
	pass := func(to io.Writer, from io.Reader) {
		_, _ = io.Copy(to, from)
		ended <- struct{}{}
	}
	go pass(remote, in)
	go pass(conn, remote)
	<-ended
	_ = remote.Close()
	return nil
}

// dial connects to what plays "10.0.0.7:443".
func (e *egress) dial(target string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	defer cancel()
	addr, err := e.resolve(ctx, target)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", target, err)
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("connect to %s at %s: %w", target, addr, err)
	}
	return conn, nil
}

func (e *egress) resolve(ctx context.Context, target string) (string, error) {
	host, _, err := net.SplitHostPort(target)
	if err != nil {
		return "", err
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsLoopback() {
		return target, nil
	}
	// From the API server's cache, and only when it dials: connections are kept.
	services, err := e.client.CoreV1().Services("").List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return "", fmt.Errorf("list services: %w", err)
	}
	for _, s := range services.Items {
		if s.Spec.ClusterIP != host {
			continue
		}
		e.mu.Lock()
		addr, ok := e.routes[s.Namespace+"/"+s.Name]
		e.mu.Unlock()
		if !ok {
			return "", fmt.Errorf("service %s/%s has no endpoints", s.Namespace, s.Name)
		}
		return addr, nil
	}
	return "", errors.New("no service has this address")
}
