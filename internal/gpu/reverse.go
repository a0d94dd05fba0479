package gpu

import (
	"strings"
	"sync"
)

// naming says that a name stands for an id in some snapshots of pci.ids.
type naming struct {
	id DeviceID
	in uint8 // one bit per snapshot
}

// namings turns namesTable round: what each name stands for, sorted by id.
// Built at the first use, since most runs never ask.
var namings = sync.OnceValue(func() map[string][]naming {
	out := map[string][]naming{}
	for line := range strings.Lines(namesTable) {
		idText, row, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		id, err := ParseDeviceID(idText)
		if !ok || err != nil {
			continue // a comment
		}
		for s := range latest {
			if name := nameIn(row, s); name != "" {
				out[name] = addNaming(out[name], id, s)
			}
		}
	}
	return out
})

// addNaming notes that a name stands for id in s. Ids come in order, so only
// the last entry can be the id's own.
func addNaming(to []naming, id DeviceID, s snapshot) []naming {
	if last := len(to) - 1; last >= 0 && to[last].id == id {
		to[last].in |= 1 << s
		return to
	}
	return append(to, naming{id: id, in: 1 << s})
}

// DeviceIDs returns the ids of NVIDIA's devices that some plugin release known
// here registers under n, sorted; nil when there are none. Several ids can
// share a name. A name of exactly four lower-case hex digits is that id itself,
// whatever pci.ids says of it. Mixed-case names of releases before v1.1.1 are
// not known.
func DeviceIDs(n ResourceName) []DeviceID {
	if id, ok := n.hexID(); ok {
		return []DeviceID{id}
	}
	return n.idsIn(1<<latest - 1)
}

// DeviceIDs returns the ids d for which r.Name(d) is n, sorted; nil when there
// are none. The zero Release is taken for Newest.
func (r Release) DeviceIDs(n ResourceName) []DeviceID {
	s := r.snapshot()
	if id, ok := n.hexID(); ok {
		if nameIn(tableRow(id), s) != "" {
			return nil // r has a proper name for it
		}
		return []DeviceID{id}
	}
	return n.idsIn(1 << s)
}

// idsIn returns the ids that n stands for in any of the snapshots in the mask.
func (n ResourceName) idsIn(snapshots uint8) []DeviceID {
	if !n.IsNVIDIA() {
		return nil
	}
	var ids []DeviceID
	for _, use := range namings()[n.Short()] {
		if use.in&snapshots != 0 {
			ids = append(ids, use.id)
		}
	}
	return ids
}

// hexID returns the id that the plugin wrote for want of a name, "233b" in
// "nvidia.com/233b". The plugin writes lower case only.
func (n ResourceName) hexID() (DeviceID, bool) {
	short := n.Short()
	if !n.IsNVIDIA() || strings.ToLower(short) != short {
		return 0, false
	}
	id, err := ParseDeviceID(short)
	return id, err == nil
}
