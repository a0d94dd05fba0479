package discover

import (
	"errors"
	"fmt"
	"strings"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// ParseLspci reads the output of lspci -nnk, or of lspci with -nn or -n, with
// or without -k, -D and up to three -v, as it was printed or as it arrives in
// an issue: quoted, indented, with other line ends, or clipped by a terminal.
//
// A clipped device line keeps what is certain: its address, class and driver,
// not its id. Text without any indented line leaves drivers unknown; otherwise
// a device without "Kernel driver in use" is unbound. Lines that are neither a
// device nor one of its details are named in a warning.
func ParseLspci(text []byte) (gpu.Host, []string, error) {
	p := &lspciParser{}
	for n, line := range lines(text) {
		p.line(n, line)
	}
	h, err := p.host()
	if err != nil {
		return gpu.Host{}, p.warnings(), fmt.Errorf("parse lspci text: %w", err)
	}
	return h, p.warnings(), nil
}

// block is one device of lspci's output: its line and the indented ones below.
type block struct {
	gpu.Function
	line     int
	detailed bool // an indented line belongs to it
	// severed: a driver line came after a line that is no part of the block, so
	// whose it is cannot be told.
	severed bool
	// flags is the length of the line that said, at its end, which group or
	// NUMA node the device is in; 0 when none did.
	flags int
}

type lspciParser struct {
	blocks  []*block
	open    bool // the last block still takes details
	width   int  // length of the longest line
	clipped []int
	ignored []int
	first   string // the first ignored line
	notes   []string
}

// line sorts one line: a device, a detail of the last device, or neither.
func (p *lspciParser) line(n int, line string) {
	p.width = max(p.width, len(line))
	if strings.TrimSpace(line) == "" {
		return
	}
	if f, ok := parseDeviceLine(line); ok {
		p.blocks = append(p.blocks, &block{Function: f, line: n})
		p.open = true
		if !f.ID.Known() {
			p.clipped = append(p.clipped, n)
		}
		return
	}
	if len(p.blocks) == 0 || !isDetail(line) {
		if len(p.ignored) == 0 {
			p.first = strings.TrimSpace(line)
		}
		p.ignored = append(p.ignored, n)
		p.open = false
		return
	}
	p.detail(p.blocks[len(p.blocks)-1], line)
}

func (p *lspciParser) detail(b *block, line string) {
	b.detailed = true
	key, value, _ := strings.Cut(strings.TrimSpace(line), ":")
	if !p.open {
		b.severed = b.severed || key == keyDriver
		return
	}
	b.apply(key, strings.TrimSpace(value), len(line))
}

// host settles what only the whole text can tell.
func (p *lspciParser) host() (gpu.Host, error) {
	if len(p.blocks) == 0 {
		return gpu.Host{}, errors.New(`no line starts with a PCI address; paste the output of "lspci -nnk"`)
	}
	if len(p.clipped) == len(p.blocks) {
		return gpu.Host{}, errors.New(`no line shows a [vendor:device] id; paste the output of "lspci -nnk", unclipped`)
	}
	blocks, err := p.unique()
	if err != nil {
		return gpu.Host{}, err
	}
	detailed := false
	for _, b := range blocks {
		detailed = detailed || b.detailed
	}
	var h gpu.Host
	for _, b := range blocks {
		b.DriverUnknown = !detailed || b.severed && b.Driver == ""
		if len(p.clipped) > 0 && b.flags == p.width {
			b.distrustTail()
		}
		h.Functions = append(h.Functions, b.Function)
	}
	h.Sort()
	h.IOMMU = presenceOfGroups(h.Functions)
	return h, nil
}

// unique drops repeated devices, as when somebody pastes lspci -nn and then
// lspci -nnk: the more detailed block stays. Two ids at one address cannot come
// from one machine.
func (p *lspciParser) unique() ([]*block, error) {
	at := make(map[gpu.Address]int, len(p.blocks))
	var kept []*block
	for _, b := range p.blocks {
		i, seen := at[b.Address]
		if !seen {
			at[b.Address] = len(kept)
			kept = append(kept, b)
			continue
		}
		old := kept[i]
		if old.ID.Known() && b.ID.Known() && old.ID != b.ID {
			return nil, fmt.Errorf("line %d: %s is %s here and %s in line %d; paste one machine at a time", b.line, b.Address, b.ID, old.ID, old.line)
		}
		p.notes = append(p.notes, fmt.Sprintf("line %d: %s is also in line %d", b.line, b.Address, old.line))
		kept[i] = merged(old, b)
	}
	return kept, nil
}

// merged is the more detailed block with the id and class of either.
func merged(a, b *block) *block {
	if b.detailed && !a.detailed {
		a, b = b, a
	}
	if !a.ID.Known() {
		a.ID = b.ID
	}
	if a.Class == 0 {
		a.Class = b.Class
	}
	return a
}

func (p *lspciParser) warnings() []string {
	out := p.notes
	for _, n := range p.clipped {
		out = append(out, fmt.Sprintf("line %d: no [vendor:device] id, the line may be clipped", n))
	}
	if len(p.ignored) > 0 {
		out = append(out, fmt.Sprintf("ignored %d line(s) that are no part of lspci's output, first line %d: %q", len(p.ignored), p.ignored[0], p.first))
	}
	return out
}

// presenceOfGroups concludes from a numbered group that there is an IOMMU. That
// no function has a group proves nothing: the text may not show groups.
func presenceOfGroups(functions []gpu.Function) gpu.Presence {
	for _, f := range functions {
		if _, ok := f.Group.ID(); ok {
			return gpu.Present
		}
	}
	return gpu.PresenceUnknown
}
