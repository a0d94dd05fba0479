package cli

import "github.com/spf13/cobra"

func newClasses(s *streams) *cobra.Command {
	o := &objects{resource: "gpuclasses", plural: "classes"}
	cmd := &cobra.Command{
		Use:   "classes [NAME...]",
		Short: "Show what can be ordered: the GPUClasses of the cluster",
		Long: `Show what can be ordered: the GPUClasses of the cluster, in the columns of kubectl get.

A class is what the hoster offers under a name; docs/orders.md has more on it.`,
		Example: `  gpuctl classes
  gpuctl classes -o wide
  gpuctl classes h200 -o yaml
  gpuctl classes --watch`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.run(cmd.Context(), s, args, cmd.Root().CommandPath())
		},
	}
	o.add(cmd, "class", "table", "wide", "json", "yaml", "name")
	return cmd
}
