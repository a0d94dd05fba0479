package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/gpuctl/gpuctl/internal/cluster"
	"github.com/gpuctl/gpuctl/internal/render"
)

// bindings is the command that shows which devices VMs have.
type bindings struct {
	objects
}

func newBindings(s *streams) *cobra.Command {
	b := &bindings{objects{resource: "gpudevices", plural: "bindings", scoped: true}}
	cmd := &cobra.Command{
		Use:   "bindings [VM...]",
		Short: "Show what VMs have: the devices that VMs run with or start with",
		Long: `Show what VMs have: the devices that VMs run with or start with.

A line is one set: all devices that one VM has together, those that were made from
its templates, too. Starting: they are taken for it, and it has no node yet. Bound:
it has one, and its launcher has not come yet. Attached: the VM has them. Lost: the
node serves the units of one of them no more. With -w also Released: they are given
back. Devices that no VM uses are held, and no bindings: gpuctl devices shows them.`,
		Example: `  gpuctl bindings
  gpuctl bindings -A -o wide
  gpuctl bindings trainer -n tenant-acme -o yaml
  gpuctl bindings -l team=vision --watch`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return b.run(cmd.Context(), s, args, cmd.Root().CommandPath())
		},
	}
	b.add(cmd, "vmi", "table", "wide", "json", "yaml")
	cmd.Flags().Lookup("selector").Usage = "show the sets of which a device's labels match the `SELECTOR` only: a=b,c!=d"
	return cmd
}

func (b *bindings) run(ctx context.Context, s *streams, names []string, program string) error {
	if err := b.check(names); err != nil {
		return err
	}
	client, err := b.connect()
	if err != nil {
		return err
	}
	query := b.query()
	query.Selector, query.Whole = "", true // a set is shown whole, whichever of its devices has the labels
	tables, err := client.Tables(query)
	if err != nil {
		return err
	}
	table, err := tables.List(ctx)
	if err == nil {
		err = b.show(ctx, s, tables, table, names, program)
	}
	return b.explain(client, err, program)
}

// show prints the sets that there are, and those that change.
func (b *bindings) show(ctx context.Context, s *streams, tables *cluster.Tables, table *metav1.Table, names []string, program string) error {
	selector, err := labels.Parse(b.selector)
	if err != nil {
		return err
	}
	sets := newSets(names, selector)
	if err := sets.put(table); err != nil {
		return err
	}
	list := sets.list()
	p := &bindingPrinter{s: s, out: &b.out, table: render.NewObjects(s.out, b.out.format, b.all)}
	if b.watch {
		return b.follow(ctx, s, tables, table, sets, p)
	}
	if len(list) == 0 && len(names) == 0 {
		query := b.query()
		b.sayNone(s, &query)
	}
	errs := []error{p.list(list)}
	for _, name := range sets.missing(list) {
		errs = append(errs, fmt.Errorf("VM %q has no devices; see why: %s diagnose vm/%s -n %s", name, program, name, b.query().Namespace))
	}
	return errors.Join(errs...)
}

// follow prints the sets, and then each that changes.
func (b *bindings) follow(ctx context.Context, s *streams, tables *cluster.Tables, table *metav1.Table, sets *sets, p *bindingPrinter) error {
	first := sets.changed()
	if len(first) == 0 {
		query := b.query()
		b.sayNone(s, &query)
	}
	if err := p.rows(first); err != nil {
		return err
	}
	return b.watching(ctx, s, tables, table, func(table *metav1.Table) error {
		if err := sets.put(table); err != nil {
			return err
		}
		return p.rows(sets.changed())
	})
}

// bindingsView is what bindings prints as JSON and YAML.
type bindingsView struct {
	Bindings []bindingView `json:"bindings"` // by namespace and VM
}

// bindingPrinter prints sets.
type bindingPrinter struct {
	s     *streams
	out   *output
	table *render.Objects
}

func (p *bindingPrinter) list(list []bindingView) error {
	if done, err := p.out.structured(p.s, bindingsView{append([]bindingView{}, list...)}); done {
		return err
	}
	return p.rows(list)
}

// rows prints sets one by one.
func (p *bindingPrinter) rows(list []bindingView) error {
	if len(list) == 0 {
		return nil
	}
	if !p.out.is("json") && !p.out.is("yaml") {
		return p.table.Rows(bindingTable(list, p.out.is("wide"), time.Now()))
	}
	for i := range list {
		if p.out.is("yaml") {
			fmt.Fprintln(p.s.out, "---")
		}
		if _, err := p.out.structured(p.s, list[i]); err != nil {
			return err
		}
	}
	return nil
}
