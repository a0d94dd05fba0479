package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpuctl/gpuctl/internal/cluster"
	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/internal/manifest"
)

func newSimulate(s *streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "simulate",
		Short: "Say whether an order or a VM would fit, where, and what a drained node would mean",
		Long: `Say whether an order or a VM would fit, where, and what a drained node would mean.

The answer is that of the code that places orders and starts VMs, for the cluster as
it is now or as files have it. Nothing is written, and the rights to read are enough.
Orders that wait for units get theirs first, and reservations are moved as they would
be. Between the answer and the deed others may come: it is no promise.

Exit codes: 0 it fits, 1 it does not, 2 usage.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newSimulateOrder(s), newSimulateVM(s), newSimulateDrain(s))
	return cmd
}

// unfitError says that something does not fit. What, and why, was printed.
type unfitError struct{ error }

// simulateFlags say what is simulated on.
type simulateFlags struct {
	evidenceFlags
	drain []string
	out   output
}

func (f *simulateFlags) add(cmd *cobra.Command, files string) {
	f.orders = true
	f.scopeFlags.add(cmd)
	cmd.Flags().StringArrayVarP(&f.files, "filename", "f", nil, files)
	f.out.flag(cmd, "table", "wide", "json", "yaml")
}

func (f *simulateFlags) addDrain(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.drain, "drain", nil, "as if `NODE` were drained and gone (repeatable)")
	_ = cmd.RegisterFlagCompletionFunc("drain", completeNodes)
}

// nodeNames reads the names of nodes: NAME or node/NAME.
func nodeNames(args []string) ([]string, error) {
	var names []string
	for _, arg := range args {
		name, ok := nameOf(arg, "node")
		if !ok {
			return nil, usagef("%q: want the NAME of a node", arg)
		}
		names = append(names, name)
	}
	return names, nil
}

func completeNodes(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return found(typed(cmd).names(cmd.Context(), "node"))
}

// scenery is what is simulated on.
type scenery struct {
	material
	client *cluster.Client // nil where files stand for the cluster
	agents []diagnose.Agent
	given  []manifest.Document // of the documents, those from files
}

// need says what a simulation reads.
type need struct {
	launchers bool // all that launchers need is judged, too
	manifests bool // files may be put beside a live cluster
}

// scenery reads the cluster, or the files that stand for it. Files without Nodes stand for
// none.
func (f *simulateFlags) scenery(ctx context.Context, s *streams, n need) (*scenery, error) {
	var beside []manifest.Document
	out := &scenery{}
	var err error
	if f.drain, err = nodeNames(f.drain); err != nil {
		return nil, err
	}
	if len(f.files) > 0 {
		if out.material, err = f.fromFiles(s); err != nil {
			return nil, err
		}
		for _, skipped := range out.skipped {
			fmt.Fprintln(s.err, "note:", skipped)
		}
		f.scope(out.docs)
	}
	switch {
	case len(f.files) > 0 && !out.has("Node") && !n.manifests:
		return nil, usagef("the files have no Nodes: give all of the cluster, or none for a live one")
	case len(f.files) == 0 || !out.has("Node"):
		beside = out.docs
		if err := out.read(ctx, s, f, n.launchers); err != nil {
			return nil, err
		}
	case f.clusterFlags.given():
		return nil, usagef("the files have Nodes and stand for the cluster: --kubeconfig and --context belong to a live one")
	}
	if err := out.complete(s); err != nil {
		return nil, err
	}
	if out.material.agents {
		if out.agents, err = cluster.AgentsOf(out.docs, out.at); err != nil {
			return nil, err
		}
	}
	whole := len(out.docs)
	out.docs = cluster.ByName(slices.Concat(out.docs, beside))
	if out.given = out.docs; out.client != nil {
		out.given = out.docs[whole:]
	}
	return out, nil
}

// read reads the cluster.
func (c *scenery) read(ctx context.Context, s *streams, f *simulateFlags, launchers bool) (err error) {
	if c.client, err = f.connect(); err != nil {
		return err
	}
	if c.material, err = f.fromCluster(ctx, s, c.client); err != nil || !launchers || c.unread("Pod") {
		return err
	}
	more, err := c.client.OtherPods(ctx)
	c.docs = append(c.docs, more...)
	return err
}

// complete says what is missing to judge by.
func (c *scenery) complete(s *streams) error {
	var missing []string
	for _, kind := range []string{"Node", "Namespace", "GPUClass", "GPUDevice", "ResourceQuota", "HelmRelease", "HierarchyConfiguration", "VirtualMachine", "VirtualMachineInstance", "Pod"} {
		if c.unread(kind) {
			missing = append(missing, kind)
		}
	}
	if c.unreadSettings() {
		missing = append(missing, "ConfigMap")
	}
	if len(missing) > 0 {
		_ = s.commentary().Findings(slices.DeleteFunc(slices.Clone(c.problems), func(p diagnose.Finding) bool { return p.Code != "GPU0130" }))
		return fmt.Errorf("what would be cannot be told without all of kind %s (GPU0130)", strings.Join(missing, ", "))
	}
	for _, kind := range []string{"Namespace", "GPUClass"} {
		switch {
		case c.has(kind):
		case c.client != nil:
			return fmt.Errorf("the cluster has no object of kind %s: nothing can be ordered; see docs/orders.md", kind)
		default:
			return fmt.Errorf("the files have Nodes and no object of kind %s; kubectl get nodes,namespaces,gpuclasses,gpudevices,resourcequotas,vm,vmi,pods -A -o yaml has all that is needed", kind)
		}
	}
	return nil
}

// knows returns an error for a namespace that is not there. All that are were read.
func (c *scenery) knows(namespace string) error {
	where, list := "the cluster has", "; kubectl get namespaces lists them"
	switch {
	case slices.ContainsFunc(c.docs, func(d manifest.Document) bool { return d.Kind() == "Namespace" && d.Meta("name") == namespace }):
		return nil
	case c.client == nil:
		where, list = "the files have", ""
	}
	return fmt.Errorf("%s no namespace %q; give that of the order or the VM with -n%s", where, namespace, list)
}

// without takes nodes away, and what runs there.
func (c *scenery) without(nodes []string) (after *scenery, ended []cluster.Named, err error) {
	for _, node := range nodes {
		if !slices.ContainsFunc(c.docs, func(d manifest.Document) bool { return d.Kind() == "Node" && d.Meta("name") == node }) {
			return nil, nil, fmt.Errorf("node %q is not there; kubectl get nodes lists them", node)
		}
	}
	out := *c
	if len(nodes) > 0 {
		out.docs, ended = cluster.Drain(c.docs, nodes)
	}
	return &out, ended, nil
}
