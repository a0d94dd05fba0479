package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// serve serves the part of the kubelet API that the API server needs for the
// logs of pods. One server does for all nodes: requests name pods only.
func (k *kubelets) serve() error {
	s := k.stack
	p, err := s.credentials.clients.issue(pkix.Name{CommonName: "kubelet"}, "127.0.0.1")
	if err != nil {
		return err
	}
	certificate, err := tls.X509KeyPair(p.cert, p.key)
	if err != nil {
		return fmt.Errorf("read the certificate of the kubelets: %w", err)
	}
	l, err := new(net.ListenConfig).Listen(s.loopContext, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen for the kubelets: %w", err)
	}
	k.port = l.Addr().(*net.TCPAddr).Port //nolint:forcetypeassert // it is one
	mux := http.NewServeMux()
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", k.serveLog)
	server := &http.Server{
		Handler: mux, ReadHeaderTimeout: time.Minute,
		TLSConfig:   &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
		BaseContext: func(net.Listener) context.Context { return s.loopContext },
	}
	s.loops.Go(func() {
		if err := server.ServeTLS(l, "", ""); !errors.Is(err, http.ErrServerClosed) {
			s.note("kubelets", err)
		}
	})
	s.closers = append(s.closers, server.Close)
	context.AfterFunc(s.loopContext, func() { _ = server.Close() })
	return nil
}

// serveLog writes the log of a container, from its last run or the one before,
// and as it grows if asked to.
func (k *kubelets) serveLog(w http.ResponseWriter, r *http.Request) {
	c, err := k.container(r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("container"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	query := r.URL.Query()
	run := c.runs()
	if query.Get("previous") == "true" {
		run--
	}
	path := c.logFile(run)
	if run < 0 {
		http.Error(w, fmt.Sprintf("previous terminated container %q in pod %q not found", c.spec.Name, c.sandbox.name), http.StatusBadRequest)
		return
	}
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) { // played containers have none
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	from := 0
	if lines, err := strconv.Atoi(query.Get("tailLines")); err == nil {
		from = lastLinesAt(data, lines)
	}
	out := limited(w, query.Get("limitBytes"))
	if _, err := out.Write(data[from:]); err != nil || query.Get("follow") != "true" {
		return
	}
	_ = k.follow(r.Context(), out, http.NewResponseController(w), c, run, int64(len(data)))
}

// followInterval is how soon something that is logged is passed on.
const followInterval = 100 * time.Millisecond

// follow passes on what is added to a log until the container has ended or ctx does.
func (k *kubelets) follow(ctx context.Context, out io.Writer, flusher *http.ResponseController, c *container, run int32, from int64) error {
	for {
		ended := c.exitCode() >= 0 || c.runs() != run // looked at before what is left is read
		f, err := os.Open(c.logFile(run))
		if err == nil {
			var n int64
			n, err = io.Copy(out, io.NewSectionReader(f, from, 1<<62))
			from += n
			_ = f.Close()
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if err := flusher.Flush(); err != nil || ended {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(followInterval):
		}
	}
}

// container finds a container by name.
func (k *kubelets) container(namespace, pod, name string) (*container, error) {
	got, err := k.pods.Pods(namespace).Get(pod)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	if err == nil {
		if b := k.sandbox(got.UID); b != nil {
			for _, c := range b.containers {
				if c.spec.Name == name {
					return c, nil
				}
			}
		}
	}
	return nil, fmt.Errorf("container %q of pod %s/%s is not here", name, namespace, pod)
}

// limited returns a writer that takes no more than so many bytes.
func limited(w io.Writer, limit string) io.Writer {
	n, err := strconv.ParseInt(limit, 10, 64)
	if err != nil {
		return w
	}
	return &limitedWriter{w: w, left: n}
}

type limitedWriter struct {
	w    io.Writer
	left int64
}

// Write writes what the limit allows, and fails beyond.
func (l *limitedWriter) Write(p []byte) (int, error) {
	if int64(len(p)) <= l.left {
		l.left -= int64(len(p))
		return l.w.Write(p)
	}
	n, err := l.w.Write(p[:l.left])
	l.left = 0
	return n, errors.Join(err, io.ErrShortWrite)
}
