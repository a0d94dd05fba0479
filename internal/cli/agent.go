package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"

	"github.com/gpuctl/gpuctl/internal/agent"
	"github.com/gpuctl/gpuctl/internal/cluster"
	"github.com/gpuctl/gpuctl/internal/discover"
	"github.com/gpuctl/gpuctl/internal/gpu"
)

// agentFlags are the flags of agent.
type agentFlags struct {
	kubeconfig, kubeContext string
	node, namespace, root   string
	interval, hold, renew   time.Duration
	port                    uint16
}

func newAgent(s *streams) *cobra.Command {
	var flags agentFlags
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Report this node's PCI inventory as its GPUNode, until stopped",
		Long: `Report this node's PCI inventory as its GPUNode, until stopped.

The agent needs no privilege: a container's own read-only /sys shows the PCI bus.
It writes the GPUNode when the inventory changes, and says with a Lease that it
lives. A function that is gone or without a driver is reported as such only after
--hold: vfio-manager takes the drivers away and binds them again at every start.

It is what the chart's DaemonSet runs; the environment is that of its pods:
NODE_NAME, POD_NAMESPACE, and POD_IP, where /healthz and /readyz are served.`,
		Example: `  gpuctl agent
  NODE_NAME=worker-1 POD_NAMESPACE=gpuctl-system gpuctl agent --interval 15s`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runAgent(cmd.Context(), s, &flags) },
	}
	f := cmd.Flags()
	f.StringVar(&flags.kubeconfig, "kubeconfig", "", "`FILE` that says which cluster to speak to (default: the pod's own account)")
	f.StringVar(&flags.kubeContext, "context", "", "`NAME` of the kubeconfig's context")
	f.StringVar(&flags.node, "node", "", "`NAME` of this node (default $NODE_NAME)")
	f.StringVar(&flags.namespace, "namespace", "", "`NAMESPACE` of the agent's Lease (default $POD_NAMESPACE)")
	f.StringVar(&flags.root, "root", "", "root `DIR` of the host's file system (default $GPUCTL_HOST_ROOT, else /)")
	f.DurationVar(&flags.interval, "interval", 15*time.Second, "time between two looks at the PCI bus")
	f.DurationVar(&flags.hold, "hold", 2*time.Minute, "how long a function is gone or without a driver before that is reported")
	f.DurationVar(&flags.renew, "renew", 30*time.Second, "time between two renewals of the Lease, which lasts for four")
	f.Uint16Var(&flags.port, "health-port", 8081, "port of /healthz and /readyz; 0 serves neither")
	return cmd
}

func runAgent(ctx context.Context, s *streams, flags *agentFlags) error {
	cluster.Quiet()
	root := cmp.Or(flags.root, os.Getenv("GPUCTL_HOST_ROOT"))
	config := agent.Config{
		Node: cmp.Or(flags.node, os.Getenv("NODE_NAME")), Namespace: cmp.Or(flags.namespace, os.Getenv("POD_NAMESPACE")),
		Version:  currentBuild().Version,
		Interval: flags.interval, Hold: flags.hold, Renew: flags.renew,
		Scan: func() (gpu.Host, []string, error) { return discover.Host(root) }, Now: time.Now,
	}
	if err := config.Check(); err != nil {
		return usageError{err}
	}
	client, err := cluster.Connect(cluster.Options{
		Kubeconfig: flags.kubeconfig, Context: flags.kubeContext, UserAgent: "gpuctl-agent/" + config.Version,
	})
	if err != nil {
		return err
	}
	log := logr.FromSlogHandler(slog.NewJSONHandler(s.err, nil))
	a := agent.New(config, client, log)
	if flags.port != 0 {
		stop, err := serveHealth(ctx, net.JoinHostPort(os.Getenv("POD_IP"), strconv.Itoa(int(flags.port))), a.Handler(), log)
		if err != nil {
			return err
		}
		defer stop()
	}
	log.Info("agent started", "node", config.Node, "version", config.Version)
	a.Run(ctx)
	log.Info("agent stopped")
	return nil
}

// serveHealth serves the probes until the returned function is called.
func serveHealth(ctx context.Context, addr string, handler http.Handler, log logr.Logger) (stop func(), err error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("serve the health of the agent: %w; see --health-port", err)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second, WriteTimeout: 10 * time.Second}
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.Error(err, "serve the health of the agent")
		}
	}()
	return func() { _ = server.Close() }, nil
}
