package render

import (
	"fmt"
	"strings"

	"github.com/charmbracelet/lipgloss"
)

// Cell is one cell of a table, with the severity that colours it: "" for none,
// "good" for the green of a thing that works.
type Cell struct {
	Text  string
	Tone  Tone
	Right bool // a number: it stands at the right of its column
	Raw   bool // Text has its colours already
}

// Tone colours a cell.
type Tone int

// The tones.
const (
	Plain Tone = iota
	Good
	Warn
	Bad
	Dim
)

// Text makes plain cells of texts.
func Text(texts ...string) []Cell {
	out := make([]Cell, len(texts))
	for i, t := range texts {
		out[i] = Cell{Text: t}
	}
	return out
}

// Table prints rows below a header in aligned columns, two blanks apart. The last
// column is not padded. On a terminal too narrow for it, the last column stands on a
// line of its own below.
func (p *Printer) Table(header []string, rows [][]Cell) error {
	widths := make([]int, len(header))
	head := make([]Cell, len(header))
	for i, h := range header {
		widths[i] = lipgloss.Width(h)
		head[i] = Cell{Text: h, Tone: Dim}
	}
	for _, row := range rows {
		for i, c := range row {
			widths[i] = max(widths[i], lipgloss.Width(c.Text))
			head[i].Right = head[i].Right || c.Right
		}
	}
	for _, row := range append([][]Cell{head}, rows...) {
		if err := p.row(row, widths); err != nil {
			return err
		}
	}
	return nil
}

// below is how far the last column is indented on a line of its own.
const below = 4

func (p *Printer) row(row []Cell, widths []int) error {
	var line strings.Builder
	column := 0
	for i, c := range row {
		last := i == len(row)-1
		if room := p.width - column; last && p.width > 0 && lipgloss.Width(c.Text) > room && column > below {
			if _, err := fmt.Fprintln(p.w, strings.TrimRight(line.String(), " ")); err != nil {
				return err
			}
			return p.wrapped(strings.Repeat(" ", below), p.tone(c.Tone).Render(c.Text), below)
		}
		text := c.Text
		if !c.Raw && text != "" {
			text = p.tone(c.Tone).Render(text)
		}
		pad := strings.Repeat(" ", widths[i]-lipgloss.Width(c.Text))
		switch {
		case c.Right:
			text = pad + text
		case !last:
			text += pad
		}
		line.WriteString(text)
		if !last {
			line.WriteString("  ")
		}
		column += widths[i] + 2
	}
	_, err := fmt.Fprintln(p.w, strings.TrimRight(line.String(), " "))
	return err
}

func (p *Printer) tone(t Tone) lipgloss.Style {
	return map[Tone]lipgloss.Style{
		Plain: p.styles.plain, Good: p.styles.good, Warn: p.styles.warn, Bad: p.styles.bad, Dim: p.styles.dim,
	}[t]
}
