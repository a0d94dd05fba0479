package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/gpuctl/gpuctl/internal/cluster"
	"github.com/gpuctl/gpuctl/internal/render"
)

// objects is a command that shows objects of one of gpuctl's kinds as kubectl get does.
type objects struct {
	scopeFlags
	out      output
	resource string // in the plural: "gpudevices"
	plural   string // what people call them: "devices"
	scoped   bool   // they are in namespaces
	all      bool
	selector string
	watch    bool
}

// add adds the flags, -o with the formats, and completion of the names of a kind that
// [cluster.Client.Names] knows.
func (o *objects) add(cmd *cobra.Command, kind string, formats ...string) {
	o.clusterFlags.add(cmd)
	flags := cmd.Flags()
	if o.scoped {
		flags.StringVarP(&o.namespace, "namespace", "n", "", "`NAMESPACE` of the "+o.plural+" (default: that of the kubeconfig's context)")
		flags.BoolVarP(&o.all, "all-namespaces", "A", false, "show the "+o.plural+" of all namespaces, whatever -n says")
	}
	flags.StringVarP(&o.selector, "selector", "l", "", "show those whose labels match the `SELECTOR` only: a=b,c!=d")
	flags.BoolVarP(&o.watch, "watch", "w", false, "show them, and then each that changes, until it is stopped")
	o.out.flag(cmd, formats...)
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		names, err := typed(cmd).names(cmd.Context(), kind)
		return found(slices.DeleteFunc(names, func(name string) bool { return slices.Contains(args, name) }), err)
	}
}

func (o *objects) run(ctx context.Context, s *streams, names []string, program string) error {
	if err := o.check(names); err != nil {
		return err
	}
	client, err := o.connect()
	if err != nil {
		return err
	}
	query := o.query()
	if o.watch && len(names) > 0 {
		query.Name = names[0]
	}
	tables, err := client.Tables(query)
	if err != nil {
		return err
	}
	printer := render.NewObjects(s.out, o.out.format, o.all)
	switch {
	case o.watch:
		err = o.follow(ctx, s, tables, printer, &query)
	case len(names) > 0:
		err = o.named(ctx, tables, printer, names)
	default:
		err = o.list(ctx, s, tables, printer, &query)
	}
	return o.explain(client, err, program)
}

// query says what the flags ask for.
func (o *objects) query() cluster.Query {
	query := cluster.Query{Resource: o.resource, Selector: o.selector, Whole: !o.out.is("table") && !o.out.is("wide")}
	if o.scoped && !o.all {
		query.Namespace = o.namespaceOr("default")
	}
	return query
}

// check refuses flags and names that do not go together, as kubectl does.
func (o *objects) check(names []string) error {
	switch {
	case len(names) > 0 && o.all:
		return usagef("a name is that of one namespace: leave out -A, and give the namespace by -n")
	case len(names) > 0 && o.selector != "":
		return usagef("give names or -l, not both")
	case len(names) > 1 && o.watch:
		return usagef("--watch takes one name or none")
	}
	if _, err := labels.Parse(o.selector); err != nil {
		return usagef("selector %q: %w", o.selector, err)
	}
	return nil
}

// list prints all that the query finds. A table of nothing is nothing, and said.
func (o *objects) list(ctx context.Context, s *streams, tables *cluster.Tables, printer *render.Objects, query *cluster.Query) error {
	table, err := tables.List(ctx)
	if err != nil {
		return err
	}
	if len(table.Rows) == 0 {
		o.sayNone(s, query)
	}
	return printer.List(table)
}

func (o *objects) sayNone(s *streams, query *cluster.Query) {
	where := "in the cluster"
	if query.Namespace != "" {
		where = "in namespace " + query.Namespace
	}
	if query.Selector != "" {
		where += " with labels " + query.Selector
	}
	fmt.Fprintf(s.err, "there are no %s %s\n", o.plural, where)
}

// named prints the objects of the names that there are; the error names the others.
func (o *objects) named(ctx context.Context, tables *cluster.Tables, printer *render.Objects, names []string) error {
	var all *metav1.Table
	var errs []error
	for _, name := range names {
		table, err := tables.Get(ctx, name)
		switch {
		case err != nil && !apierrors.IsNotFound(err):
			return err
		case err != nil:
			errs = append(errs, err)
		case all == nil:
			all = table
		default:
			all.Rows = append(all.Rows, table.Rows...)
		}
	}
	if all != nil {
		show := printer.List
		if len(names) == 1 {
			show = printer.Rows
		}
		errs = append(errs, show(all))
	}
	return errors.Join(errs...)
}

// follow prints what there is, and then what changes.
func (o *objects) follow(ctx context.Context, s *streams, tables *cluster.Tables, printer *render.Objects, query *cluster.Query) error {
	table, err := tables.List(ctx)
	if err != nil {
		return err
	}
	if len(table.Rows) == 0 && query.Name != "" {
		_, err := tables.Get(ctx, query.Name)
		return err
	}
	if len(table.Rows) == 0 {
		o.sayNone(s, query)
	}
	if err := printer.Rows(table); err != nil {
		return err
	}
	return o.watching(ctx, s, tables, table, printer.Rows)
}

// watching calls changed with what changes, until ctx ends. Trouble is told once, until
// something changes again.
func (o *objects) watching(ctx context.Context, s *streams, tables *cluster.Tables, from *metav1.Table, changed func(*metav1.Table) error) error {
	said := ""
	tell := func(table *metav1.Table) error {
		said = ""
		return changed(table)
	}
	return tables.Watch(ctx, from, tell, func(err error) {
		if text := err.Error(); text != said { // each second the same
			said = text
			fmt.Fprintf(s.err, "error: %s; trying again\n", text)
		}
	})
}

// explain adds to an error what to do about it.
func (o *objects) explain(client *cluster.Client, err error, program string) error {
	switch {
	case errors.Is(err, cluster.ErrNotServed):
		return fmt.Errorf("%w; who runs the cluster installs it with: %s upgrade --set orders.enabled=true", err, program)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w; docs/orders.md says which role shows %s", err, o.plural)
	}
	return client.Explain(err)
}
