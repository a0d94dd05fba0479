package gpu

import (
	_ "embed"
	"strings"
)

// namesTable has one line per device id: the id, then its derived name in each
// snapshot of pci.ids, oldest first, then in the newest pci.ids there is. Lines
// are sorted by id, so a name is found by bisecting the text: nothing is parsed
// when the program starts.
//
//go:embed names.tsv
var namesTable string

// snapshot is a pci.ids that some plugin image carries, by the order of the
// columns of namesTable.
type snapshot int

// latest is the column behind the snapshots: the newest pci.ids known here. No
// release bundles it, so it never predicts a name; it only helps to tell what
// a device is.
const latest = snapshot(6)

// notInSnapshot stands in namesTable for an id that a pci.ids does not have.
const notInSnapshot = "-"

// bundle is a pci.ids and the first release whose image carries it.
type bundle struct {
	since Release
	date  string
}

// bundled returns the snapshots in the order of namesTable's columns.
func bundled() [latest]bundle {
	return [latest]bundle{
		{Release{}, "2021-12"},
		{Release{1, 2, 2}, "2023.05.23"},
		{Release{1, 2, 5}, "2023.11.11"},
		{Release{1, 2, 8}, "2024.06.23"},
		{Release{1, 3, 1}, "2025.02.12"},
		{Release{1, 4, 0}, "2025.07.11"},
	}
}

// snapshot returns the pci.ids that r carries. A release newer than all known
// ones is assumed to carry what the newest known one does.
func (r Release) snapshot() snapshot {
	table := bundled()
	i := len(table) - 1
	for !r.atLeast(table[i].since) {
		i--
	}
	return snapshot(i)
}

// PCIIDs returns the date of the pci.ids that r's image carries, as that file
// writes it. The zero Release is taken for Newest.
func (r Release) PCIIDs() string { return bundled()[r.snapshot()].date }

// Name returns the resource name under which release r of NVIDIA's KubeVirt
// device plugin registers functions with device id d: derived from the pci.ids
// that its image carries, the bare id where that does not know d. It is a
// prediction: where a node's allocatable differs, the node is right. The zero
// Release is taken for Newest. The name may be one that kubelet refuses; see
// ResourceName.Check.
func (r Release) Name(d DeviceID) ResourceName {
	name := nameIn(tableRow(d), r.snapshot())
	if name == "" {
		name = d.String()
	}
	return ResourceName(Domain + "/" + name)
}

// tableRow returns the line of namesTable about d, behind the id and its tab;
// "" when there is none.
func tableRow(d DeviceID) string {
	id := d.String()
	lo, hi := 0, len(namesTable)
	for lo < hi {
		mid := lo + (hi-lo)/2
		start := lo + strings.LastIndexByte(namesTable[lo:mid], '\n') + 1
		end := start + strings.IndexByte(namesTable[start:], '\n')
		line := namesTable[start:end]
		switch row, ok := strings.CutPrefix(line, id+"\t"); {
		case ok:
			return row
		case line < id: // comment lines too: '#' sorts before every digit
			lo = end + 1
		default:
			hi = start
		}
	}
	return ""
}

// nameIn returns the name that a row gives in s, "" when s has none. An empty
// or missing field repeats the one to its left.
func nameIn(row string, s snapshot) string {
	name := ""
	for i := snapshot(0); i <= s; i++ {
		field, rest, more := strings.Cut(row, "\t")
		if field != "" {
			name = field
		}
		if !more {
			break
		}
		row = rest
	}
	if name == notInSnapshot {
		return ""
	}
	return name
}

// Derive turns a device name of pci.ids into the part of a resource name
// behind the slash, as the plugin does from v1.1.1 on: trimmed, upper-cased,
// "/" and "." become "_", so does every run of white space, and what is then
// outside [a-zA-Z0-9_.] is deleted. "A2 / A16" becomes "A2___A16". The result
// may be empty; the plugin then falls back to the id.
func Derive(pciName string) string {
	name := strings.ToUpper(strings.TrimSpace(pciName))
	name = strings.NewReplacer("/", "_", ".", "_").Replace(name)
	name = joinFields(name)
	return strings.Map(func(c rune) rune {
		switch {
		case c >= '0' && c <= '9', c >= 'A' && c <= 'Z', c >= 'a' && c <= 'z', c == '_':
			return c
		}
		return -1
	}, name)
}

// MdevResource returns the resource name under which the plugin, any release,
// registers mediated devices of a type: every run of white space becomes "_",
// case and "-" stay. "NVIDIA A10-12Q" becomes "nvidia.com/NVIDIA_A10-12Q".
func MdevResource(typeName string) ResourceName {
	return ResourceName(Domain + "/" + joinFields(strings.Trim(typeName, "\n")))
}

// joinFields replaces every run of white space by one "_", at the ends too.
// White space is what \s matches in a regular expression: ASCII only.
func joinFields(s string) string {
	var out strings.Builder
	inSpace := false
	for _, c := range s {
		space := strings.ContainsRune(" \t\n\f\r", c)
		switch {
		case !space:
			out.WriteRune(c)
		case !inSpace:
			out.WriteByte('_')
		}
		inSpace = space
	}
	return out.String()
}
