// Package render turns gpuctl's views into text for a terminal: tables, diffs
// and findings. It is the only package that imports lipgloss, a diff library and
// kubectl's printers.
// Without colour its output is plain text.
package render

import (
	"io"
	"regexp"

	"github.com/charmbracelet/lipgloss"
	"github.com/muesli/termenv"

	"github.com/gpuctl/gpuctl/internal/diagnose"
)

// Printer writes views to one stream.
type Printer struct {
	w       io.Writer
	width   int // 0: text is not broken
	program string
	glyphs  glyphs
	styles  styles
}

// Look is what a stream can show.
type Look struct {
	Colour  bool
	Symbols bool   // beyond ASCII
	Width   int    // columns, 0 for a stream without any
	Program string // what gpuctl was started as, where that is not gpuctl
}

type styles struct {
	good, warn, bad, dim, bold, plain lipgloss.Style
}

// New returns a printer on w.
func New(w io.Writer, look Look) *Printer {
	r := lipgloss.NewRenderer(w)
	r.SetColorProfile(termenv.Ascii)
	if look.Colour {
		r.SetColorProfile(termenv.ANSI)
	}
	base := r.NewStyle().TabWidth(lipgloss.NoTabConversion)
	fg := func(c string) lipgloss.Style { return base.Foreground(lipgloss.Color(c)) }
	g := plainGlyphs()
	if look.Symbols {
		g = terminalGlyphs()
	}
	return &Printer{w: w, width: look.Width, program: look.Program, glyphs: g, styles: styles{
		good: fg("2"), warn: fg("3"), bad: fg("1"), dim: base.Faint(true), bold: base.Bold(true), plain: base,
	}}
}

// severity returns the style of a severity.
func (p *Printer) severity(s diagnose.Severity) lipgloss.Style {
	switch s {
	case diagnose.Error:
		return p.styles.bad
	case diagnose.Warning:
		return p.styles.warn
	default:
		return p.styles.dim
	}
}

// ownCommand matches gpuctl's commands in a text.
var ownCommand = regexp.MustCompile(`\bgpuctl (agent|classes|devices|diagnose|discover|explain|install|simulate|status|uninstall|upgrade|wire)\b`)

// command returns a text whose commands are those of the program as it was started.
func (p *Printer) command(text string) string {
	if p.program == "" {
		return text
	}
	return ownCommand.ReplaceAllString(text, p.program+" $1")
}
