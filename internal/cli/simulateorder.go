package cli

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/gpuctl/gpuctl/internal/alloc"
	"github.com/gpuctl/gpuctl/internal/books"
	"github.com/gpuctl/gpuctl/internal/cluster"
)

// orderFlags are the flags of simulate order.
type orderFlags struct {
	simulateFlags
	class        string
	count, times int32
}

func newSimulateOrder(s *streams) *cobra.Command {
	var flags orderFlags
	cmd := &cobra.Command{
		Use:   "order --class CLASS",
		Short: "Say whether an order would be taken, and where its units would be",
		Long: `Say whether an order would be taken, and where its units would be.

With --times as many of it are made one after the other, and the answer is how many
fit.`,
		Example: `  gpuctl simulate order --class h200 --count 4 -n tenant-acme
  gpuctl simulate order --class h200 --count 8 -n tenant-acme --times 10
  gpuctl simulate order --class h200 -n tenant-acme --drain worker-7 -o wide
  gpuctl simulate order --class h200 -n tenant-acme -f cluster.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return flags.run(cmd.Context(), s) },
	}
	flags.simulateFlags.add(cmd, "read the cluster from `PATH`, a file, a folder, a bundle or -, and no live one (repeatable)")
	flags.addDrain(cmd)
	cmd.Flags().Lookup("namespace").Usage = "`NAMESPACE` of the order (default: that of the kubeconfig's context)"
	cmd.Flags().StringVar(&flags.class, "class", "", "`CLASS` of the order")
	cmd.Flags().Int32Var(&flags.count, "count", 1, "units of the order")
	cmd.Flags().Int32Var(&flags.times, "times", 1, "make the order so many times")
	_ = cmd.RegisterFlagCompletionFunc("class", func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return found(typed(cmd).names(cmd.Context(), "class"))
	})
	return cmd
}

// maxTimes and maxUnits bound what can be asked for: a device has no more units.
const (
	maxTimes = 10000
	maxUnits = 64
)

func (f *orderFlags) run(ctx context.Context, s *streams) error {
	switch {
	case f.class == "":
		return usagef("an order is of a class: give --class; gpuctl classes lists them")
	case f.count < 1 || f.count > maxUnits:
		return usagef("--count %d: want 1 to %d", f.count, maxUnits)
	case f.times < 1 || f.times > maxTimes:
		return usagef("--times %d: want 1 to %d", f.times, maxTimes)
	}
	all, err := f.scenery(ctx, s, need{launchers: len(f.drain) > 0})
	if err != nil {
		return err
	}
	namespace := f.namespaceOr("default")
	if err := all.knows(namespace); err != nil {
		return err
	}
	t, v, err := all.after(ctx, f.drain, cluster.Named{})
	if err != nil {
		return err
	}
	defer t.close()
	v.Subject = fmt.Sprintf("%d x %s in %s", f.count, f.class, namespace)
	v.Asked = int(f.times)
	order := books.Order{Object: "GPUDevice " + namespace + "/simulated", Namespace: namespace, Class: f.class, Count: f.count}
	set := books.Set{Object: order.Object, Namespace: namespace, New: []books.Order{order}}
	for range f.times {
		fit := t.forecast.Place(set, alloc.Held)
		v.take(&fit)
		if fit.Refusal != nil {
			break
		}
	}
	if len(f.drain) > 0 {
		v.Notes = t.notes()
	}
	return v.print(s, &f.out)
}

// after is the cluster after nodes were cordoned, what ran there was started again, and the
// nodes are gone; and the view of an answer with that in it. subject is the VM that is asked
// about.
func (c *scenery) after(ctx context.Context, drain []string, subject cluster.Named) (*trial, *fitView, error) {
	l, err := c.launchers()
	if err != nil {
		return nil, nil, err
	}
	drain = slices.Compact(slices.Sorted(slices.Values(drain)))
	without, ended, err := c.without(drain)
	if err != nil {
		return nil, nil, err
	}
	before, err := cluster.Startables(c.docs)
	if err != nil {
		return nil, nil, err
	}
	t := without.trial(l)
	v := &fitView{Drained: drain, Ahead: shiftViews(t.forecast.Ahead())}
	v.Machines = t.restart(ctx, before, ended, c.nodesOf(ended), subject)
	t.forecast.Without(drain...)
	v.Moved = shiftViews(t.forecast.Moved())
	return t, v, nil
}

// nodesOf returns the nodes on which instances run.
func (c *scenery) nodesOf(vmis []cluster.Named) map[cluster.Named]string {
	out := map[cluster.Named]string{}
	for _, v := range vmis {
		out[v], _ = cluster.Running(c.docs, v)
	}
	return out
}
