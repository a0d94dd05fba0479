package patch

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// Piece is one thing that gpuctl writes: an entry of the table, or the gate, which is the
// zero Piece.
type Piece struct {
	Selector string
	Name     gpu.ResourceName
}

// String returns "10DE:2335 as nvidia.com/…" or "feature gate HostDevices".
func (p Piece) String() string {
	if p == (Piece{}) {
		return "feature gate " + gate
	}
	return fmt.Sprintf("%s as %s", p.Selector, p.Name)
}

// as returns the piece in one spelling, for comparing: KubeVirt reads selectors in any
// casing, and a blank as an underscore.
func (p Piece) as() Piece { return Piece{strings.ToLower(spell(p.Selector)), p.Name} }

// Piece returns what is added or removed.
func (c Change) Piece() Piece {
	v, ok := c.Value.(map[string]any)
	if !ok {
		return Piece{}
	}
	text := func(keys ...string) string {
		for _, key := range keys {
			if s, ok := v[key].(string); ok {
				return s
			}
		}
		return ""
	}
	return Piece{text("pciVendorSelector", "pciDeviceSelector", "mdevNameSelector"), gpu.ResourceName(text("resourceName"))}
}

// String returns what is added or removed, in words.
func (c Change) String() string { return c.Piece().String() }

// Recorded returns what gpuctl wrote, as the record has it.
func Recorded(t *Target) (all []Piece) {
	r, err := readRecord(t.Object)
	if err != nil {
		return nil
	}
	for _, w := range r.Entries {
		all = append(all, Piece{w.Selector, w.Name})
	}
	if r.Gate {
		all = append(all, Piece{})
	}
	return all
}

// Lost returns what of that the target lacks, whoever wrote it there, each once.
func Lost(t *Target, of []Piece) (lost []Piece) {
	s := schemaOf(t)
	table, _, err := s.read(t.Object, t.Ref())
	if err != nil {
		return nil
	}
	gates, _ := s.strings(t.Object, s.gates)
	there := map[Piece]bool{{}: s.gates == nil || slices.Contains(gates, gate)}
	for _, e := range table.Entries {
		there[Piece{e.Selector, e.Name}.as()] = true
	}
	for _, p := range of {
		if !there[p.as()] && !slices.Contains(lost, p) {
			lost = append(lost, p)
		}
	}
	return lost
}

// Own returns the names of the entries that gpuctl recorded as its own, sorted.
func Own(t *Target) (names []gpu.ResourceName) {
	for _, p := range Recorded(t) {
		if p != (Piece{}) {
			names = append(names, p.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// DependsOnWorkloads reports a plan that another one may have to take the place of once
// it is known what VMs ask for.
func DependsOnWorkloads(in *Input, r *Result) bool {
	table, err := TableOf(&in.Target, in.Target.Object)
	removes := func(c Change) bool { return c.Op == "remove" }
	return err == nil && len(r.Changes) > 0 && (!table.Set || slices.ContainsFunc(r.Changes, removes))
}
