package cli

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/internal/cluster"
)

func newSimulateVM(s *streams) *cobra.Command {
	var flags simulateFlags
	cmd := &cobra.Command{
		Use:   "vm [NAME]",
		Short: "Say whether a VM that names devices would start, and on which node",
		Long: `Say whether a VM that names devices would start, and on which node.

The VM, or an instance without one, is the cluster's of that name, or that of -f: a
manifest that was never applied is judged in the cluster as it is. Files with Nodes
stand for the cluster as a whole. A VM that runs is judged as if it were started anew.

What the launcher needs beside GPUs counts as KubeVirt will ask for it: node selector,
affinity, tolerations, volumes, CPU and memory. CPU and memory of an instancetype are
not known, and a bundle has none of all that: a note says so.`,
		Example: `  gpuctl simulate vm trainer -n tenant-acme
  gpuctl simulate vm trainer -n tenant-acme --drain worker-7
  gpuctl simulate vm -f vm.yaml -n tenant-acme -o wide
  gpuctl simulate vm trainer -n tenant-acme -f cluster.yaml -f vm.yaml`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completeVM,
		RunE:              func(cmd *cobra.Command, args []string) error { return flags.vm(cmd.Context(), s, args) },
	}
	flags.add(cmd, "read objects from `PATH`, a file, a folder, a bundle or -: the VM, or the cluster as well (repeatable)")
	flags.addDrain(cmd)
	return cmd
}

func completeVM(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return found(typed(cmd).names(cmd.Context(), "vm"))
}

func (f *simulateFlags) vm(ctx context.Context, s *streams, args []string) error {
	if len(args) == 0 && len(f.files) == 0 {
		return usagef("give the NAME of a VM, or its manifest with -f")
	}
	all, err := f.scenery(ctx, s, need{launchers: true, manifests: true})
	if err != nil {
		return err
	}
	name, err := f.subject(all, args)
	if err != nil {
		return err
	}
	machines, err := cluster.Startables(all.docs)
	if err != nil {
		return err
	}
	m := machine(machines, name)
	switch {
	case m == nil:
		return fmt.Errorf("VM %q is not there in namespace %q; give its namespace with -n", name.Name, name.Namespace)
	case !m.Refers():
		return fmt.Errorf("VM %s names no devices: nothing would be taken for it; docs/vms.md says how it names them", name)
	}
	if err := all.knows(name.Namespace); err != nil {
		return err
	}
	node, runs := cluster.Running(all.docs, name)
	if runs && !slices.Contains(f.drain, node) {
		all.docs = cluster.Stop(all.docs, map[cluster.Named]bool{name: true})
	}
	t, v, err := all.after(ctx, f.drain, name)
	if err != nil {
		return err
	}
	defer t.close()
	v.Subject, v.Asked, v.Runs = "VM "+name.String(), 1, node
	if t.subject == nil {
		fit := t.start(ctx, m)
		t.subject = &fit
	}
	v.take(t.subject)
	v.Notes = t.notes()
	return v.print(s, &f.out)
}

// subject finds out which VM is asked about.
func (f *simulateFlags) subject(all *scenery, args []string) (cluster.Named, error) {
	if len(args) > 0 {
		name, ok := nameOf(args[0], "vm", "vmi")
		if !ok {
			return cluster.Named{}, usagef("%q: want the NAME of a VM, and its namespace with -n", args[0])
		}
		return cluster.Named{Namespace: f.namespaceOr("default"), Name: name}, nil
	}
	machines, err := cluster.Startables(all.given)
	if err != nil {
		return cluster.Named{}, err
	}
	var names []cluster.Named
	for i := range machines {
		if machines[i].Refers() {
			names = append(names, machines[i].Named)
		}
	}
	switch len(names) {
	case 1:
		return names[0], nil
	case 0:
		return cluster.Named{}, usagef("no VM in the files names devices by %s; give the NAME of a VM", v1alpha1.AnnotationDevices)
	}
	return cluster.Named{}, usagef("%d VMs in the files name devices; give the NAME of one, and its namespace with -n", len(names))
}
