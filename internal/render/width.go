package render

import (
	"fmt"
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// glyphs are the symbols of one stream: of a terminal, or plain ones for a pipe.
type glyphs struct {
	good, bad, beyond, unknown   string // links of a chain
	free, used, unusable, unsure string // one GPU each
	more                         string // behind a text that was cut
}

func terminalGlyphs() glyphs {
	return glyphs{good: "✔", bad: "✘", beyond: "·", unknown: "?", free: "□", used: "■", unusable: "✘", unsure: "?", more: "…"}
}

func plainGlyphs() glyphs {
	return glyphs{good: "ok", bad: "XX", beyond: "--", unknown: "??", free: ".", used: "#", unusable: "x", unsure: "?", more: "..."}
}

// narrowest is the width below which text is no longer broken: a column of single
// words helps nobody.
const narrowest = 24

// wrapped prints a text behind a head, broken at blanks to the width of the
// terminal, further lines indented. A pipe gets one line.
func (p *Printer) wrapped(head, text string, indent int) error {
	if room := p.width - indent; p.width > 0 && room >= narrowest {
		text = strings.ReplaceAll(Wrap(text, room), "\n", "\n"+strings.Repeat(" ", indent))
	}
	_, err := fmt.Fprintln(p.w, strings.TrimRight(head+text, " "))
	return err
}

// Wrap breaks a text at blanks so that lines stay within width where they can: names
// are not broken at their hyphens. Colours take no room.
func Wrap(text string, width int) string {
	var out strings.Builder
	column := 0
	for i, word := range strings.Fields(text) {
		switch n := ansi.StringWidth(word); {
		case i == 0:
		case column+1+n > width:
			out.WriteByte('\n')
			column = 0
		default:
			out.WriteByte(' ')
			column++
		}
		out.WriteString(word)
		column += ansi.StringWidth(word)
	}
	return out.String()
}

// cut shortens a text to a width.
func (p *Printer) cut(text string, width int) string {
	return ansi.Truncate(text, max(width, 1), p.glyphs.more)
}
