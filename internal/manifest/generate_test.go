package manifest

import (
	"fmt"
	"strings"

	"pgregory.net/rapid"
)

// writer writes random documents in one of the many styles that people have.
type writer struct {
	t                  *rapid.T
	mapping, dash, gap int
	comments           bool
	flow               bool // parts on the edited paths may be in flow style
	lines              []string
}

// drawDocument returns the text of a KubeVirt CR.
func drawDocument(t *rapid.T, flow bool) string {
	w := &writer{
		t:        t,
		mapping:  rapid.SampledFrom([]int{2, 2, 4, 1, 3}).Draw(t, "indent"),
		gap:      rapid.SampledFrom([]int{2, 2, 4}).Draw(t, "gap"),
		comments: rapid.Bool().Draw(t, "comments"),
		flow:     flow,
	}
	w.dash = rapid.SampledFrom([]int{0, w.mapping}).Draw(t, "dash")
	w.noise(0)
	if rapid.Bool().Draw(t, "mark") {
		w.add(0, "---")
	}
	w.add(0, "apiVersion: kubevirt.io/v1"+w.beside())
	w.add(0, "kind: KubeVirt")
	w.container(0, "metadata", false, func(in int) {
		w.add(in, "name: kubevirt"+w.beside())
		w.extra(in)
		w.container(in, "annotations", true, func(in int) { w.some(in, 1) })
		w.extra(in)
	})
	w.extra(0)
	w.configured()
	w.extra(0)
	eol := rapid.SampledFrom([]string{"\n", "\n", "\r\n"}).Draw(t, "eol")
	text := strings.Join(w.lines, eol)
	if rapid.IntRange(0, 3).Draw(t, "end") > 0 {
		text += eol
	}
	if rapid.IntRange(0, 5).Draw(t, "bom") == 0 {
		text = utf8BOM + text
	}
	return text
}

// configured adds the spec; its configuration may come from an anchor, or be one.
func (w *writer) configured() {
	form := 0
	if w.flow {
		form = rapid.IntRange(0, 5).Draw(w.t, "anchors")
	}
	if form == 1 || form == 2 {
		w.container(0, "shared", false, func(in int) {
			w.add(in, "base: &base # shared")
			w.configuration(in + w.mapping)
			w.add(in+w.mapping, "last: 1")
		})
	}
	w.container(0, "spec", form == 0, func(in int) {
		w.extra(in)
		switch form {
		case 1:
			w.add(in, "configuration: *base"+w.beside())
		case 2:
			w.add(in, "configuration:")
			w.add(in+w.mapping, "<<: *base"+w.beside())
			w.add(in+w.mapping, "own: 1")
		case 3:
			w.add(in, "configuration: &base")
			w.configuration(in + w.mapping)
			w.add(in+w.mapping, "last: 1")
			w.add(in, "copy: *base"+w.beside())
			w.add(in, "copies: [*base, {a: *base}]")
		default:
			w.container(in, "configuration", true, w.configuration)
		}
		w.extra(in)
	})
}

func (w *writer) configuration(in int) {
	w.extra(in)
	w.container(in, "developerConfiguration", true, func(in int) {
		w.extra(in)
		w.list(in, "featureGates", func(string) []string {
			return []string{rapid.SampledFrom([]string{"GPU", "'Sidecar'", `"LiveMigration"`, "[x, y]", "|\n  block\n", ">-\n  a\n\n  b"}).Draw(w.t, "gate")}
		})
		w.extra(in)
	})
	w.container(in, "permittedHostDevices", true, func(in int) {
		entry := func(key string) []string {
			return []string{key + `: "8086:1521"` + w.beside(), "resourceName: intel.com/nic"}
		}
		w.list(in, "pciHostDevices", func(string) []string { return entry("pciVendorSelector") })
		w.extra(in)
		w.list(in, "mediatedDevices", func(string) []string { return entry("mdevNameSelector") })
	})
	w.extra(in)
}

func (w *writer) add(in int, line string) { w.lines = append(w.lines, spaces(in)+line) }

// noise adds comments and blank lines.
func (w *writer) noise(in int) {
	if !w.comments {
		return
	}
	for range rapid.IntRange(0, 2).Draw(w.t, "noise") {
		switch rapid.IntRange(0, 3).Draw(w.t, "kind") {
		case 0:
			w.lines = append(w.lines, "")
		case 1:
			w.add(in, "# - comment: here")
		case 2:
			w.add(in+w.mapping, "# deeper")
		default:
			w.add(rapid.IntRange(0, in).Draw(w.t, "in"), "#anywhere")
		}
	}
}

// beside returns a comment to stand behind a value, or nothing.
func (w *writer) beside() string {
	if !w.comments {
		return ""
	}
	return rapid.SampledFrom([]string{"", "", " # beside", "   # far", " #"}).Draw(w.t, "beside")
}

// container adds a mapping: full, empty, null or, where it may be, not at all.
func (w *writer) container(in int, key string, optional bool, body func(in int)) {
	w.noise(in)
	forms := 1
	if optional {
		forms = 6
	}
	switch rapid.IntRange(0, forms-1).Draw(w.t, key) {
	case 3:
		w.add(in, key+": {}"+w.beside())
	case 4:
		w.add(in, key+":"+w.beside())
	case 5:
		if w.flow {
			w.add(in, key+": "+rapid.SampledFrom([]string{"{a: b}", "{a: , b}", "{ a: [1, 2],\n    b: \"x, }\" # c\n  , c: it's }", "null", "~"}).Draw(w.t, "flow")+w.beside())
		}
	default:
		w.add(in, key+":"+w.beside())
		start := len(w.lines)
		body(in + w.mapping)
		if !hasContent(w.lines[start:]) {
			w.add(in+w.mapping, "filler: 1")
		}
	}
}

func hasContent(lines []string) bool {
	for _, l := range lines {
		if !noContent([]byte(l)) {
			return true
		}
	}
	return false
}

// list adds a list in one of its forms; item returns the lines of an item.
func (w *writer) list(in int, key string, item func(string) []string) {
	w.noise(in)
	switch rapid.IntRange(0, 5).Draw(w.t, key) {
	case 0:
	case 1:
		w.add(in, key+": []"+w.beside())
	case 2:
		w.add(in, key+":"+w.beside())
	case 3:
		if w.flow {
			w.add(in, key+": "+rapid.SampledFrom([]string{"[a, 'b, c']", "[ # first\n   a, # a\n   # b\n   b\n ]", "[{x: y}, [z], k: v]", "~"}).Draw(w.t, "flow")+w.beside())
			return
		}
		fallthrough
	default:
		w.add(in, key+":"+w.beside())
		for range rapid.IntRange(1, 3).Draw(w.t, "items") {
			w.noise(in + w.dash)
			for i, line := range item(key) {
				start := spaces(w.gap)
				if i == 0 {
					start = "-" + spaces(w.gap-1)
				}
				for j, part := range strings.Split(line, "\n") {
					if j > 0 && part != "" {
						start = spaces(w.gap)
					}
					w.add(in+w.dash, strings.TrimRight(start+part, " "))
				}
			}
		}
	}
}

// extra adds entries that nothing edits, in any style.
func (w *writer) extra(in int) { w.some(in, 0) }

func (w *writer) some(in, atLeast int) {
	for range rapid.IntRange(atLeast, max(atLeast, 1)).Draw(w.t, "extras") {
		w.noise(in)
		key := fmt.Sprintf(rapid.SampledFrom([]string{"k%d", "k%d", "'k %d'", "\"k\\t%d\"", "k %d/x"}).Draw(w.t, "name"), len(w.lines))
		value := rapid.SampledFrom([]string{
			"plain", "'single ''quoted'''", `"double \"q\" # no comment"`, "1e07", "0102", "yes", "~", "", "2024-01-02", "12345678901234567890123",
			"|\n  literal\n    more\n\n  # no comment", ">\n  folded\n    more\n\n\n  end", "|+\n  kept\n\n", ">-\n  a\n\n\n\n  b", "|2-\n    lead\n  x", "|\n  # all\n  # comments",
			"plain over\n  two lines", "\"over\n  two lines \\\"\n  # no comment\"", "'a\n\n  b'", "\"on\n# the left\"",
			"{a: b, c: [d, e]}", "{a: , b}", "[]", "{ a: b,\n  # comment\n  c: d }", "🚀 # emoji", "a#b", "&anchor x", "&a2 {b: c}", "&a3\n  b: c", "!!str 5", "\n  below",
			"\n  deep: {x: 1}\n  deeper:\n    x: y", "\n  - 1\n  - - 2\n    - 3\n  -\n  - x: y\n    z: |\n      text",
		}).Draw(w.t, "value")
		for i, line := range strings.Split(value, "\n") {
			switch {
			case i == 0:
				w.lines = append(w.lines, strings.TrimRight(spaces(in)+key+": "+line, " "))
			case strings.HasPrefix(line, "#"):
				w.lines = append(w.lines, line)
			case line == "":
				w.lines = append(w.lines, "")
			default:
				w.add(in, line)
			}
		}
	}
}
