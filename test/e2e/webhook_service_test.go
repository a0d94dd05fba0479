package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// class makes a GPUClass of a spec in YAML.
func (s *stage) class(name, spec string) *unstructured.Unstructured {
	s.t.Helper()
	return s.Create(s.Decode(fmt.Sprintf("{apiVersion: gpuctl.dev/v1alpha1, kind: GPUClass, metadata: {name: %s}, spec: %s}", name, spec)))
}

// tenant makes a namespace in which orders are judged.
func (s *stage) tenant() string {
	s.t.Helper()
	ns := s.Namespace()
	s.Eventually(soon, "namespace "+ns+" is known", func(ctx context.Context) error {
		if err := s.place(ctx, s.order(ns, "known", "nothing", 1), true); err == nil || !strings.Contains(err.Error(), "GPU0620") {
			return errorf("an order of nothing is answered with %w", err)
		}
		return s.place(ctx, s.order(ns, "known", "h200", 1), true)
	})
	return ns
}

// ready returns the controller's pods that a Service would send calls to.
func (s *stage) ready(ctx context.Context) (out []corev1.Pod, err error) {
	list, err := s.Clientset().CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=controller"})
	if err != nil {
		return nil, err
	}
	for _, pod := range list.Items {
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue && pod.DeletionTimestamp == nil {
				out = append(out, pod)
			}
		}
	}
	return out, nil
}

// service plays a Service's proxy: each new connection goes to the next pod that is
// ready.
type service struct {
	s    *stage
	port string

	mu    sync.Mutex
	next  int
	conns map[net.Conn]bool
}

// serve makes the API server reach the controller's pods.
func (s *stage) serve(name, port string) *service {
	s.t.Helper()
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	v := &service{s: s, port: port, conns: map[net.Conn]bool{}}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go v.pass(conn)
		}
	}()
	s.t.Cleanup(func() { _ = l.Close(); v.cut() })
	s.Expose(s.namespace+"/"+name, l.Addr().String())
	return v
}

// pass connects to a pod.
func (v *service) pass(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	pods, err := v.s.ready(ctx)
	if err != nil || len(pods) == 0 {
		return
	}
	v.mu.Lock()
	v.next++
	pod := pods[v.next%len(pods)]
	v.mu.Unlock()
	remote, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(pod.Status.PodIP, v.port))
	if err != nil {
		return
	}
	v.keep(conn, true)
	defer v.keep(conn, false)
	go func() {
		_, _ = io.Copy(remote, conn)
		_ = remote.Close()
	}()
	_, _ = io.Copy(conn, remote)
}

func (v *service) keep(conn net.Conn, open bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.conns[conn] = true; !open {
		delete(v.conns, conn)
	}
}

// cut ends all connections: the next call shakes hands anew.
func (v *service) cut() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for conn := range v.conns {
		_ = conn.Close()
	}
}
