package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/open-policy-agent/cert-controller/pkg/rotator"
)

// files writes a certificate as cert-manager's Secret has it, and returns whom to trust.
func files(t *testing.T, dir string) *x509.CertPool {
	t.Helper()
	maker := &rotator.CertRotator{CAName: "others", DNSName: "webhooks.example", ExtKeyUsages: &[]x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	begin, end := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	ca, err := maker.CreateCACert(begin, end)
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := maker.CreateCertPEM(ca, begin, end)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{"tls.crt": cert, "tls.key": key} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca.Cert)
	return roots
}

// A certificate that others keep is read from files, and read anew without a restart.
func TestCertificateOfOthers(t *testing.T) {
	c := shared.For(t)
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	port := l.Addr().(*net.TCPAddr).Port
	_ = l.Close()
	dir := t.TempDir()
	first := files(t, dir)
	serve := exec.CommandContext(t.Context(), path, "serve", "--kubeconfig", c.Kubeconfig(), "--orders-enabled", "--orders-namespace", "gpuctl", "--webhook-enabled", "--webhook-cert-dir", dir, "--webhook-port", strconv.Itoa(port),
		"--wiring-enabled=false", "--leader-election-enabled=false", "--metrics-port=0", "--health-port=0")
	serve.Env = []string{"POD_IP=127.0.0.1"}
	serve.WaitDelay = time.Second
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = serve.Process.Kill(); _ = serve.Wait() })
	believed := func(roots *x509.CertPool) func(context.Context) error {
		return func(ctx context.Context) error {
			conn, err := (&tls.Dialer{Config: &tls.Config{RootCAs: roots, ServerName: "webhooks.example"}}).DialContext(ctx, "tcp", addr)
			if err == nil {
				err = conn.Close()
			}
			return err
		}
	}
	c.Eventually(soon, "the certificate is served", believed(first))
	c.Eventually(soon, "the next one is served", believed(files(t, dir)))
}
