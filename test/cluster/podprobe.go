package cluster

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// eagerness is how often a startup or readiness probe is tried until it first
// succeeds. kubelet waits for the probe's period, and tests would with it.
const eagerness = 200 * time.Millisecond

// maxProbeBody is how much of an answer is read.
const maxProbeBody = 10 << 10

// probe runs the container's probes until ctx ends.
func (c *container) probe(ctx context.Context, env []string) *sync.WaitGroup {
	var probes sync.WaitGroup
	restart := func(kind string, why error) {
		select {
		case c.unhealthy <- fmt.Sprintf("Container %s failed %s probe, will be restarted: %v", c.spec.Name, kind, why):
		default:
		}
	}
	afterStart := func() {
		if p := c.spec.ReadinessProbe; p != nil {
			probes.Go(func() { c.watch(ctx, p, env, true, func(why error) bool { c.ready(why == nil); return true }) })
		}
		if p := c.spec.LivenessProbe; p != nil {
			probes.Go(func() {
				c.watch(ctx, p, env, false, func(why error) bool {
					if why != nil {
						restart("liveness", why)
					}
					return why == nil
				})
			})
		}
	}
	p := c.spec.StartupProbe
	if p == nil {
		afterStart()
		return &probes
	}
	probes.Go(func() {
		c.watch(ctx, p, env, true, func(why error) bool {
			if why != nil {
				restart("startup", why)
				return false
			}
			c.setStatus(func(s *corev1.ContainerStatus) {
				s.Started = new(bool)
				*s.Started, s.Ready = true, c.spec.ReadinessProbe == nil
			})
			afterStart()
			return false
		})
	})
	return &probes
}

// ready says whether the container is ready, if that has changed.
func (c *container) ready(ready bool) {
	c.sandbox.mu.Lock()
	same := c.status.Ready == ready || c.status.State.Running == nil
	c.sandbox.mu.Unlock()
	if !same {
		c.setStatus(func(s *corev1.ContainerStatus) { s.Ready = ready })
	}
}

// watch runs a probe until ctx ends or told returns false. It tells each verdict,
// which is reached when the probe failed or succeeded often enough in a row.
func (c *container) watch(ctx context.Context, p *corev1.Probe, env []string, eager bool, told func(why error) bool) {
	period := seconds(p.PeriodSeconds, 10)
	wait := time.Duration(p.InitialDelaySeconds) * time.Second
	var good, bad int32
	var counted time.Time
	for succeeded := false; ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		err := c.check(ctx, p, env)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			succeeded = true
			good, bad = good+1, 0
			if good >= max(p.SuccessThreshold, 1) && !told(nil) {
				return
			}
		case succeeded || time.Since(counted) >= period:
			counted = time.Now()
			good, bad = 0, bad+1
			if bad >= cmp.Or(p.FailureThreshold, 3) && !told(err) {
				return
			}
		}
		wait = period
		if eager && !succeeded {
			wait = min(period, eagerness)
		}
	}
}

func seconds(n, otherwise int32) time.Duration {
	return time.Duration(cmp.Or(n, otherwise)) * time.Second
}

// check runs a probe once.
func (c *container) check(ctx context.Context, p *corev1.Probe, env []string) error {
	ctx, cancel := context.WithTimeout(ctx, seconds(p.TimeoutSeconds, 1))
	defer cancel()
	switch {
	case p.HTTPGet != nil:
		return c.checkHTTP(ctx, p.HTTPGet)
	case p.TCPSocket != nil:
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", c.address(p.TCPSocket.Host, p.TCPSocket.Port))
		if err != nil {
			return err
		}
		return conn.Close()
	case p.Exec != nil:
		return c.checkExec(ctx, p.Exec.Command, env)
	default:
		return nil // what is not played succeeds
	}
}

func (c *container) checkHTTP(ctx context.Context, get *corev1.HTTPGetAction) error {
	scheme := strings.ToLower(string(cmp.Or(get.Scheme, corev1.URISchemeHTTP)))
	url := scheme + "://" + c.address(get.Host, get.Port) + "/" + strings.TrimPrefix(get.Path, "/")
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	req.Header.Set("User-Agent", "kube-probe/1.37")
	for _, h := range get.HTTPHeaders {
		req.Header.Set(h.Name, h.Value)
		if strings.EqualFold(h.Name, "Host") {
			req.Host = h.Value
		}
	}
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true,
	}}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, maxProbeBody))
	if resp.StatusCode < http.StatusOK || resp.StatusCode >= http.StatusBadRequest {
		err = fmt.Errorf("HTTP probe failed with statuscode: %d", resp.StatusCode)
	}
	return errors.Join(err, resp.Body.Close())
}

// address returns where a port of the container is.
func (c *container) address(host string, port intstr.IntOrString) string {
	number := port.IntValue()
	if port.Type == intstr.String {
		for _, p := range c.spec.Ports {
			if p.Name == port.StrVal {
				number = int(p.ContainerPort)
			}
		}
	}
	return net.JoinHostPort(cmp.Or(host, c.sandbox.ip), strconv.Itoa(number))
}

func (c *container) checkExec(ctx context.Context, command, env []string) error {
	if len(command) == 0 {
		return nil
	}
	cmd := &exec.Cmd{Path: c.inImage(command[0]), Args: command, Env: env, Dir: c.sandbox.dir}
	if err := c.sandbox.kubelets.stack.launcher.start(cmd); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = signalGroup(cmd, syscall.SIGKILL) })
	defer stop()
	return cmd.Wait()
}
