package render

import (
	"fmt"
	"strings"

	"github.com/charmbracelet/lipgloss"
)

// Cell is one cell of a table, with the severity that colours it: "" for none,
// "good" for the green of a thing that works.
type Cell struct {
	Text string
	Tone Tone
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
// column is not padded.
func (p *Printer) Table(header []string, rows [][]Cell) error {
	widths := make([]int, len(header))
	for i, h := range header {
		widths[i] = lipgloss.Width(h)
	}
	for _, row := range rows {
		for i, c := range row {
			widths[i] = max(widths[i], lipgloss.Width(c.Text))
		}
	}
	head := make([]Cell, len(header))
	for i, h := range header {
		head[i] = Cell{Text: h, Tone: Dim}
	}
	for _, row := range append([][]Cell{head}, rows...) {
		if err := p.row(row, widths); err != nil {
			return err
		}
	}
	return nil
}

func (p *Printer) row(row []Cell, widths []int) error {
	var line strings.Builder
	for i, c := range row {
		line.WriteString(p.tone(c.Tone).Render(c.Text))
		if i < len(row)-1 {
			line.WriteString(strings.Repeat(" ", widths[i]-lipgloss.Width(c.Text)+2))
		}
	}
	_, err := fmt.Fprintln(p.w, strings.TrimRight(line.String(), " "))
	return err
}

func (p *Printer) tone(t Tone) lipgloss.Style {
	return map[Tone]lipgloss.Style{
		Plain: p.styles.plain, Good: p.styles.good, Warn: p.styles.warn, Bad: p.styles.bad, Dim: p.styles.dim,
	}[t]
}
