package render

import (
	"fmt"

	"github.com/gpuctl/gpuctl/internal/diagnose"
)

// Chain prints the way of the GPUs into one VM, or on one node, link by link.
func (p *Printer) Chain(c *diagnose.Chain) error {
	if _, err := fmt.Fprintln(p.w, p.styles.bold.Render(c.Subject)); err != nil {
		return err
	}
	for i := range c.Steps {
		if err := p.step(&c.Steps[i]); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(p.w)
	return err
}

func (p *Printer) step(s *diagnose.Step) error {
	style, mark, text := p.styles.dim, p.glyphs.beyond, s.Text
	switch s.State {
	case diagnose.Passed:
		style, mark = p.styles.good, p.glyphs.good
	case diagnose.Broken:
		style, mark = p.severity(s.Finding.Severity), p.glyphs.bad
		text = string(s.Finding.Code)
	case diagnose.Unknown:
		mark, text = p.glyphs.unknown, "not known"
	case diagnose.Beyond:
		text = "not reached"
	}
	head := fmt.Sprintf("  %s %-11s", style.Render(mark), s.Link)
	if s.State == diagnose.Broken {
		text = style.Render(text) + "  " + s.Text
	}
	return p.wrapped(head+" ", text, 16)
}
