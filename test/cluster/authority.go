package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// validity of every certificate: longer than any cluster lives.
const validity = 7 * 24 * time.Hour

// authority issues certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// pair is a certificate, or a public key, and its private key, as PEM.
type pair struct{ cert, key []byte }

func newAuthority(name string) (*authority, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	template := newTemplate(pkix.Name{CommonName: name})
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage |= x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("sign the certificate of authority %q: %w", name, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read the certificate of authority %q: %w", name, err)
	}
	return &authority{cert: cert, key: key}, nil
}

// pem returns the authority's certificate.
func (a *authority) pem() []byte { return encode("CERTIFICATE", a.cert.Raw) }

// pair returns the authority's certificate and key.
func (a *authority) pair() (pair, error) { return newPair(a.cert.Raw, a.key) }

// issue signs a certificate: of a client, or of a server when it has hosts.
func (a *authority) issue(subject pkix.Name, hosts ...string) (pair, error) {
	key, err := newKey()
	if err != nil {
		return pair{}, err
	}
	template := newTemplate(subject)
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	for _, host := range hosts {
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
			continue
		}
		template.DNSNames = append(template.DNSNames, host)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return pair{}, fmt.Errorf("sign a certificate for %q: %w", subject, err)
	}
	return newPair(der, key)
}

// newTemplate starts in the past, as clocks do go backwards.
func newTemplate(subject pkix.Name) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      subject,
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(validity),
		KeyUsage:     x509.KeyUsageDigitalSignature,
	}
}

func newKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate a key: %w", err)
	}
	return key, nil
}

func newPair(cert []byte, key *ecdsa.PrivateKey) (pair, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return pair{}, fmt.Errorf("encode a key: %w", err)
	}
	return pair{cert: encode("CERTIFICATE", cert), key: encode("EC PRIVATE KEY", der)}, nil
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// write writes dir/name.crt and dir/name.key.
func (p pair) write(dir, name string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, name+".crt"), p.cert, 0o600); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name+".key"), p.key, 0o600)
}

// ServerCertificate returns the TLS configuration of a server for some hosts,
// such as "webhook.some-namespace.svc", and the CA that clients have to trust.
func ServerCertificate(t testing.TB, hosts ...string) (ca []byte, config *tls.Config) {
	t.Helper()
	a, err := newAuthority("test")
	if err != nil {
		t.Fatal(err)
	}
	p, err := a.issue(pkix.Name{CommonName: "server"}, hosts...)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := tls.X509KeyPair(p.cert, p.key)
	if err != nil {
		t.Fatal(err)
	}
	return a.pem(), &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
}
