package cluster

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"kubevirt.io/client-go/kubevirt"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
)

// Client speaks to one Kubernetes cluster. It is safe for concurrent use.
type Client struct {
	dynamic  dynamic.Interface
	core     kubernetes.Interface
	compact  kubernetes.Interface // the same, by protobuf
	kubevirt kubevirt.Interface
	config   *rest.Config
	mapper   meta.ResettableRESTMapper
	server   string
	manager  string // of the fields that are written
}

// Options say which cluster to speak to, as kubectl reads them.
type Options struct {
	Kubeconfig string // "" for $KUBECONFIG, ~/.kube/config, or the pod's own account
	Context    string // "" for the current one
	UserAgent  string
	Manager    string // of the fields that are written; "" for gpuctl
}

// Quiet keeps the client libraries from logging: their errors come back to the caller anyway.
func Quiet() {
	klog.SetLogger(logr.Discard())
	log.SetLogger(logr.Discard())
}

// requestTimeout bounds one request; waiting longer is the caller's decision.
const requestTimeout = 30 * time.Second

// Connect makes a client; it does not speak to the cluster yet.
func Connect(o Options) (*Client, error) {
	config, err := o.Config()
	if err != nil {
		return nil, err
	}
	c, err := ForConfig(config)
	if err == nil {
		c.manager = cmp.Or(o.Manager, c.manager)
	}
	return c, err
}

// Config returns what the options say as client-go takes it.
func (o Options) Config() (*rest.Config, error) {
	config, err := o.loader().ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("load kubeconfig: %w; see --kubeconfig and --context", err)
	}
	config.UserAgent = o.UserAgent
	return config, nil
}

// loader reads the kubeconfig as kubectl does.
func (o Options) loader() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.Kubeconfig
	overrides := &clientcmd.ConfigOverrides{CurrentContext: o.Context}
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
}

// NamespaceOf returns the namespace of the kubeconfig's context, "" when there is no
// kubeconfig to read.
func NamespaceOf(o Options) string {
	namespace, _, err := o.loader().Namespace()
	if err != nil {
		return ""
	}
	return namespace
}

// Contexts returns the names of the kubeconfig's contexts, sorted.
func Contexts(kubeconfig string) ([]string, error) {
	config, err := Options{Kubeconfig: kubeconfig}.loader().RawConfig()
	if err != nil {
		return nil, err
	}
	return slices.Sorted(maps.Keys(config.Contexts)), nil
}

// completed are the kinds whose names Names lists.
func completed() map[string]schema.GroupKind {
	vm, vmi := schema.GroupKind{Group: "kubevirt.io", Kind: "VirtualMachine"}, schema.GroupKind{Group: "kubevirt.io", Kind: "VirtualMachineInstance"}
	return map[string]schema.GroupKind{
		"vm": vm, "vmi": vmi, "node": {Kind: "Node"}, "namespace": {Kind: "Namespace"},
		"class": {Group: v1alpha1.GroupName, Kind: "GPUClass"}, "device": {Group: v1alpha1.GroupName, Kind: "GPUDevice"},
	}
}

// namesLimit is how many names are enough to choose from.
const namesLimit = 500

// Names lists the names of the objects of a kind ("vm", "vmi", "node",
// "namespace", "class", "device"), those of a namespaced kind in the namespace only.
func (c *Client) Names(ctx context.Context, kind, namespace string) ([]string, error) {
	k, ok := completed()[kind]
	if !ok {
		return nil, fmt.Errorf("no names of kind %q", kind)
	}
	mapping, err := c.mapper.RESTMapping(k)
	if err != nil {
		return nil, err
	}
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		namespace = metav1.NamespaceAll
	}
	list, err := c.dynamic.Resource(mapping.Resource).Namespace(namespace).List(ctx, metav1.ListOptions{Limit: namesLimit})
	if err != nil {
		return nil, err
	}
	var out []string
	for i := range list.Items {
		out = append(out, list.Items[i].GetName())
	}
	return out, nil
}

// ForConfig makes a client of a ready configuration.
func ForConfig(config *rest.Config) (*Client, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = 50, 100
	if config.Timeout == 0 {
		config.Timeout = requestTimeout
	}
	config.WarningHandler = rest.NoWarnings{}
	c := &Client{config: config, server: config.Host, manager: "gpuctl"}
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
	protobuf := rest.CopyConfig(config)
	protobuf.ContentType, protobuf.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	if c.compact, err = kubernetes.NewForConfig(protobuf); err != nil {
		return nil, fmt.Errorf("connect to %s: %w", config.Host, err)
	}
	c.mapper = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(c.core.Discovery()))
	return c, nil
}
