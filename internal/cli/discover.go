package cli

import (
	"cmp"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/internal/discover"
	"github.com/gpuctl/gpuctl/internal/gpu"
)

func newDiscover(s *streams) *cobra.Command {
	var flags inventoryFlags
	var out output
	cmd := &cobra.Command{
		Use:   "discover",
		Short: "Show a host's NVIDIA functions, their resource names, and why a VM cannot use one",
		Long: `Show a host's NVIDIA functions, their resource names, and why a VM cannot use one.

Without flags this host is read; the default /sys of an unprivileged container is
enough. --root reads another host's file system, --lspci pasted text.`,
		Example: `  gpuctl discover
  lspci -nnk | gpuctl discover --lspci - -o wide
  gpuctl discover --lspci worker-1=lspci.txt --iommu worker-1=iommu.tsv -o json`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return runDiscover(s, &flags, &out) },
	}
	flags.add(cmd)
	out.flag(cmd, "table", "wide", "json", "yaml")
	return cmd
}

func runDiscover(s *streams, flags *inventoryFlags, out *output) error {
	release, err := flags.release()
	if err != nil {
		return err
	}
	if !release.Known() {
		release = gpu.Newest()
	}
	inventories, err := flags.read(s.in)
	if err == nil && !flags.given() {
		inventories, err = thisHost()
	}
	if err != nil {
		return err
	}
	view := discoverView{Nodes: []nodeView{}}
	var findings []diagnose.Finding
	for _, node := range slices.Sorted(maps.Keys(inventories)) {
		inv := inventories[node]
		view.Nodes = append(view.Nodes, viewNode(&inv.host, release))
		findings = append(findings, inv.findings...)
		findings = append(findings, diagnose.Host(&inv.host, release)...)
	}
	view.Findings = diagnose.Sort(append([]diagnose.Finding{}, findings...))
	if done, err := out.structured(s, view); done {
		return err
	}
	if err := view.print(s.printer(), out.is("wide")); err != nil {
		return err
	}
	return s.commentary().Findings(view.Findings)
}

// thisHost reads the inventory of the machine that gpuctl runs on. In a pod the
// node's name comes from the downward API as NODE_NAME.
func thisHost() (map[string]inventory, error) {
	h, warnings, err := discover.Host("")
	if err != nil {
		return nil, err
	}
	h.Node = os.Getenv("NODE_NAME")
	if h.Node == "" {
		name, _ := os.Hostname()
		h.Node = cmp.Or(strings.ToLower(name), "localhost")
	}
	return map[string]inventory{h.Node: {host: h, findings: warningFindings(h.Node, warnings)}}, nil
}
