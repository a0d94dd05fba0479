package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// callers create orders in dry runs, all the time. Between two calls connections can
// be cut, so that the API server shakes hands anew.
type callers struct {
	calls   atomic.Int64
	busy    sync.RWMutex // held for reading by who calls
	mu      sync.Mutex
	failed  []error
	stopped sync.WaitGroup
	ctx     context.Context
	stop    context.CancelFunc
}

// ended reports that nobody is to call any more.
func (c *callers) ended() bool { return c.ctx.Err() != nil }

// call starts callers, and something that cuts the connections between their calls.
func (s *stage) call(ctx context.Context, v *service, amount int) *callers {
	ctx, stop := context.WithCancel(ctx)
	c := &callers{ctx: ctx, stop: stop}
	for i := range amount {
		c.stopped.Go(func() {
			for ctx.Err() == nil {
				c.busy.RLock()
				err := s.place(context.WithoutCancel(ctx), s.order("default", fmt.Sprintf("caller-%d", i), "h200", 1), true)
				c.busy.RUnlock()
				c.calls.Add(1)
				if err != nil {
					c.fail(err)
				}
				time.Sleep(5 * time.Millisecond)
			}
		})
	}
	c.stopped.Go(func() {
		for ctx.Err() == nil {
			time.Sleep(100 * time.Millisecond)
			c.busy.Lock()
			v.cut()
			time.Sleep(50 * time.Millisecond) // until the API server has seen it
			c.busy.Unlock()
		}
	})
	return c
}

func (c *callers) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed = append(c.failed, fmt.Errorf("%s: %w", time.Now().Format("15:04:05.000"), err))
}

// end stops the callers and returns how many calls there were, and what failed.
func (c *callers) end() (calls int64, failed []error) {
	c.stop()
	c.stopped.Wait()
	return c.calls.Load(), c.failed
}

// trusted is what the API server trusts, the same for all webhooks.
func (s *stage) trusted(ctx context.Context) ([]byte, error) {
	bundles, err := s.bundles(ctx)
	if err != nil {
		return nil, err
	}
	if len(bundles) != 1 {
		return nil, fmt.Errorf("webhooks trust %d different things", len(bundles))
	}
	return bundles[0], nil
}

// bundles are what the API server trusts for one webhook or another, each once.
func (s *stage) bundles(ctx context.Context) (out [][]byte, err error) {
	hooks := s.Clientset().AdmissionregistrationV1()
	validating, err1 := hooks.ValidatingWebhookConfigurations().Get(ctx, s.webhookConfiguration(), metav1.GetOptions{})
	mutating, err2 := hooks.MutatingWebhookConfigurations().Get(ctx, s.webhookConfiguration(), metav1.GetOptions{})
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	for i := range validating.Webhooks {
		out = append(out, validating.Webhooks[i].ClientConfig.CABundle)
	}
	for i := range mutating.Webhooks {
		out = append(out, mutating.Webhooks[i].ClientConfig.CABundle)
	}
	slices.SortFunc(out, bytes.Compare)
	return slices.CompactFunc(out, bytes.Equal), nil
}

// shake shakes hands with each replica as the API server would for each webhook, trusting
// what it was told to, and returns what they serve.
func (s *stage) shake(ctx context.Context, maximum uint16) (served [][]byte, err error) {
	bundles, err := s.bundles(ctx)
	if err != nil {
		return nil, err
	}
	pods, err := s.ready(ctx)
	if err != nil {
		return nil, err
	}
	for i := range pods {
		var raw []byte
		for _, bundle := range bundles {
			roots := x509.NewCertPool()
			roots.AppendCertsFromPEM(bundle)
			d := tls.Dialer{Config: &tls.Config{RootCAs: roots, ServerName: s.webhookService() + "." + s.namespace + ".svc", MaxVersion: maximum}}
			conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(pods[i].Status.PodIP, webhookPort))
			if err != nil {
				return nil, fmt.Errorf("%s is not believed: %w", pods[i].Name, err)
			}
			raw = conn.(*tls.Conn).ConnectionState().PeerCertificates[0].Raw
			_ = conn.Close()
		}
		served = append(served, raw)
	}
	return served, nil
}

// rotatesCertificates changes certificate and authority while orders come in.
func (s *stage) rotatesCertificates(v *service) {
	t := s.t
	t.Helper()
	if _, err := s.shake(t.Context(), tls.VersionTLS11); err == nil {
		t.Error("TLS 1.1 is spoken")
	}
	calls := s.call(t.Context(), v, 4)
	calls.stopped.Go(func() {
		for !calls.ended() {
			if _, err := s.shake(context.WithoutCancel(t.Context()), 0); err != nil {
				calls.fail(err)
			}
			time.Sleep(20 * time.Millisecond)
		}
	})
	for i, due := range []struct{ name, patch string }{
		{"the certificate is due", `{"data":{"tls.crt":null,"tls.key":null}}`},
		{"the authority is due", `{"data":{"ca.key":null}}`},
		{"all is lost", `{"data":null}`},
	} {
		was, err := s.Clientset().CoreV1().Secrets(s.namespace).Get(t.Context(), s.webhookSecret(), metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(was.Data["tls.crt"]) == 0 {
			t.Fatal("there is no certificate")
		}
		began := time.Now()
		if _, err := s.Clientset().CoreV1().Secrets(s.namespace).Patch(t.Context(), s.webhookSecret(), types.MergePatchType, []byte(due.patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		s.Eventually(soon, "both replicas serve another certificate: "+due.name, func(ctx context.Context) error {
			now, err := s.Clientset().CoreV1().Secrets(s.namespace).Get(ctx, s.webhookSecret(), metav1.GetOptions{})
			if err != nil {
				return err
			}
			block, _ := pem.Decode(now.Data["tls.crt"])
			served, err := s.shake(ctx, 0)
			if err != nil || block == nil || len(served) != 2 || bytes.Equal(now.Data["tls.crt"], was.Data["tls.crt"]) ||
				!bytes.Equal(served[0], block.Bytes) || !bytes.Equal(served[1], block.Bytes) {
				return fmt.Errorf("%d replicas serve something else: %w", len(served), err)
			}
			return nil
		})
		bundle, err := s.trusted(t.Context())
		if authorities := bytes.Count(bundle, []byte("BEGIN")); err != nil || authorities != i+1 {
			t.Errorf("%s: %d authorities are trusted, want %d: %v", due.name, authorities, i+1, err)
		}
		t.Logf("%s: both replicas serve another one after %s", due.name, time.Since(began).Round(time.Millisecond))
	}
	amount, failed := calls.end()
	t.Logf("%d calls", amount)
	for _, err := range failed[:min(len(failed), 5)] {
		t.Error(err)
	}
	if amount < 100 || len(failed) > 0 {
		t.Errorf("%d of %d calls failed", len(failed), amount)
	}
}
