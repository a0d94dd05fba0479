package cli

import "github.com/spf13/cobra"

func newDevices(s *streams) *cobra.Command {
	o := &objects{resource: "gpudevices", plural: "devices", scoped: true}
	cmd := &cobra.Command{
		Use:   "devices [NAME...]",
		Short: "Show what was ordered: the GPUDevices of a namespace",
		Long: `Show what was ordered: the GPUDevices of a namespace, in the columns of kubectl get.

A device is an order for units of a class; docs/orders.md has its states.`,
		Example: `  gpuctl devices
  gpuctl devices -n tenant-acme -o wide
  gpuctl devices -A -l team=vision
  gpuctl devices train-a --watch`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.run(cmd.Context(), s, args, cmd.Root().CommandPath())
		},
	}
	o.add(cmd, "device", "table", "wide", "json", "yaml", "name")
	return cmd
}
