package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gpuctl/gpuctl/internal/bundle"
	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/internal/manifest"
)

// unpack adds what a bundle holds. What was given beside it counts more.
func (m *material) unpack(file string) error {
	b, err := bundle.Read(file)
	if err != nil {
		return err
	}
	m.docs, m.logs = append(m.docs, b.Docs...), append(m.logs, b.Logs...)
	for _, c := range b.Conditions {
		m.skipped = append(m.skipped, manifest.Skipped{File: file, Object: c})
	}
	for _, inv := range b.Inventory {
		if _, given := m.inventories[inv.Host.Node]; !given {
			m.inventories[inv.Host.Node] = inventory{host: inv.Host, findings: inv.Findings}
		}
	}
	m.problems = append(m.problems, b.About.Problems...)
	m.at, m.pods, m.agents, m.control, m.plugin = b.About.Read, b.About.Pods, b.About.Agents, b.About.Control, b.About.Release
	m.hnc = b.About.HNC
	return nil
}

// pack writes the material into a bundle, with what the diagnosis came to.
func (m *material) pack(file, plugin string, findings []diagnose.Finding) error {
	b := bundle.Bundle{
		About: bundle.About{
			Version: currentBuild().Version, Packed: time.Now().UTC(), Read: m.at, Pods: m.pods, Agents: m.agents, Control: m.control, HNC: m.hnc,
			Release: plugin, Problems: m.problems,
		},
		Docs: m.docs, Logs: m.logs, Findings: findings,
	}
	for _, s := range m.skipped {
		if s.Object != nil {
			b.Conditions = append(b.Conditions, s.Object)
		}
	}
	for _, node := range slices.Sorted(maps.Keys(m.inventories)) {
		inv := m.inventories[node]
		b.Inventory = append(b.Inventory, bundle.Inventory{Host: inv.host, Findings: inv.findings})
	}
	return bundle.Write(file, &b)
}

// writeBundle packs the material, reads it back, and says whether that comes to the
// same findings.
func (f *diagnoseFlags) writeBundle(s *streams, m *material, findings []diagnose.Finding) error {
	if f.bundle == "-" || strings.HasSuffix(f.bundle, "/") {
		return usagef("--bundle %q: want the name of a file", f.bundle)
	}
	plugin := m.plugin
	if f.plugin != "" {
		plugin = f.plugin
	}
	if err := m.pack(f.bundle, plugin, findings); err != nil {
		return err
	}
	back := evidenceFlags{files: []string{f.bundle}}
	again, err := back.fromFiles(s)
	if err != nil {
		return err
	}
	e, _, err := back.evidence(&again)
	if err != nil {
		return fmt.Errorf("read the bundle back: %w", err)
	}
	report, _ := diagnose.Diagnose(&e, diagnose.Subject{})
	fmt.Fprintf(s.err, "packed into %s (mode 0600, without secrets): gpuctl diagnose -f %s\n", f.bundle, f.bundle)
	if !slices.Equal(report.Findings, findings) {
		fmt.Fprintln(s.err, "note: read back it comes to other findings than these: something that they depend on is not packed")
	}
	return nil
}
