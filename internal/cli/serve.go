package cli

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"strconv"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"

	"github.com/gpuctl/gpuctl/internal/cluster"
	"github.com/gpuctl/gpuctl/internal/config"
	"github.com/gpuctl/gpuctl/internal/patch"
	"github.com/gpuctl/gpuctl/internal/serve"
)

func newServe(s *streams) *cobra.Command {
	var where clusterFlags
	var file string
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the controller, until stopped",
		Long: `Run the controller, until stopped.

It keeps the wiring of the KubeVirt CR true: what wire does once, it does whenever a
node, its inventory or the CR changes. Of several replicas one leads; the others hold
all that they need to take over. How it stands is in the GPUWiring named cluster, in
Events on the KubeVirt CR, and in the metrics.

With --orders-enabled the leader gives orders of GPUs their units, and with
--webhook-enabled every replica answers the API server whether an order may be stored.

Settings come from flags, from the environment (--wiring-resync is
GPUCTL_WIRING_RESYNC), and from the file of --config (wiring.resync), in this order.
A key that is no setting is refused.

It is what the chart's Deployment runs; the environment is that of its pods:
POD_NAMESPACE, where the Lease is, POD_NAME, POD_IP, to listen on, and
POD_MEMORY_LIMIT, in bytes, near which garbage is collected more often.`,
		Example: `  gpuctl serve --config /etc/gpuctl/config.yaml
  POD_NAMESPACE=gpuctl-system gpuctl serve --metrics-port 0 --log-level debug`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			settings, strangers, err := config.Load(file, cmd.Flags())
			if err != nil {
				return usageError{err}
			}
			return runServe(cmd.Context(), s, &settings, strangers, &where)
		},
	}
	where.add(cmd)
	cmd.Flags().StringVar(&file, "config", "", "`FILE` of settings, in YAML")
	config.AddFlags(cmd.Flags())
	return cmd
}

func runServe(ctx context.Context, s *streams, settings *config.Settings, strangers []string, where *clusterFlags) error {
	var level slog.Level
	if err := level.UnmarshalText([]byte(settings.LogLevel)); err != nil {
		return usageError{err}
	}
	var permits []patch.Permit
	for _, text := range settings.Wiring.Permit {
		p, err := patch.ParsePermit(text)
		if err == nil {
			err = p.Check()
		}
		if err != nil {
			return usagef("wiring.permit: %w", err)
		}
		permits = append(permits, p)
	}
	limit, err := memoryLimit(os.Getenv("GOMEMLIMIT"), os.Getenv("POD_MEMORY_LIMIT"))
	if err != nil {
		return usagef("POD_MEMORY_LIMIT: %w", err)
	}
	debug.SetMemoryLimit(limit)
	log := logr.FromSlogHandler(slog.NewJSONHandler(s.err, &slog.HandlerOptions{Level: level}))
	if len(strangers) > 0 {
		log.Info("variables of the environment that look like settings, and are none", "names", strangers)
	}
	version := currentBuild().Version
	log.Info("started", "version", version, "settings", fmt.Sprintf("%+v", *settings))
	err = serve.Run(ctx, settings, serve.Options{
		Cluster: cluster.Options{Kubeconfig: where.kubeconfig, Context: where.kubeContext, UserAgent: "gpuctl-controller/" + version},
		Host:    os.Getenv("POD_IP"), Instance: cmp.Or(os.Getenv("POD_NAME"), "gpuctl"), Permits: permits, Log: log,
	})
	if err == nil {
		log.Info("stopped")
	}
	return err
}

// memoryLimit returns how many bytes Go's heap and what belongs to it may have, of what
// the pod may have: by itself the heap grows to twice what is in use, and the pod of a
// large cluster could be killed for garbage. A fifth is left to what Go does not count,
// which is mostly the program. -1 is for no change: GOMEMLIMIT has the limit, or nobody
// has told the pod's.
func memoryLimit(own, pod string) (int64, error) {
	if own != "" || pod == "" {
		return -1, nil
	}
	n, err := strconv.ParseInt(pod, 10, 64)
	if err != nil || n <= 0 {
		return 0, fmt.Errorf("%q is no number of bytes", pod)
	}
	return n / 5 * 4, nil
}
