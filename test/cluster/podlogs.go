package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	corev1 "k8s.io/api/core/v1"
)

// serveLogs serves what the API server asks kubelets for: the logs of pods. One
// server plays the kubelets of all nodes, whose status names its port.
func (s *stack) serveLogs() error {
	p, err := s.credentials.clients.issue(pkix.Name{CommonName: "kubelet"}, "127.0.0.1")
	if err != nil {
		return err
	}
	certificate, err := tls.X509KeyPair(p.cert, p.key)
	if err != nil {
		return fmt.Errorf("read the kubelet's certificate: %w", err)
	}
	listener, err := listen(s.port("kubelet"))
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler:           api.PodHandler(api.PodHandlerConfig{GetContainerLogs: s.containerLog}, false),
		ReadHeaderTimeout: 10 * time.Second,
		TLSConfig:         &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate}},
	}
	go func() { _ = server.ServeTLS(listener, "", "") }() // until it is closed
	s.closers = append(s.closers, server.Close)
	return nil
}

// containerLog opens the log of a container that is or was run.
func (s *stack) containerLog(_ context.Context, namespace, pod, container string, _ api.ContainerLogOpts) (io.ReadCloser, error) {
	p := &corev1.Pod{}
	p.Namespace, p.Name = namespace, pod
	f, err := os.Open(s.podLog(p, container))
	if os.IsNotExist(err) {
		return nil, fmt.Errorf("container %s of pod %s/%s runs nothing", container, namespace, pod)
	}
	return f, err
}
