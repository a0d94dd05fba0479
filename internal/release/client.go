package release

import (
	"errors"
	"fmt"
	"io"
	"os"

	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/cli"
	"helm.sh/helm/v3/pkg/kube"
	"helm.sh/helm/v3/pkg/storage/driver"
)

// ErrNotFound is returned when there is no release of the name in the namespace.
var ErrNotFound = errors.New("no such release")

// ErrExists is returned when there is one, and none was expected.
var ErrExists = errors.New("the release is there already")

// ErrPending is returned when an install or upgrade has begun and not ended.
var ErrPending = errors.New("another operation on the release is under way, or was broken off")

// Options say which release of which cluster.
type Options struct {
	Kubeconfig string // "" as kubectl finds it
	Context    string // "" for the current one
	Namespace  string
	Name       string
	// Progress is told what is being done, in a few words; it may be nil.
	Progress func(step string)
}

// Client keeps one release. It is for one operation at a time.
type Client struct {
	config  *action.Configuration
	options Options
	failed  *failedHook
}

// Open makes a client; it does not speak to the cluster yet.
func Open(o Options) (*Client, error) {
	settings := cli.New()
	settings.KubeConfig = o.Kubeconfig
	settings.KubeContext = o.Context
	settings.SetNamespace(o.Namespace)
	config := new(action.Configuration)
	// The storage is helm's: a Secret in the namespace unless HELM_DRIVER says else.
	if err := config.Init(settings.RESTClientGetter(), o.Namespace, os.Getenv("HELM_DRIVER"), func(string, ...any) {}); err != nil {
		return nil, fmt.Errorf("prepare Helm: %w", err)
	}
	config.SetHookOutputFunc(func(string, string, string) io.Writer { return io.Discard })
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	failed := new(failedHook)
	if client, ok := config.KubeClient.(*kube.Client); ok {
		config.KubeClient = &narrator{Client: client, say: o.Progress, failed: failed}
	}
	return &Client{config: config, options: o, failed: failed}, nil
}

// Status is what helm status tells of a release.
type Status struct {
	Revision int
	Status   string         // "deployed", "failed", "pending-install", …
	Values   map[string]any // that its user has given
}

// String names the release.
func (c *Client) String() string {
	return "release " + c.options.Name + " in namespace " + c.options.Namespace
}

// Status reads the newest revision; the error is [ErrNotFound] when there is none.
func (c *Client) Status() (Status, error) {
	last, err := c.config.Releases.Last(c.options.Name)
	if errors.Is(err, driver.ErrReleaseNotFound) {
		return Status{}, fmt.Errorf("%s: %w", c, ErrNotFound)
	}
	if err != nil {
		return Status{}, fmt.Errorf("read %s: %w", c, err)
	}
	return Status{Revision: last.Version, Status: last.Info.Status.String(), Values: last.Config}, nil
}
