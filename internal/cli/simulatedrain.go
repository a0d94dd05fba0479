package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/gpuctl/gpuctl/internal/cluster"
)

func newSimulateDrain(s *streams) *cobra.Command {
	var flags simulateFlags
	cmd := &cobra.Command{
		Use:   "drain NODE...",
		Short: "Say what becomes of devices and VMs when nodes are drained",
		Long: `Say what becomes of devices and VMs when nodes are drained and gone.

The nodes are cordoned, and VMs that run there stop and start again where there is room,
in the order of their names. Then the nodes are gone: what else is reserved there moves
to other nodes, or is lost until they are back. VMs that do not run and could start now,
and could not then, are named too.

Exit codes: 0 all have a place, 1 something is lost or does not start any more, 2 usage.`,
		Example: `  gpuctl simulate drain worker-7
  gpuctl simulate drain worker-7 worker-8 -o yaml
  gpuctl simulate drain worker-7 -f cluster.yaml`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: completeNodes,
		RunE:              func(cmd *cobra.Command, args []string) error { return flags.drained(cmd.Context(), s, args) },
	}
	flags.add(cmd, "read the cluster from `PATH`, a file, a folder, a bundle or -, and no live one (repeatable)")
	cmd.Flags().Lookup("namespace").Usage = "`NAMESPACE` that is read where not all may be (default: that of the kubeconfig's context)"
	return cmd
}

func (f *simulateFlags) drained(ctx context.Context, s *streams, nodes []string) error {
	nodes, err := nodeNames(nodes)
	if err != nil {
		return err
	}
	all, err := f.scenery(ctx, s, need{launchers: true})
	if err != nil {
		return err
	}
	t, v, err := all.after(ctx, nodes, cluster.Named{})
	if err != nil {
		return err
	}
	defer t.close()
	if err := t.idle(ctx, all, v); err != nil {
		return err
	}
	d := drainView{Drained: v.Drained, Devices: append([]shiftView{}, v.Moved...), VMs: append([]machineView{}, v.Machines...), Notes: t.notes()}
	return d.print(s, &f.out)
}

// idle adds the VMs that do not run and could be started before, but not afterwards.
func (t *trial) idle(ctx context.Context, all *scenery, v *fitView) error {
	machines, err := cluster.Startables(all.docs)
	if err != nil {
		return err
	}
	before := all.trial(t.launchers)
	defer before.close()
	for i := range machines {
		m := &machines[i]
		if _, runs := cluster.Running(all.docs, m.Named); runs || !m.VM || !m.Refers() {
			continue
		}
		if fit := before.try(ctx, m); fit.Refusal != nil {
			continue
		}
		if fit := t.try(ctx, m); fit.Refusal != nil {
			view := machineView{Name: m.String()}
			view.is(&fit)
			v.Machines = append(v.Machines, view)
		}
	}
	return nil
}
