package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpuctl/gpuctl/internal/cluster"
	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/internal/manifest"
	"github.com/gpuctl/gpuctl/internal/patch"
	"github.com/gpuctl/gpuctl/internal/render"
)

// wireFlags are the flags of wire.
type wireFlags struct {
	inventoryFlags
	liveFlags
	files   []string
	permits []string
	dryRun  bool
	remove  bool
}

func newWire(s *streams) *cobra.Command {
	var flags wireFlags
	var out output
	cmd := &cobra.Command{
		Use:   "wire",
		Short: "Give the KubeVirt CR what it lacks so that VMs can use the GPUs",
		Long: `Give the KubeVirt CR what it lacks so that VMs can use the GPUs.

The plan adds host device entries and the HostDevices feature gate, and changes
nothing else. What a node serves decides the resource name; where nothing is
served yet it is predicted and said to be.

On a cluster, wire writes the plan to the KubeVirt CR, or to the HyperConverged
that manages it, proves by a dry run that VMs may have host devices, and wakes the
instances that KubeVirt had refused. --dry-run prints the plan and writes nothing.

-f plans on files instead and needs no cluster. It reads KubeVirt, HyperConverged,
Node, Pod, ConfigMap, Event and KubeVirt's workloads; other documents are skipped
with a note. It never reads this host or a cluster, and never writes to one.`,
		Example: `  gpuctl wire --dry-run
  gpuctl wire --wait 4m
  gpuctl wire --remove
  kubectl get kubevirt,nodes,vm,vmi -A -o yaml > cluster.yaml
  gpuctl wire --dry-run -f cluster.yaml
  gpuctl wire --dry-run -f cluster.yaml --lspci worker-1=lspci.txt -o yaml > kubevirt.yaml
  gpuctl wire --dry-run -f kubevirt.yaml --permit 10DE:2335=nvidia.com/GH100_H200_SXM_141GB`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("unexpected argument %q: write -f before every file", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return runWire(cmd.Context(), s, &flags, &out) },
	}
	flags.inventoryFlags.add(cmd)
	flags.liveFlags.add(cmd)
	cmd.Flags().StringArrayVarP(&flags.files, "filename", "f", nil, "read objects from `PATH`, a file, a folder or - (repeatable)")
	cmd.Flags().StringArrayVar(&flags.permits, "permit", nil, "permit `SELECTOR=NAME`: vendor:device, or a mediated device type, and the resource name (repeatable)")
	cmd.Flags().BoolVar(&flags.dryRun, "dry-run", false, "print the plan and write nothing (with -f that is always so)")
	cmd.Flags().BoolVar(&flags.remove, "remove", false, "take away exactly what gpuctl wrote")
	out.flag(cmd, "diff", "yaml", "json")
	return cmd
}

func runWire(ctx context.Context, s *streams, flags *wireFlags, out *output) error {
	if err := flags.check(); err != nil {
		return err
	}
	if len(flags.files) == 0 {
		return runLive(ctx, s, flags, out)
	}
	err := runFiles(ctx, s, flags, out)
	var refusal *patch.Refusal
	if errors.As(err, &refusal) && !flags.strict && refusal.Only("GPU0319") {
		return printFindings(s, out, refusal.Findings)
	}
	return err
}

// check refuses flags that say nothing together.
func (f *wireFlags) check() error {
	switch {
	case f.force && !f.remove:
		return usagef("--force belongs to --remove")
	case f.stop != "" && !f.remove:
		return usagef("--stop-controller belongs to --remove")
	case f.remove && len(f.permits) > 0:
		return usagef("--permit adds and --remove takes away; give one of them")
	case f.wait < 0:
		return usagef("--wait %s: want a duration from now on", f.wait)
	case len(f.files) > 0 && (f.clusterFlags.given() || f.thisHost || f.hookFlags != hookFlags{} || f.noWake || f.stop != ""):
		return usagef("-f plans on files alone: --kubeconfig, --context, --this-host, --wait, --first-node, --event, --termination-log and --no-wake belong to a live cluster")
	case f.firstNode > 0 && f.wait == 0:
		return usagef("--first-node is a part of --wait: give both")
	}
	return nil
}

// planner is what the flags ask for: a plan to add or one to take away.
func (f *wireFlags) planner() patch.Planner {
	if f.remove {
		return patch.Remove
	}
	return patch.Plan
}

// printFindings prints the findings of a run that plans nothing and fails nobody.
func printFindings(s *streams, out *output, findings []diagnose.Finding) error {
	if out.is("json") {
		_, err := out.structured(s, planView{Changes: []patch.Change{}, Findings: findings})
		return err
	}
	return s.commentary().Findings(findings)
}

// runFiles plans on files.
func runFiles(_ context.Context, s *streams, flags *wireFlags, out *output) error {
	if slices.Contains(flags.files, "-") && slices.ContainsFunc(slices.Concat(flags.lspci, flags.iommu, flags.vf), isStdin) {
		return usagef("stdin (-) can be read once only; give files")
	}
	in, notes, findings, err := flags.input(s)
	for _, note := range notes {
		fmt.Fprintln(s.err, "note:", note)
	}
	if err != nil {
		return err
	}
	result, err := flags.planner()(in)
	if err != nil {
		return err
	}
	result.Findings = diagnose.Sort(append(result.Findings, findings...))
	nodes, err := summarizeNodes(&in, result.Object, nil)
	if err != nil {
		return err
	}
	return printPlan(s, out, &in.Target, result, planned(), nodes)
}

// input reads everything the plan depends on.
func (f *wireFlags) input(s *streams) (in patch.Input, notes []string, findings []diagnose.Finding, err error) {
	docs, skipped, err := manifest.Load(s.in, f.files...)
	if err != nil {
		return in, nil, nil, err
	}
	for _, doc := range skipped {
		notes = append(notes, doc.String())
	}
	inventories, err := f.read(s.in)
	if err != nil {
		return in, notes, nil, err
	}
	facts, err := cluster.Read(docs)
	notes = append(notes, facts.Notes...)
	if err != nil {
		return in, notes, nil, err
	}
	in, findings, err = f.inputOf(facts, inventories, patch.Choose)
	return in, notes, findings, err
}

// chooser picks the object to wire, or to look at.
type chooser func([]manifest.Document) (patch.Target, error)

// inputOf makes the plan's input of facts, from wherever they come.
func (f *wireFlags) inputOf(facts cluster.Facts, inventories map[string]inventory, choose chooser) (in patch.Input, findings []diagnose.Finding, err error) {
	permits, err := parsePermits(f.permits)
	if err != nil {
		return in, nil, err
	}
	in, findings, err = f.inventoryFlags.inputOf(facts, inventories, choose)
	in.Permits, in.Force = permits, f.force
	return in, findings, err
}

func (f *inventoryFlags) inputOf(facts cluster.Facts, inventories map[string]inventory, choose chooser) (in patch.Input, findings []diagnose.Finding, err error) {
	if in.Release, err = f.release(); err != nil {
		return in, nil, err
	}
	if in.Target, err = choose(facts.Targets); err != nil {
		return in, nil, err
	}
	in.Nodes, in.Workloads = facts.Nodes, facts.Workloads
	in.Legacy, in.WorkloadsKnown = facts.Legacy, facts.HasVMs
	in.Hosts, findings = assign(inventories, in.Nodes)
	for _, h := range facts.Hosts {
		if _, given := inventories[h.Node]; !given { // what somebody gives counts more
			in.Hosts = append(in.Hosts, h)
		}
	}
	return in, findings, nil
}

// assign gives an inventory without a node to the only node that has none.
func assign(inventories map[string]inventory, nodes []gpu.Node) (hosts []gpu.Host, findings []diagnose.Finding) {
	var without []string
	for i := range nodes {
		if _, ok := inventories[nodes[i].Name]; !ok {
			without = append(without, nodes[i].Name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(inventories)) {
		inv := inventories[name]
		if name == "" && len(without) == 1 {
			inv.host.Node = without[0]
		}
		hosts = append(hosts, inv.host)
		findings = append(findings, inv.findings...)
	}
	return hosts, findings
}

func parsePermits(values []string) ([]patch.Permit, error) {
	var out []patch.Permit
	for _, v := range values {
		p, err := patch.ParsePermit(v)
		if err != nil {
			return nil, usagef("--permit %w", err)
		}
		out = append(out, p)
	}
	return out, nil
}

// planView is a plan as JSON.
type planView struct {
	Target   patch.Identity     `json:"target"`
	Object   manifest.Object    `json:"object"`
	Changes  []patch.Change     `json:"changes"`
	Findings []diagnose.Finding `json:"findings"`
	// Nodes say what VMs can use with the object as it will be.
	Nodes []diagnose.NodeGPUs `json:"nodes,omitempty"`
}

// stage says what became of a plan.
type stage struct{ head, label string }

func planned() stage { return stage{"%s: %d to change", "planned"} }
func written() stage { return stage{"%s: %d changed", "written"} }

// summarizeNodes says what VMs can use on the nodes with the target as it will be.
func summarizeNodes(in *patch.Input, after manifest.Object, agents []diagnose.Agent) ([]diagnose.NodeGPUs, error) {
	table, err := patch.TableOf(&in.Target, after)
	if err != nil {
		return nil, err
	}
	s := diagnose.Summary{Nodes: in.Nodes, Hosts: in.Hosts, Agents: agents, Table: table, Release: newestUnless(in.Release)}
	return s.Summarize(), nil
}

// printPlan prints a plan, and what VMs can use on the nodes.
func printPlan(s *streams, out *output, t *patch.Target, r patch.Result, at stage, nodes []diagnose.NodeGPUs) error {
	if out.is("json") {
		view := planView{t.Identity(), r.Object, r.Changes, r.Findings, nodes}
		view.Changes = append([]patch.Change{}, view.Changes...)
		view.Findings = append([]diagnose.Finding{}, view.Findings...)
		_, err := out.structured(s, view)
		return err
	}
	after, err := t.Text(r.Edits)
	if err != nil {
		return err
	}
	if err := summarise(s.commentary(), t, r, at, nodes); err != nil {
		return err
	}
	if out.is("yaml") {
		_, err = s.out.Write(after)
		return err
	}
	before, err := t.Text(nil)
	if err != nil {
		return err
	}
	name := t.File
	if strings.Contains(name, "://") { // a server: the object says more
		name = t.Ref()
	}
	return s.printer().Diff(name, name+" ("+at.label+")", string(before), string(after))
}

// summarise prints what changes, why, and the findings.
func summarise(p *render.Printer, t *patch.Target, r patch.Result, at stage, nodes []diagnose.NodeGPUs) error {
	if err := p.Note("%s", headline(t, r, at)); err != nil {
		return err
	}
	for _, c := range r.Changes {
		if err := p.Change(c.Op == "add", c.String(), c.Why); err != nil {
			return err
		}
	}
	if err := printNodes(p, nodes); err != nil {
		return err
	}
	return p.Findings(r.Findings)
}

// headline returns "KubeVirt kubevirt/kubevirt: 2 changed".
func headline(t *patch.Target, r patch.Result, at stage) string {
	if len(r.Changes) == 0 {
		return t.Ref() + ": as it should be, no change"
	}
	return fmt.Sprintf(at.head, t.Ref(), len(r.Changes))
}
