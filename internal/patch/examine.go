package patch

import (
	"errors"
	"slices"

	semver "k8s.io/apimachinery/pkg/util/version"

	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/internal/manifest"
)

// ChooseToRead is Choose for somebody who writes nothing: a KubeVirt CR whose
// HyperConverged was not given can be looked at all the same.
func ChooseToRead(docs []manifest.Document) (t Target, notes []diagnose.Finding, err error) {
	t, err = Choose(docs)
	var refusal *Refusal
	if !errors.As(err, &refusal) || !refusal.Only("GPU0320") {
		return t, nil, err
	}
	kubevirt, passed, err := one(docs, KindKubeVirt, "kubevirt.io/")
	if err != nil {
		return t, nil, err
	}
	owner, _ := managedBy(kubevirt)
	note := diagnose.New("GPU0316", kubevirt.Ref(), diagnose.Values{"object": kubevirt.Ref(), "target": KindHyperConverged + " " + owner})
	return Target{Document: *kubevirt, PassedOver: passed}, []diagnose.Finding{note}, nil
}

// Examine says what the target permits and lacks, and what is wrong on the hosts
// and nodes and around the table as it is. It plans nothing and refuses nothing.
// Without a target, wiring is nil and only hosts, nodes and workloads are judged.
func Examine(in Input) (wiring *diagnose.Wiring, findings []diagnose.Finding, err error) {
	p, err := newPlanner(in)
	if err != nil {
		return nil, nil, err
	}
	adds := p.missing(p.wants())
	if in.Target.Object == nil {
		p.findings = slices.DeleteFunc(p.findings, func(f diagnose.Finding) bool { return f.Code == "GPU0401" })
		p.reportUnclear(p.table)
		p.findings = append(p.findings, diagnose.Workloads(p.table, in.Nodes, in.Workloads, permitText)...)
		for _, l := range in.Legacy {
			p.findings = append(p.findings, l.Finding())
		}
		return nil, p.findings, nil
	}
	p.lint(nil)
	w := &diagnose.Wiring{Object: p.object, Table: p.table, NeedsGate: p.schema.gates != nil, Permit: permitText}
	for _, want := range adds {
		w.Lacks = append(w.Lacks, diagnose.Lack{Selector: want.selector(), Name: want.name, Served: want.how == gpu.Served || want.how == gpu.Renamed || want.how == gpu.Inferred, Why: want.why()})
	}
	p.examineGates(w)
	return w, p.findings, p.asKubeVirtHasIt(w)
}

// examineGates reads which gates are on.
func (p *planner) examineGates(w *diagnose.Wiring) {
	gates, _ := p.schema.strings(p.in.Target.Object, p.schema.gates)
	disabled, _ := p.schema.strings(p.in.Target.Object, p.schema.disabled)
	p.findings = append(p.findings, misspeltGates(gates, p.object)...)
	if slices.Contains(disabled, gate) {
		p.report("GPU0314", p.object, diagnose.Values{"object": p.object})
	}
	w.Gate = !w.NeedsGate || slices.Contains(gates, gate) && !slices.Contains(disabled, gate)
}

// asKubeVirtHasIt takes from the KubeVirt CR what counts there: its version, and
// the table as HyperConverged has passed it on.
func (p *planner) asKubeVirtHasIt(w *diagnose.Wiring) error {
	kubevirt := &p.in.Target.Document
	if p.in.Target.Managed != nil {
		kubevirt = p.in.Target.Managed
	}
	if kubevirt.Kind() != KindKubeVirt {
		return nil
	}
	t := &Target{Document: *kubevirt}
	w.Version = p.kubeVirtVersion()
	s := schemaOf(t)
	gates, _ := s.strings(kubevirt.Object, s.gates)
	disabled, _ := s.strings(kubevirt.Object, s.disabled)
	w.DRA = draGates(gates, disabled, w.Version)
	if p.in.Target.Managed == nil {
		return nil
	}
	table, err := TableOf(t, kubevirt.Object)
	if err != nil {
		return badShape(kubevirt.Ref(), err)
	}
	w.Copy = &diagnose.Copy{Object: kubevirt.Ref(), Table: table}
	if slices.ContainsFunc(w.Table.Entries, func(e gpu.Entry) bool { return !e.Disabled && !e.Odd && !table.Permits(e.Name) }) {
		p.report("GPU0327", p.object, diagnose.Values{"target": p.object, "kubevirt": kubevirt.Ref()})
	}
	return nil
}

// draGates says whether devices may come from resource claims: from KubeVirt 1.9 the
// gates are on unless they are disabled.
func draGates(gates, disabled []string, version string) gpu.Presence {
	names := []string{"GPUsWithDRA", "HostDevicesWithDRA"}
	on := func(g string) bool { return slices.Contains(gates, g) && !slices.Contains(disabled, g) }
	if slices.ContainsFunc(names, on) {
		return gpu.Present
	}
	v, err := semver.ParseGeneric(version)
	switch {
	case err != nil && len(disabled) == 0:
		return gpu.PresenceUnknown
	case err == nil && v.AtLeast(semver.MajorMinor(1, 9)) && slices.ContainsFunc(names, func(g string) bool { return !slices.Contains(disabled, g) }):
		return gpu.Present
	}
	return gpu.Absent
}
