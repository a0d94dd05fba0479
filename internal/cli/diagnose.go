package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpuctl/gpuctl/internal/cluster"
	"github.com/gpuctl/gpuctl/internal/diagnose"
)

// diagnoseFlags are the flags of diagnose.
type diagnoseFlags struct {
	evidenceFlags
	failOn failOn
	bundle string
}

func newDiagnose(s *streams) *cobra.Command {
	var flags diagnoseFlags
	var out output
	cmd := &cobra.Command{
		Use:   "diagnose [vm/NAME | vmi/NAME | node/NAME | device/NAME]",
		Short: "Say why a VM has no GPU or an order no units, or what is wrong on a node or in the cluster",
		Long: `Say why a VM has no GPU or an order no units, or what is wrong on a node or in the cluster.

A GPU's way into a VM is a chain: PCI function, driver, IOMMU group, device plugin,
allocatable, host device table, feature gate, VM, instance, placement, launcher,
domain. diagnose follows it to the first broken link and puts that first: what
comes behind it often only follows from it. A healthy cluster has nothing to say.
An order has a chain of its own: order, class, budget, placement, use. A VM that
names orders goes through theirs first, and then through the rest.

Without -f the cluster is read. -f reads files instead: manifests that were never
applied, the output of kubectl get -o yaml, or a bundle; then, and with --lspci,
--iommu, --vf and --log, no cluster is read. --bundle packs what was read, without
secrets, for somebody else to look at: docs/diagnose.md lists what is in it.`,
		Example: `  gpuctl diagnose
  gpuctl diagnose vm/trainer -n tenant-acme
  gpuctl diagnose node/worker-7
  gpuctl diagnose device/train-a -n tenant-acme
  gpuctl diagnose --bundle gpu-trouble.tar.gz
  gpuctl diagnose -f gpu-trouble.tar.gz vm/trainer -n tenant-acme
  kubectl get kubevirt,nodes,vm,vmi,events -A -o yaml > cluster.yaml
  gpuctl diagnose -f cluster.yaml --lspci worker-7=lspci.txt --log launcher.log`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completeSubject,
		RunE: func(cmd *cobra.Command, args []string) error {
			return runDiagnose(cmd.Context(), s, &flags, &out, args)
		},
	}
	flags.orders = true
	flags.evidenceFlags.add(cmd)
	flags.failOn.flag(cmd)
	cmd.Flags().StringVar(&flags.bundle, "bundle", "", "also pack what was read into `FILE`, without secrets; - is not allowed")
	out.flag(cmd, "table", "wide", "json", "yaml", "short")
	return cmd
}

func runDiagnose(ctx context.Context, s *streams, flags *diagnoseFlags, out *output, args []string) error {
	subject, err := flags.subject(args)
	if err == nil {
		err = flags.check()
	}
	if err != nil {
		return err
	}
	m, err := flags.material(ctx, s)
	if err != nil {
		return err
	}
	if flags.offline() && subject.Name != "" {
		flags.scope(m.docs)
	}
	if subject.Kind == "vm" {
		if err := cluster.HasTemplate(m.docs, cluster.Named{Namespace: subject.Namespace, Name: subject.Name}); err != nil {
			return err
		}
	}
	e, notes, err := flags.evidence(&m)
	for _, note := range notes {
		fmt.Fprintln(s.err, "note:", note)
	}
	if err != nil {
		return err
	}
	report, ok := diagnose.Diagnose(&e, subject)
	if flags.bundle != "" {
		whole := report
		if subject.Name != "" {
			whole, _ = diagnose.Diagnose(&e, diagnose.Subject{})
		}
		if err := flags.writeBundle(s, &m, whole.Findings); err != nil {
			return err
		}
	}
	if !ok {
		return notAmong(subject, &e)
	}
	if err := printReport(s, out, &report, &e, subject); err != nil {
		return err
	}
	return flags.failOn.check(report.Findings)
}

// material is what the flags name, or the cluster.
func (f *diagnoseFlags) material(ctx context.Context, s *streams) (material, error) {
	if f.offline() {
		return f.fromObjects(s)
	}
	client, err := f.connect()
	if err != nil {
		return material{}, err
	}
	return f.fromCluster(ctx, s, client)
}

// subject reads the argument: a kind and a name.
func (f *diagnoseFlags) subject(args []string) (diagnose.Subject, error) {
	if len(args) == 0 {
		return diagnose.Subject{}, nil
	}
	kind, name, ok := strings.Cut(args[0], "/")
	known := kindOf(kind)
	if !ok || known == "" || name == "" || strings.Contains(name, "/") {
		return diagnose.Subject{}, usagef("%q: want vm/NAME, vmi/NAME, node/NAME or device/NAME, with -n NAMESPACE for all but a node", args[0])
	}
	subject := diagnose.Subject{Kind: known, Name: name}
	if known != "node" {
		subject.Namespace = f.namespaceOr("default")
	}
	return subject, nil
}

// kindOf understands how kubectl writes a kind; "" is none that has a chain.
func kindOf(word string) string {
	return map[string]string{
		"vm": "vm", "vms": "vm", "virtualmachine": "vm", "virtualmachines": "vm",
		"vmi": "vmi", "vmis": "vmi", "virtualmachineinstance": "vmi", "virtualmachineinstances": "vmi",
		"node": "node", "nodes": "node", "no": "node",
		"device": "device", "devices": "device", "gpudevice": "device", "gpudevices": "device",
	}[strings.ToLower(word)]
}

// nameOf reads NAME or KIND/NAME, of one of the kinds; false for anything else.
func nameOf(arg string, kinds ...string) (string, bool) {
	kind, name, ok := strings.Cut(arg, "/")
	if !ok {
		return arg, true
	}
	return name, slices.Contains(kinds, kindOf(kind)) && name != "" && !strings.Contains(name, "/")
}

// notAmong says that the subject was not found, and where it may be, or that nobody
// could look for it.
func notAmong(subject diagnose.Subject, e *diagnose.Evidence) error {
	unread := map[string]string{"vm": "VirtualMachines", "vmi": "VirtualMachineInstances", "node": "Nodes", "device": "GPUDevices"}[subject.Kind] + " could not be read: "
	for _, f := range e.Findings {
		if why, ok := strings.CutPrefix(f.Message, unread); ok && f.Code == "GPU0130" && !strings.Contains(why, "outside of the namespace") {
			return fmt.Errorf("%s %q could not be looked for: %s (%s)", subject.Kind, subject.Name, why, f.Code)
		}
	}
	if subject.Kind == "node" {
		return fmt.Errorf("node %q is not there; kubectl get nodes lists them", subject.Name)
	}
	var elsewhere []string
	for i := range e.VMs {
		if v := &e.VMs[i]; subject.Kind != "device" && v.Name == subject.Name && !slices.Contains(elsewhere, v.Namespace) {
			elsewhere = append(elsewhere, v.Namespace)
		}
	}
	if subject.Kind == "device" {
		for i := range e.Devices {
			if v := &e.Devices[i]; v.Name == subject.Name {
				elsewhere = append(elsewhere, v.Namespace)
			}
		}
	}
	err := fmt.Errorf("%s %q is not there in namespace %q", subject.Kind, subject.Name, subject.Namespace)
	if len(elsewhere) > 0 {
		return fmt.Errorf("%w; one of that name is in namespace %s: give -n", err, strings.Join(elsewhere, ", "))
	}
	if subject.Kind == "device" {
		return fmt.Errorf("%w; gpuctl devices -n %s lists those that are", err, subject.Namespace)
	}
	return fmt.Errorf("%w; give its namespace with -n", err)
}

// findingsView is what diagnose prints as JSON and YAML.
type findingsView struct {
	Findings []diagnose.Finding `json:"findings"` // most causal first
}

func printReport(s *streams, out *output, r *diagnose.Report, e *diagnose.Evidence, subject diagnose.Subject) error {
	if done, err := out.structured(s, findingsView{append([]diagnose.Finding{}, r.Findings...)}); done {
		return err
	}
	p := s.printer()
	if out.is("short") {
		return p.ShortFindings(r.Findings)
	}
	rest := r.Findings
	if len(rest) == 0 && subject.Name == "" {
		return s.allWell(e)
	}
	if subject.Name != "" || out.is("wide") {
		for i := range r.Chains {
			if err := p.Chain(&r.Chains[i]); err != nil {
				return err
			}
			if root := r.Chains[i].Root(); root != nil {
				rest = slices.DeleteFunc(slices.Clone(rest), func(f diagnose.Finding) bool { return f == *root })
			}
		}
		if len(r.Chains) > 0 && len(rest) > 0 {
			fmt.Fprintln(s.out)
		}
	}
	if out.is("wide") {
		return p.ExplainedFindings(r.Findings)
	}
	return p.Findings(rest)
}

// allWell tells somebody at a terminal that there is nothing to tell; a pipe gets
// nothing.
func (s *streams) allWell(e *diagnose.Evidence) error {
	if !terminal(s.out) {
		return nil
	}
	cards := 0
	for i := range e.Hosts {
		cards += len(e.Hosts[i].GPUs())
	}
	return s.commentary().Note("nothing is wrong: looked at %d nodes, %d GPUs of reported inventories, %d VMs", len(e.Nodes), cards, len(e.VMs))
}
