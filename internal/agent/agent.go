// Package agent keeps one node's GPUNode true: it reads the host's PCI inventory
// again and again, writes it when it has changed, and renews a Lease by which
// others see that it lives.
package agent

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/internal/cluster"
	"github.com/gpuctl/gpuctl/internal/gpu"
)

// Store is where the agent reports. ReportGPUNode says whether it had to write.
type Store interface {
	GPUNode(ctx context.Context, name string) (*v1alpha1.GPUNode, error)
	ReportGPUNode(ctx context.Context, name string, spec *v1alpha1.GPUNodeSpec) (written bool, err error)
	RenewAgentLease(ctx context.Context, namespace, node string, now time.Time, lasts time.Duration) error
}

// Config says who the agent is and how often it does what.
type Config struct {
	Node      string // the Kubernetes node
	Namespace string // of the agent's Lease
	Version   string // of gpuctl
	// Interval is the pause between two looks at the host, give or take a tenth.
	Interval time.Duration
	// Hold is how long a function has to be gone, or without a driver, before that
	// is reported.
	Hold time.Duration
	// Renew is the time between two renewals of the Lease. It lasts for four.
	Renew time.Duration
	// Scan takes the inventory: the host, and what could not be read.
	Scan func() (gpu.Host, []string, error)
	Now  func() time.Time
}

// Agent reports one node. Its methods may be called from any goroutine, but Run
// only once.
type Agent struct {
	config  Config
	store   Store
	log     logr.Logger
	health  health
	settler settler

	reported *v1alpha1.GPUNodeSpec // as last seen or written; nil before the first look
	last     *gpu.Host             // what it says; nil when nothing was reported yet
	renewed  time.Time             // the Lease
}

// New makes an agent.
func New(config Config, store Store, log logr.Logger) *Agent {
	return &Agent{
		config: config, store: store, log: log.WithValues("node", config.Node),
		health: health{patience: 4*config.Interval + time.Minute, now: config.Now},
		settler: settler{
			hold: config.Hold, since: map[gpu.Address]time.Time{},
		},
	}
}

// Run reports until ctx ends. What fails is logged and tried again with the next
// look.
func (a *Agent) Run(ctx context.Context) {
	for {
		err := a.look(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			a.log.Error(err, "report the node's GPUs")
		}
		a.health.looked(err == nil)
		timer := time.NewTimer(jitter(a.config.Interval))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// jitter spreads the agents of a cluster.
func jitter(d time.Duration) time.Duration {
	return d + time.Duration((rand.Float64()-0.5)/5*float64(d)) //nolint:gosec // no secret
}

// look takes the inventory once and reports it if need be.
func (a *Agent) look(ctx context.Context) error {
	now := a.config.Now()
	seen, warnings, err := a.config.Scan()
	if err != nil {
		return err
	}
	if err := a.recall(ctx); err != nil {
		return err
	}
	host := a.settler.settle(now, a.last, seen)
	spec := cluster.InventoryOf(&host, a.config.Version, warnings)
	due := now.Sub(a.renewed) >= a.config.Renew
	// With the Lease it also looks whether somebody else has changed the GPUNode.
	if due || a.reported == nil || !equality.Semantic.DeepEqual(a.reported, &spec) {
		if err := a.report(ctx, &spec, host); err != nil {
			return err
		}
	}
	if !due {
		return nil
	}
	if err := a.store.RenewAgentLease(ctx, a.config.Namespace, a.config.Node, now, 4*a.config.Renew); err != nil {
		return err
	}
	a.renewed = now
	return nil
}

// recall reads what the node's agent has reported before this one was started, so
// that a restart makes nothing vanish.
func (a *Agent) recall(ctx context.Context) error {
	if a.reported != nil || a.last != nil {
		return nil
	}
	node, err := a.store.GPUNode(ctx, a.config.Node)
	if err != nil || node == nil {
		return err
	}
	host, err := cluster.HostOf(node.Name, &node.Spec)
	if err != nil {
		a.log.Error(err, "the reported GPUNode cannot be understood and is replaced")
		return nil
	}
	a.last = &host
	return nil
}

func (a *Agent) report(ctx context.Context, spec *v1alpha1.GPUNodeSpec, host gpu.Host) error {
	written, err := a.store.ReportGPUNode(ctx, a.config.Node, spec)
	if err != nil {
		return err
	}
	a.reported, a.last = spec, &host
	if written {
		a.log.Info("reported the node's GPUs", "gpus", spec.GPUs, "onVFIO", spec.OnVFIO, "functions", len(spec.Functions), "warnings", spec.Warnings)
	}
	return nil
}

// Check makes sure that the configuration can work; an error names the field.
func (c *Config) Check() error {
	switch {
	case c.Node == "":
		return fmt.Errorf("the node's name is not known: set NODE_NAME from spec.nodeName")
	case c.Namespace == "":
		return fmt.Errorf("the agent's namespace is not known: set POD_NAMESPACE from metadata.namespace")
	case c.Interval <= 0 || c.Renew <= 0 || c.Hold < 0:
		return fmt.Errorf("want times above zero, got --interval %s, --renew %s, --hold %s", c.Interval, c.Renew, c.Hold)
	case len(v1alpha1.AgentLease(c.Node)) > 253:
		return fmt.Errorf("the node's name %q is too long for its Lease", c.Node)
	}
	return nil
}
