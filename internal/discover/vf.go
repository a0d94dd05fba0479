package discover

import (
	"errors"
	"fmt"
	"strings"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// ApplyVF marks a host's virtual functions from text. Lines may be
//
//	0000:3b:00.4 physfn=0000:3b:00.0
//	0000:3b:00.4                                    the physical function unknown
//	/sys/bus/pci/devices/0000:3b:00.4/physfn -> ../0000:3b:00.0
//
// with # comments and one header line. Any other line is an error. An empty
// text says that there are no virtual functions. Those that the host lacks are
// named in a warning and ignored.
func ApplyVF(h *gpu.Host, text []byte) ([]string, error) {
	vfs, err := parseVFs(text)
	if err != nil {
		return nil, fmt.Errorf("parse virtual functions: %w", err)
	}
	at := make(map[gpu.Address]*gpu.Function, len(h.Functions))
	for i := range h.Functions {
		at[h.Functions[i].Address] = &h.Functions[i]
	}
	var warnings []string
	for _, vf := range vfs {
		f, ok := at[vf.addr]
		if !ok {
			warnings = append(warnings, fmt.Sprintf("line %d: the lspci text does not list virtual function %s", vf.line, vf.addr))
			continue
		}
		f.VF, f.VFGuessed, f.PhysFn = true, false, vf.pf
	}
	return warnings, nil
}

// virtual is one line about a virtual function.
type virtual struct {
	line int
	addr gpu.Address
	pf   *gpu.Address
}

func parseVFs(text []byte) ([]virtual, error) {
	var out []virtual
	started := false
	for n, line := range lines(text) {
		line, _, _ = strings.Cut(line, "#")
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		header := !started && !strings.ContainsAny(line, "0123456789")
		started = true
		if header {
			continue
		}
		vf, err := parseVF(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %q: %w", n, line, err)
		}
		vf.line = n
		out = append(out, vf)
	}
	return out, nil
}

func parseVF(line string) (virtual, error) {
	found := addresses(line)
	if len(found) == 2 && strings.Contains(line, "virtfn") {
		found[0], found[1] = found[1], found[0] // a link of the physical function's
	}
	switch {
	case len(found) == 1 && !strings.ContainsAny(line, " \t="):
		return virtual{addr: found[0]}, nil
	case len(found) == 2 && found[0] != found[1]:
		return virtual{addr: found[0], pf: &found[1]}, nil
	case len(found) == 2:
		return virtual{}, errors.New("a function cannot be its own physical function")
	}
	return virtual{}, fmt.Errorf("want a virtual function, as in %q", "0000:3b:00.4 physfn=0000:3b:00.0")
}

// GuessVFs marks what must be virtual functions on a host that does not say:
// display controllers of the same id and on driver nvidia as another one, at a
// further function of its slot (18:04.0, 18:04.1), or anywhere on its bus when
// it is the bus's first (3b:00.0, 3b:00.4 … 3b:01.3). A PCI Express card has its
// bus for itself and numbers its VFs on from there, so neither a second card nor
// the other half of a dual-GPU board is one.
func GuessVFs(h *gpu.Host) {
	const display = 0x03
	cards := map[gpu.Address]*gpu.Function{}
	for i := range h.Functions {
		f := &h.Functions[i]
		if f.IsNVIDIA() && f.Class>>16 == display && f.Address.Function == 0 {
			cards[f.Address] = f
		}
	}
	for i := range h.Functions {
		f := &h.Functions[i]
		if !f.IsNVIDIA() || f.Class>>16 != display || f.Driver != "nvidia" || f.VF {
			continue
		}
		pf, ok := cards[firstOnBus(f.Address)]
		if !ok || pf.ID != f.ID {
			pf, ok = cards[firstInSlot(f.Address)]
		}
		if !ok || pf == f || pf.ID != f.ID {
			continue
		}
		addr := pf.Address // a copy: sorting moves functions about
		f.VF, f.VFGuessed, f.PhysFn = true, true, &addr
	}
}

// firstInSlot is function 0 of an address's slot.
func firstInSlot(a gpu.Address) gpu.Address {
	a.Function = 0
	return a
}

// firstOnBus is device 0, function 0 of an address's bus.
func firstOnBus(a gpu.Address) gpu.Address {
	a.Device, a.Function = 0, 0
	return a
}
