package cli

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"

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
POD_NAMESPACE, where the Lease is, POD_NAME, and POD_IP, to listen on.`,
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
	log := logr.FromSlogHandler(slog.NewJSONHandler(s.err, &slog.HandlerOptions{Level: level}))
	if len(strangers) > 0 {
		log.Info("variables of the environment that look like settings, and are none", "names", strangers)
	}
	version := currentBuild().Version
	log.Info("started", "version", version, "settings", fmt.Sprintf("%+v", *settings))
	err := serve.Run(ctx, settings, serve.Options{
		Cluster: cluster.Options{Kubeconfig: where.kubeconfig, Context: where.kubeContext, UserAgent: "gpuctl-controller/" + version},
		Host:    os.Getenv("POD_IP"), Instance: cmp.Or(os.Getenv("POD_NAME"), "gpuctl"), Permits: permits, Log: log,
	})
	if err == nil {
		log.Info("stopped")
	}
	return err
}
