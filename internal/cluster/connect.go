package cluster

import (
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"kubevirt.io/client-go/kubevirt"
)

// Client speaks to one Kubernetes cluster. It is safe for concurrent use.
type Client struct {
	dynamic  dynamic.Interface
	core     kubernetes.Interface
	kubevirt kubevirt.Interface
	mapper   meta.ResettableRESTMapper
	server   string
}

// Options say which cluster to speak to, as kubectl reads them.
type Options struct {
	Kubeconfig string // "" for $KUBECONFIG, ~/.kube/config, or the pod's own account
	Context    string // "" for the current one
	UserAgent  string
}

// Quiet keeps client-go from logging: its errors come back to the caller anyway.
func Quiet() { klog.SetLogger(logr.Discard()) }

// requestTimeout bounds one request; waiting longer is the caller's decision.
const requestTimeout = 30 * time.Second

// Connect makes a client; it does not speak to the cluster yet.
func Connect(o Options) (*Client, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.Kubeconfig
	overrides := &clientcmd.ConfigOverrides{CurrentContext: o.Context}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("load kubeconfig: %w; see --kubeconfig and --context", err)
	}
	config.UserAgent = o.UserAgent
	return ForConfig(config)
}

// ForConfig makes a client of a ready configuration.
func ForConfig(config *rest.Config) (*Client, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = 50, 100
	if config.Timeout == 0 {
		config.Timeout = requestTimeout
	}
	config.WarningHandler = rest.NoWarnings{}
	c := &Client{server: config.Host}
	var err error
	if c.dynamic, err = dynamic.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("connect to %s: %w", config.Host, err)
	}
	if c.kubevirt, err = kubevirt.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("connect to %s: %w", config.Host, err)
	}
	if c.core, err = kubernetes.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("connect to %s: %w", config.Host, err)
	}
	c.mapper = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(c.core.Discovery()))
	return c, nil
}
