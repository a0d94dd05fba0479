package certs

import (
	"bytes"
	"crypto/x509"
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const host = "gpuctl-webhook.gpuctl-system.svc"

// made returns a Secret's data as it is made at a time.
func made(t *testing.T, at time.Time) map[string][]byte {
	t.Helper()
	data, done, err := stage(nil, nil, host, at)
	if err != nil || done != "made a certificate authority" {
		t.Fatalf("%q is done: %v", done, err)
	}
	return data
}

// without returns data without some keys.
func without(data map[string][]byte, keys ...string) map[string][]byte {
	out := maps.Clone(data)
	for _, key := range keys {
		delete(out, key)
	}
	return out
}

func TestStage(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	const day = 24 * time.Hour
	old, other := made(t, now), made(t, now)
	ended := made(t, now.Add(-authorityLasts))
	both := maps.Clone(old)
	both[caCert] = append(bytes.Clone(old[caCert]), other[caCert]...)
	rubbish := [][]byte{nil, []byte("rubbish"), old[tlsCert], ended[caCert], old[caCert], old[caCert]}
	for name, tc := range map[string]struct {
		have        map[string][]byte
		outside     [][]byte
		at          time.Time
		done        string
		authorities int
		same        []string // keys that stay
	}{
		"nothing yet":                           {nil, nil, now, "made a certificate authority", 1, nil},
		"nothing to do":                         {old, rubbish, now, "", 1, []string{caCert, caKey, tlsCert, tlsKey}},
		"a certificate long before its end":     {old, nil, now.Add(certificateLasts - ahead - day), "", 1, []string{caCert, caKey, tlsCert, tlsKey}},
		"a certificate that ends":               {old, nil, now.Add(certificateLasts - ahead + day), "made a certificate", 1, []string{caCert, caKey}},
		"a certificate that is gone":            {without(old, tlsCert, tlsKey), nil, now, "made a certificate", 1, []string{caCert, caKey}},
		"an authority that ends":                {old, nil, now.Add(authorityLasts - ahead + day), "made a certificate authority", 2, nil},
		"an authority that has ended":           {old, nil, now.Add(authorityLasts + day), "made a certificate authority", 1, nil},
		"an authority without its key":          {without(old, caKey), nil, now, "made a certificate authority", 2, nil},
		"another one's key":                     {map[string][]byte{caCert: old[caCert], caKey: other[caKey], tlsCert: old[tlsCert], tlsKey: old[tlsKey]}, nil, now, "made a certificate authority", 2, nil},
		"another one's certificate":             {map[string][]byte{caCert: old[caCert], caKey: old[caKey], tlsCert: other[tlsCert], tlsKey: other[tlsKey]}, nil, now, "made a certificate", 1, []string{caCert, caKey}},
		"lost, and still trusted outside":       {nil, rubbish, now, "made a certificate authority", 2, nil},
		"an earlier authority, within the hour": {both, nil, now.Add(overlap - time.Minute), "", 2, []string{caCert, caKey, tlsCert, tlsKey}},
		"an earlier authority, after it":        {both, nil, now.Add(overlap + time.Minute), "took earlier authorities away", 1, []string{caKey, tlsCert, tlsKey}},
	} {
		t.Run(name, func(t *testing.T) {
			before := maps.Clone(tc.have)
			got, done, err := stage(tc.have, tc.outside, host, tc.at)
			if err != nil || done != tc.done {
				t.Fatalf("%q is done, want %q: %v", done, tc.done, err)
			}
			if diff := cmp.Diff(before, tc.have); diff != "" {
				t.Errorf("what it was given is changed:\n%s", diff)
			}
			var same []string
			for _, key := range []string{caCert, caKey, tlsCert, tlsKey} {
				if bytes.Equal(got[key], tc.have[key]) {
					same = append(same, key)
				}
			}
			if diff := cmp.Diff(tc.same, same); diff != "" {
				t.Errorf("what stays (-want +got):\n%s", diff)
			}
			if n := len(parse(got[caCert])); n != tc.authorities {
				t.Errorf("%d authorities, want %d", n, tc.authorities)
			}
			p, err := pairOf(got)
			if err != nil || !p.trusted(got[caCert], host, tc.at) || !p.trusted(encode(parse(got[caCert])[0]), host, tc.at) {
				t.Errorf("the certificate is not its authority's: %v", err)
			}
			if again, done, err := stage(got, tc.outside, host, tc.at); err != nil || done != "" || !maps.EqualFunc(again, got, bytes.Equal) {
				t.Errorf("it is not done: %q, %v", done, err)
			}
		})
	}
}

// What replicas serve is believed while the authority changes, and what they will
// serve, too.
func TestBothAreTrusted(t *testing.T) {
	now := time.Now()
	before := made(t, now)
	after, _, err := stage(without(before, caKey), [][]byte{before[caCert]}, host, now)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string]map[string][]byte{"the earlier": before, "the next": after} {
		p, err := pairOf(data)
		if err != nil || !p.trusted(after[caCert], host, now) {
			t.Errorf("%s certificate is not trusted: %v", name, err)
		}
		if p.trusted(after[caCert], "other.gpuctl-system.svc", now) || p.trusted(nil, host, now) || p.trusted(made(t, now)[caCert], host, now) {
			t.Errorf("%s certificate is trusted whatever is asked", name)
		}
	}
	p, _ := pairOf(after)
	if p.trusted(before[caCert], host, now) {
		t.Error("the next certificate is the earlier authority's")
	}
}

// trusted reports that whoever trusts a bundle believes the certificate to be name's.
func (p pair) trusted(bundle []byte, name string, now time.Time) bool {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	_, err := p.cert.Leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: roots, CurrentTime: now})
	return err == nil
}
