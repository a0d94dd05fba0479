package cluster

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"time"
)

// issuer is the --service-account-issuer, and the audience of the API server.
const issuer = "https://kubernetes.default.svc"

// tokenKey returns a new key for service account tokens, with the public key as
// cert.
func tokenKey() (*ecdsa.PrivateKey, pair, error) {
	key, err := newKey()
	if err != nil {
		return nil, pair{}, err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, pair{}, fmt.Errorf("encode the public key of tokens: %w", err)
	}
	p, err := newPair(nil, key)
	p.cert = encode("PUBLIC KEY", public)
	return key, p, err
}

// signToken makes a service account token as the API server would issue it (a
// JWT signed with ES256), but for any time.
func signToken(key *ecdsa.PrivateKey, namespace, name, uid string, expires time.Time) (string, error) {
	claims := map[string]any{
		"iss": issuer,
		"aud": []string{issuer},
		"sub": userOf(namespace, name),
		"iat": expires.Add(-time.Hour).Unix(),
		"nbf": expires.Add(-time.Hour).Unix(),
		"exp": expires.Unix(),
		"kubernetes.io": map[string]any{
			"namespace":      namespace,
			"serviceaccount": map[string]string{"name": name, "uid": uid},
		},
	}
	header, err := segment(map[string]string{"alg": "ES256", "typ": "JWT"})
	if err != nil {
		return "", err
	}
	body, err := segment(claims)
	if err != nil {
		return "", err
	}
	digest := sha256.Sum256([]byte(header + "." + body))
	r, s, err := ecdsa.Sign(rand.Reader, key, digest[:])
	if err != nil {
		return "", fmt.Errorf("sign a token: %w", err)
	}
	// RFC 7518, 3.4: both numbers as 32 bytes, one after the other.
	signature := make([]byte, 64)
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	return header + "." + body + "." + base64.RawURLEncoding.EncodeToString(signature), nil
}

func segment(v any) (string, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("encode a token: %w", err)
	}
	return base64.RawURLEncoding.EncodeToString(data), nil
}

// userOf returns the user name of a service account.
func userOf(namespace, name string) string {
	return "system:serviceaccount:" + namespace + ":" + name
}
