package cluster

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// probe asks the container how it is until the returned function is called: a
// readiness probe makes it ready or not, a liveness probe ends it.
func (c *containerRun) probe() (stop func()) {
	ctx, cancel := context.WithCancel(c.pod.ctx)
	if p := c.spec.ReadinessProbe; p != nil {
		go c.every(ctx, p, func(ok bool) {
			if c.isReady() == ok {
				return
			}
			c.pod.change(func(*corev1.PodStatus) { c.status.Ready = ok && c.status.State.Running != nil })
		})
	}
	if p := c.spec.LivenessProbe; p != nil {
		go c.every(ctx, p, func(ok bool) {
			if !ok {
				c.signal(syscall.SIGTERM)
			}
		})
	}
	return cancel
}

func (c *containerRun) isReady() bool {
	c.pod.mu.Lock()
	defer c.pod.mu.Unlock()
	return c.status.Ready
}

// every probes with the probe's period, at most once a second at the start, and
// reports when a threshold is reached.
func (c *containerRun) every(ctx context.Context, p *corev1.Probe, report func(ok bool)) {
	period := time.Duration(max(p.PeriodSeconds, 1)) * time.Second
	good, bad := int32(0), int32(0)
	if !sleep(ctx, time.Duration(p.InitialDelaySeconds)*time.Second) {
		return
	}
	for {
		if err := c.ask(ctx, p); err == nil {
			good, bad = good+1, 0
		} else {
			good, bad = 0, bad+1
		}
		switch {
		case ctx.Err() != nil:
			return
		case good >= max(p.SuccessThreshold, 1):
			report(true)
		case bad >= max(p.FailureThreshold, 1):
			report(false)
		}
		pause := period
		if good == 0 { // kubelet is as patient as the period; tests are not
			pause = min(period, time.Second)
		}
		if !sleep(ctx, pause) {
			return
		}
	}
}

// ask probes once.
func (c *containerRun) ask(ctx context.Context, p *corev1.Probe) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(max(p.TimeoutSeconds, 1))*time.Second)
	defer cancel()
	switch {
	case p.HTTPGet != nil:
		url := fmt.Sprintf("http://%s/%s", c.address(p.HTTPGet.Port), trimSlash(p.HTTPGet.Path))
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return err
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		_ = res.Body.Close()
		if res.StatusCode < 200 || res.StatusCode >= 400 {
			return fmt.Errorf("it answers %s", res.Status)
		}
		return nil
	case p.TCPSocket != nil:
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", c.address(p.TCPSocket.Port))
		if err != nil {
			return err
		}
		return conn.Close()
	}
	return fmt.Errorf("this kind of probe is not played")
}

func trimSlash(path string) string {
	if path != "" && path[0] == '/' {
		return path[1:]
	}
	return path
}

// address returns where a port of the container, named or not, is.
func (c *containerRun) address(port intstr.IntOrString) string {
	number := port.IntValue()
	for _, p := range c.spec.Ports {
		if port.Type == intstr.String && p.Name == port.StrVal {
			number = int(p.ContainerPort)
		}
	}
	return net.JoinHostPort(c.pod.ip, strconv.Itoa(number))
}
