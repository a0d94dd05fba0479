package certs

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"maps"
	"time"

	"github.com/open-policy-agent/cert-controller/pkg/rotator"
)

// Keys of the Secret. ca.crt has the authority that signs first, then those that it
// took over from: together they are what has to be trusted.
const (
	caCert  = "ca.crt"
	caKey   = "ca.key"
	tlsCert = "tls.crt"
	tlsKey  = "tls.key"
)

const (
	authorityName = "gpuctl-webhook-ca"
	// authorityLasts and certificateLasts are how long what is made is valid.
	authorityLasts   = 10 * 365 * 24 * time.Hour
	certificateLasts = 365 * 24 * time.Hour
	// ahead is how long before its end something is made anew.
	ahead = 90 * 24 * time.Hour
	// early is how long before it was made something is valid, for clocks that are late.
	early = time.Hour
	// overlap is for how long an authority is trusted after another one took over. By
	// then each replica serves what the other one signed.
	overlap = time.Hour
)

// stage returns what the Secret should have, and what was done about it; nothing was
// done when that is what it has. Its first authority signs; those that are trusted
// outside stay trusted for a while, so that what replicas serve at the moment is.
func stage(have map[string][]byte, outside [][]byte, name string, now time.Time) (want map[string][]byte, done string, err error) {
	maker := &rotator.CertRotator{CAName: authorityName, CAOrganization: "gpuctl", DNSName: name, ExtKeyUsages: &[]x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	want = maps.Clone(have)
	if want == nil {
		want = map[string][]byte{}
	}
	good := func(ca, cert, key []byte, name string, usages *[]x509.ExtKeyUsage) bool {
		ok, err := rotator.ValidCert(ca, cert, key, name, usages, now.Add(ahead))
		return ok && err == nil
	}
	if !good(want[caCert], want[caCert], want[caKey], authorityName, nil) {
		ca, err := maker.CreateCACert(now.Add(-early), now.Add(authorityLasts))
		if err != nil {
			return nil, "", fmt.Errorf("make a certificate authority: %w", err)
		}
		want[caCert] = bundle(now, append([][]byte{ca.CertPEM, have[caCert]}, outside...)...)
		want[caKey] = ca.KeyPEM
		done = "made a certificate authority"
	}
	if !good(want[caCert], want[tlsCert], want[tlsKey], name, maker.ExtKeyUsages) {
		ca, err := authority(want)
		if err != nil {
			return nil, "", err
		}
		if want[tlsCert], want[tlsKey], err = maker.CreateCertPEM(ca, now.Add(-early), now.Add(certificateLasts)); err != nil {
			return nil, "", fmt.Errorf("make a certificate: %w", err)
		}
		if done == "" {
			done = "made a certificate"
		}
	}
	if done != "" {
		return want, done, nil
	}
	if all := parse(want[caCert]); len(all) > 1 && now.After(all[0].NotBefore.Add(early+overlap)) {
		want[caCert] = encode(all[0])
		done = "took earlier authorities away"
	}
	return want, done, nil
}

// authority returns what signs.
func authority(data map[string][]byte) (*rotator.KeyPairArtifacts, error) {
	block, _ := pem.Decode(data[caKey])
	all := parse(data[caCert])
	if block == nil || len(all) == 0 {
		return nil, fmt.Errorf("read %s and %s: not PEM", caCert, caKey)
	}
	key, err := x509.ParsePKCS1PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", caKey, err)
	}
	return &rotator.KeyPairArtifacts{Cert: all[0], Key: key, CertPEM: encode(all[0]), KeyPEM: data[caKey]}, nil
}

// bundle joins authorities, each once, without those that have ended.
func bundle(now time.Time, parts ...[]byte) []byte {
	var out []byte
	seen := map[string]bool{}
	for _, part := range parts {
		for _, c := range parse(part) {
			if c.IsCA && now.Before(c.NotAfter) && !seen[string(c.Raw)] {
				out = append(out, encode(c)...)
			}
			seen[string(c.Raw)] = true
		}
	}
	return out
}

// parse returns the certificates of a PEM text; what is none of them is left out.
func parse(text []byte) (out []*x509.Certificate) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if c, err := x509.ParseCertificate(block.Bytes); err == nil && block.Type == "CERTIFICATE" {
			out = append(out, c)
		}
	}
	return out
}

func encode(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}

// pair is a certificate that can be served.
type pair struct {
	cert *tls.Certificate
	pem  []byte
}

// pairOf returns the Secret's certificate.
func pairOf(data map[string][]byte) (pair, error) {
	c, err := tls.X509KeyPair(data[tlsCert], data[tlsKey])
	if err != nil {
		return pair{}, fmt.Errorf("read %s and %s: %w", tlsCert, tlsKey, err)
	}
	return pair{&c, data[tlsCert]}, nil
}

// is reports the same certificate.
func (p pair) is(other pair) bool { return bytes.Equal(p.pem, other.pem) }
