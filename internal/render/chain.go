package render

import (
	"fmt"
	"strings"

	"github.com/gpuctl/gpuctl/internal/diagnose"
)

// Chain prints the way of the GPUs into one VM, or on one node, link by link.
func (p *Printer) Chain(c *diagnose.Chain) error {
	if _, err := fmt.Fprintln(p.w, p.styles.bold.Render(c.Subject)); err != nil {
		return err
	}
	for i := 0; i < len(c.Steps); {
		step, run := c.Steps[i], 1
		for i+run < len(c.Steps) && mute(&step) && c.Steps[i+run].State == step.State && mute(&c.Steps[i+run]) {
			run++
		}
		step.Text = strings.TrimPrefix(step.Text, c.Subject+" ")
		if err := p.step(&step, c.Steps[i:i+run]); err != nil {
			return err
		}
		i += run
	}
	return nil
}

// mute reports a link of which there is nothing to say: those stand on one line.
func mute(s *diagnose.Step) bool {
	return s.Text == "" && (s.State == diagnose.Unknown || s.State == diagnose.Beyond)
}

// step prints one link, or a run of those of which there is nothing to say.
func (p *Printer) step(s *diagnose.Step, run []diagnose.Step) error {
	style, mark, text := p.styles.dim, p.glyphs.beyond, s.Text
	if len(run) > 1 {
		return p.silent(run)
	}
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
	if err := p.wrapped(head+" ", text, chainIndent); err != nil || s.State != diagnose.Broken || s.Finding.Hint == "" {
		return err
	}
	return p.wrapped(strings.Repeat(" ", chainIndent), p.styles.dim.Render(p.command(s.Finding.Hint)), chainIndent)
}

func (p *Printer) silent(run []diagnose.Step) error {
	var links []string
	for _, s := range run {
		links = append(links, string(s.Link))
	}
	mark, what := p.glyphs.beyond, "not reached: "
	if run[0].State == diagnose.Unknown {
		mark, what = p.glyphs.unknown, "not known: "
	}
	return p.wrapped("  "+p.styles.dim.Render(mark)+" ", p.styles.dim.Render(what+strings.Join(links, ", ")), 4)
}

// chainIndent is where the text of a link starts.
const chainIndent = 16
