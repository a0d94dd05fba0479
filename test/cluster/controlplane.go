package cluster

import (
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Names of the components, for Stop and Start.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
	VirtAPI           = "virt-api"
	VirtController    = "virt-controller"
	VirtOperator      = "virt-operator" // with WithOperator only
)

const serviceRange = "10.0.0.0/24"

// credentials are the certificates and keys of the control plane.
type credentials struct {
	clients  *authority // whose certificates name users
	tokenKey *ecdsa.PrivateKey
	dir      string
}

// newCredentials makes the credentials and writes what the components read.
func newCredentials(dir string) (*credentials, error) {
	clients, err := newAuthority("kubernetes")
	if err != nil {
		return nil, err
	}
	proxies, err := newAuthority("front-proxy")
	if err != nil {
		return nil, err
	}
	key, tokens, err := tokenKey()
	if err != nil {
		return nil, err
	}
	server, err := clients.issue(pkix.Name{CommonName: "kube-apiserver"},
		"127.0.0.1", "10.0.0.1", "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
	if err != nil {
		return nil, err
	}
	proxy, err := proxies.issue(pkix.Name{CommonName: "front-proxy-client"})
	if err != nil {
		return nil, err
	}
	authority, err := clients.pair()
	if err != nil {
		return nil, err
	}
	return &credentials{clients: clients, tokenKey: key, dir: dir}, errors.Join(
		authority.write(dir, "ca"), tokens.write(dir, "tokens"), server.write(dir, "apiserver"), proxy.write(dir, "front-proxy"),
		os.WriteFile(filepath.Join(dir, "front-proxy-ca.crt"), proxies.pem(), 0o600))
}

// client returns the configuration of a user who is known by a certificate.
func (c *credentials) client(host, user string, groups ...string) (*rest.Config, error) {
	p, err := c.clients.issue(pkix.Name{CommonName: user, Organization: groups})
	if err != nil {
		return nil, err
	}
	config := c.anonymous(host)
	config.CertData, config.KeyData = p.cert, p.key
	return config, nil
}

// anonymous returns a configuration without credentials. Requests are not
// throttled: tests should not wait for their own client.
func (c *credentials) anonymous(host string) *rest.Config {
	return &rest.Config{Host: host, TLSClientConfig: rest.TLSClientConfig{CAData: c.clients.pem()}, QPS: -1}
}

func (c *credentials) file(name string) string { return filepath.Join(c.dir, name) }

func (s *stack) etcd() *component {
	client, peer := "http://"+loopback(s.port(Etcd)), "http://"+loopback(s.ports.take())
	return s.component(Etcd, httpOK(client+"/health"),
		"--data-dir="+s.dir.file("etcd"),
		"--listen-client-urls="+client, "--advertise-client-urls="+client,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=default="+peer,
		"--unsafe-no-fsync", // the data need not survive the machine
	)
}

func (s *stack) apiServer() *component {
	c := s.credentials
	flags := []string{
		"--etcd-servers=http://" + loopback(s.port(Etcd)),
		"--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(s.port(APIServer)), "--advertise-address=127.0.0.1",
		// Endpoints of loopback addresses are not valid.
		"--endpoint-reconciler-type=none",
		"--service-cluster-ip-range=" + serviceRange,
		"--tls-cert-file=" + c.file("apiserver.crt"), "--tls-private-key-file=" + c.file("apiserver.key"),
		"--client-ca-file=" + c.file("ca.crt"),
		"--service-account-issuer=" + issuer,
		"--service-account-key-file=" + c.file("tokens.crt"), "--service-account-signing-key-file=" + c.file("tokens.key"),
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--kubelet-preferred-address-types=InternalIP", // the names of nodes lead nowhere
		"--allow-privileged=true",                      // as launcher pods may ask for it
		"--requestheader-client-ca-file=" + c.file("front-proxy-ca.crt"), "--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + c.file("front-proxy.crt"), "--proxy-client-key-file=" + c.file("front-proxy.key"),
		"--egress-selector-config-file=" + s.dir.file("egress.json"),
	}
	return s.component(APIServer, apiReady(s.clientset), append(flags, s.auditFlags()...)...)
}

// writeEgressConfig makes the API server connect to the cluster's network
// through a socket.
func writeEgressConfig(path, socket string) error {
	data, err := json.Marshal(map[string]any{
		"apiVersion": "apiserver.k8s.io/v1beta1", "kind": "EgressSelectorConfiguration",
		"egressSelections": []any{map[string]any{
			"name": "cluster",
			"connection": map[string]any{
				"proxyProtocol": "HTTPConnect",
				"transport":     map[string]any{"uds": map[string]any{"udsName": socket}},
			},
		}},
	})
	if err != nil {
		return fmt.Errorf("encode the egress configuration: %w", err)
	}
	return os.WriteFile(path, data, 0o600)
}

func (s *stack) controllerManager(kubeconfig string) *component {
	c := s.credentials
	return s.component(ControllerManager, httpOK("https://"+loopback(s.port(ControllerManager))+"/healthz"),
		"--kubeconfig="+kubeconfig, "--authentication-kubeconfig="+kubeconfig, "--authorization-kubeconfig="+kubeconfig,
		"--bind-address=127.0.0.1", "--secure-port="+strconv.Itoa(s.port(ControllerManager)),
		"--leader-elect=false",
		"--use-service-account-credentials=true",
		"--service-account-private-key-file="+c.file("tokens.key"), "--root-ca-file="+c.file("ca.crt"),
		"--cluster-signing-cert-file="+c.file("ca.crt"), "--cluster-signing-key-file="+c.file("ca.key"),
		"--kube-api-qps=200", "--kube-api-burst=400",
	)
}

func (s *stack) scheduler(kubeconfig string) *component {
	return s.component(Scheduler, httpOK("https://"+loopback(s.port(Scheduler))+"/healthz"),
		"--kubeconfig="+kubeconfig, "--authentication-kubeconfig="+kubeconfig, "--authorization-kubeconfig="+kubeconfig,
		"--bind-address=127.0.0.1", "--secure-port="+strconv.Itoa(s.port(Scheduler)),
		"--leader-elect=false",
	)
}

func apiReady(client kubernetes.Interface) func(context.Context) error {
	return func(ctx context.Context) error {
		return client.Discovery().RESTClient().Get().AbsPath("/readyz").Timeout(time.Second).Do(ctx).Error()
	}
}

// httpOK returns a check that GETs a URL of this machine.
func httpOK(url string) func(context.Context) error {
	client := &http.Client{
		Timeout:   time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true},
	}
	return func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		body, err := io.ReadAll(io.LimitReader(resp.Body, 500))
		if resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("GET %s: %s: %s", url, resp.Status, body)
		}
		return errors.Join(err, resp.Body.Close())
	}
}
