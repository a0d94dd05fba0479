package cli

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/internal/discover"
	"github.com/gpuctl/gpuctl/internal/gpu"
)

// inventoryFlags say where host inventories come from.
type inventoryFlags struct {
	roots, lspci, iommu, vf []string
	plugin                  string
}

func (f *inventoryFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringArrayVar(&f.roots, "root", nil, "read the inventory from `[NODE=]DIR`, the root directory of a host's file system")
	flags.StringArrayVar(&f.lspci, "lspci", nil, "read the inventory from `[NODE=]FILE`, the output of lspci -nnk (- is stdin)")
	flags.StringArrayVar(&f.iommu, "iommu", nil, "IOMMU groups for --lspci: `[NODE=]FILE` with lines of address and group; an absent address has no group")
	flags.StringArrayVar(&f.vf, "vf", nil, "SR-IOV virtual functions for --lspci: `[NODE=]FILE` with lines of address and physfn=address")
	flags.StringVar(&f.plugin, "plugin-version", "", "device plugin `RELEASE` to predict names for (default: seen on the node, else the newest known)")
}

func (f *inventoryFlags) given() bool { return len(f.roots)+len(f.lspci) > 0 }

// release returns the release of --plugin-version, zero when none was given.
func (f *inventoryFlags) release() (gpu.Release, error) {
	if f.plugin == "" {
		return gpu.Release{}, nil
	}
	r, err := gpu.ParseRelease(f.plugin)
	if err != nil {
		return gpu.Release{}, usagef("--plugin-version: %w", err)
	}
	return r, nil
}

// inventory is one host's inventory and what was odd about its source.
type inventory struct {
	host     gpu.Host
	findings []diagnose.Finding
}

// source is what was given about one node.
type source struct {
	root                   string
	hasRoot                bool
	lspciFile, iommu, vf   string
	hasLspci, hasIO, hasVF bool
}

// read reads all given inventories, by node; the key "" is a host whose node was
// not named.
func (f *inventoryFlags) read(stdin io.Reader) (map[string]inventory, error) {
	sources, err := f.sources()
	if err != nil {
		return nil, err
	}
	out := map[string]inventory{}
	for node, src := range sources {
		inv, err := src.read(node, stdin)
		if err != nil {
			return nil, err
		}
		out[node] = inv
	}
	return out, nil
}

func (f *inventoryFlags) sources() (map[string]*source, error) {
	out := map[string]*source{}
	collect := func(flag string, values []string, field func(*source) (*string, *bool)) error {
		for _, v := range values {
			node, file := splitNode(v)
			if out[node] == nil {
				out[node] = &source{}
			}
			target, has := field(out[node])
			if *has {
				return usagef("--%s: given twice for %s; write --%s NODE=FILE", flag, nodeOr(node, "one host"), flag)
			}
			*target, *has = file, true
		}
		return nil
	}
	for _, err := range []error{
		collect("root", f.roots, func(s *source) (*string, *bool) { return &s.root, &s.hasRoot }),
		collect("lspci", f.lspci, func(s *source) (*string, *bool) { return &s.lspciFile, &s.hasLspci }),
		collect("iommu", f.iommu, func(s *source) (*string, *bool) { return &s.iommu, &s.hasIO }),
		collect("vf", f.vf, func(s *source) (*string, *bool) { return &s.vf, &s.hasVF }),
	} {
		if err != nil {
			return nil, err
		}
	}
	return out, checkSources(out)
}

func checkSources(sources map[string]*source) error {
	stdin := 0
	for node, s := range sources {
		where := nodeOr(node, "the host without NODE=")
		switch {
		case s.hasRoot && s.hasLspci:
			return usagef("%s has both --root and --lspci; give one of them", where)
		case !s.hasLspci && (s.hasIO || s.hasVF):
			return usagef("--iommu and --vf belong to a --lspci of the same node, and %s has none", where)
		}
		for _, file := range []string{s.lspciFile, s.iommu, s.vf} {
			if isStdin(file) {
				stdin++
			}
		}
	}
	if stdin > 1 {
		return usagef("stdin (-) can be read once only; give files")
	}
	return nil
}

// isStdin reports that a flag's value, with or without NODE=, names stdin.
func isStdin(value string) bool {
	_, file := splitNode(value)
	return file == "-"
}

// splitNode splits "NODE=FILE". A file name may hold "=" itself: only what can be
// a node's name is taken for one.
func splitNode(v string) (node, file string) {
	node, file, ok := strings.Cut(v, "=")
	if !ok || node == "" || strings.ContainsFunc(node, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' || r == '.')
	}) || strings.HasPrefix(node, ".") {
		return "", v
	}
	return node, file
}

func nodeOr(node, other string) string {
	if node == "" {
		return other
	}
	return "node " + node
}

func (s *source) read(node string, stdin io.Reader) (inventory, error) {
	var h gpu.Host
	var warnings []string
	var err error
	if s.hasRoot {
		h, warnings, err = discover.Host(s.root)
	} else {
		h, warnings, err = s.readText(stdin)
	}
	if err != nil {
		return inventory{}, err
	}
	h.Node = node
	return inventory{host: h, findings: warningFindings(node, warnings)}, nil
}

func (s *source) readText(stdin io.Reader) (gpu.Host, []string, error) {
	var pasted discover.Pasted
	for _, in := range []struct {
		has  bool
		name string
		file *discover.File
	}{{s.hasLspci, s.lspciFile, &pasted.Lspci}, {s.hasIO, s.iommu, &pasted.IOMMU}, {s.hasVF, s.vf, &pasted.VF}} {
		if !in.has {
			continue
		}
		data, err := readFile(stdin, in.name)
		if err != nil {
			return gpu.Host{}, nil, err
		}
		*in.file = discover.File{Name: in.name, Data: data}
	}
	return discover.FromText(pasted)
}

// maxText bounds pasted text: lspci of the largest hosts is well below a MiB.
const maxText = 16 << 20

func readFile(stdin io.Reader, name string) ([]byte, error) {
	r := stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		r = f
	}
	data, err := io.ReadAll(io.LimitReader(r, maxText+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if len(data) > maxText {
		return nil, fmt.Errorf("read %s: larger than %d MiB, which no lspci prints", name, maxText>>20)
	}
	if data == nil {
		data = []byte{}
	}
	return data, nil
}

func warningFindings(node string, warnings []string) []diagnose.Finding {
	object := "host"
	if node != "" {
		object = "node/" + node
	}
	var out []diagnose.Finding
	for _, w := range warnings {
		out = append(out, diagnose.New("GPU0215", object, diagnose.Values{"problem": w}))
	}
	return slices.Clip(out)
}
