package discover

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// ApplyIOMMU sets the IOMMU groups of a host's functions from text. A function
// that the text does not list is in no group; so an empty text says that there
// are none. Lines may be
//
//	0000:18:00.0 40                                 "-" or "none" for no group
//	/sys/kernel/iommu_groups/40/devices/0000:18:00.0
//	IOMMU Group 40 18:00.0 3D controller [0302]: …
//	IOMMU Group 40:                                 devices on the lines below
//	/sys/kernel/iommu_groups/40/devices:            so too, as ls prints it
//
// with # comments and one header line. Any other line is an error.
//
// A function that the text has in a group with one of NVIDIA's, but that the
// host lacks, is added with nothing but address and group, and named in a
// warning: it may block the group. Others that the host lacks are ignored.
func ApplyIOMMU(h *gpu.Host, text []byte) ([]string, error) {
	members, err := parseGroups(text)
	if err != nil {
		return nil, fmt.Errorf("parse IOMMU groups: %w", err)
	}
	groups := make(map[gpu.Address]gpu.Group, len(members))
	for _, m := range members {
		groups[m.addr] = m.group
	}
	shared := map[int]gpu.Address{} // groups that hold one of NVIDIA's functions
	for i := range h.Functions {
		f := &h.Functions[i]
		f.Group = gpu.NoGroup()
		if g, ok := groups[f.Address]; ok {
			f.Group = g
		}
		if id, ok := f.Group.ID(); ok && f.IsNVIDIA() {
			shared[id] = f.Address
		}
		delete(groups, f.Address)
	}
	warnings := addStrangers(h, members, groups, shared)
	h.IOMMU = presenceOfGroups(h.Functions)
	h.Sort()
	return warnings, nil
}

// addStrangers adds the members of shared groups that the host does not have:
// those left in missing.
func addStrangers(h *gpu.Host, members []member, missing map[gpu.Address]gpu.Group, shared map[int]gpu.Address) []string {
	var warnings []string
	for _, m := range members {
		id, _ := m.group.ID()
		neighbour, ok := shared[id]
		if _, isMissing := missing[m.addr]; !isMissing || !ok || m.group.None() {
			continue
		}
		delete(missing, m.addr) // a line may be there twice
		h.Functions = append(h.Functions, gpu.Function{Address: m.addr, Group: m.group, DriverUnknown: true})
		warnings = append(warnings, fmt.Sprintf("line %d: %s shares IOMMU group %d with %s, but the lspci text does not list it", m.line, m.addr, id, neighbour))
	}
	return warnings
}

// member says which group a function is in, and where that was read.
type member struct {
	line  int
	addr  gpu.Address
	group gpu.Group
}

// groupParser keeps what a line may depend on.
type groupParser struct {
	header  *gpu.Group // of "IOMMU Group 40:", for the lines below it
	started bool       // a line of content was seen
}

func parseGroups(text []byte) ([]member, error) {
	var p groupParser
	var out []member
	seen := map[gpu.Address]member{}
	for n, line := range lines(text) {
		line, _, _ = strings.Cut(line, "#")
		if strings.TrimSpace(line) == "" {
			continue
		}
		addr, group, err := p.line(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %q: %w", n, strings.TrimSpace(line), err)
		}
		p.started = true
		if addr == nil {
			continue
		}
		old, dup := seen[*addr]
		if dup && old.group != group {
			return nil, fmt.Errorf("line %d: %s is in group %s here and in group %s in line %d", n, addr, group, old.group, old.line)
		}
		seen[*addr] = member{line: n, addr: *addr, group: group}
		out = append(out, seen[*addr])
	}
	return out, nil
}

// line reads one line. The address is nil when the line is fine but places no
// PCI function: a header, a mediated device, a directory.
func (p *groupParser) line(line string) (*gpu.Address, gpu.Group, error) {
	if _, rest, ok := strings.Cut(line, "iommu_groups/"); ok {
		return p.pathLine(line, rest)
	}
	words := strings.Fields(line)
	if len(words) > 2 && strings.EqualFold(words[0]+" "+strings.TrimSuffix(words[1], ":"), keyGroup) {
		return p.scriptLine(words[2:])
	}
	addr, err := gpu.ParseAddress(words[0])
	if err == nil && len(words) == 2 { // a pair stands for itself, below a header too
		if group, err := parseGroup(words[1]); err == nil {
			return &addr, group, nil
		}
	}
	switch {
	case err == nil && p.header != nil:
		return &addr, *p.header, nil
	case err == nil && len(words) == 2:
		group, err := parseGroup(words[1])
		return &addr, group, err
	case !p.started && !strings.ContainsAny(line, "0123456789"):
		return nil, gpu.Group{}, nil // a header line
	}
	return nil, gpu.Group{}, fmt.Errorf("want an address and a group, as in %q", "0000:18:00.0 40")
}

// pathLine reads a line with a path of sysfs in it, of which rest is what
// follows "iommu_groups/". Of several addresses the last is the function's own; a
// folder's path, as ls prints it, is a header for the names below.
func (p *groupParser) pathLine(line, rest string) (*gpu.Address, gpu.Group, error) {
	number, _, _ := strings.Cut(rest, "/")
	group, err := parseGroup(strings.TrimSpace(number))
	if err != nil {
		return nil, gpu.Group{}, err
	}
	words := addresses(line)
	if len(words) == 0 {
		p.header = &group
		return nil, group, nil
	}
	return &words[len(words)-1], group, nil
}

// scriptLine reads what follows "IOMMU Group": a number, and with it a device
// or the devices below.
func (p *groupParser) scriptLine(words []string) (*gpu.Address, gpu.Group, error) {
	group, err := parseGroup(strings.TrimSuffix(words[0], ":"))
	if err != nil {
		return nil, gpu.Group{}, err
	}
	if len(words) == 1 {
		p.header = &group
		return nil, group, nil
	}
	addr, err := gpu.ParseAddress(words[1])
	return &addr, group, err
}

func parseGroup(s string) (gpu.Group, error) {
	if s == "-" || strings.EqualFold(s, "none") {
		return gpu.NoGroup(), nil
	}
	id, err := strconv.ParseUint(s, 10, 31)
	if err != nil {
		return gpu.Group{}, fmt.Errorf("parse IOMMU group %q: want a number", s)
	}
	return gpu.InGroup(int(id)), nil
}

// addresses returns the PCI addresses among the words and path elements of a
// line.
func addresses(line string) []gpu.Address {
	var out []gpu.Address
	words := strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(" \t/=,;>", r) })
	for _, w := range words {
		if a, err := gpu.ParseAddress(w); err == nil {
			out = append(out, a)
		}
	}
	return slices.Clip(out)
}
