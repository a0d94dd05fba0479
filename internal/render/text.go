package render

import (
	"fmt"
	"strings"

	"github.com/aymanbagabas/go-udiff"
	"github.com/charmbracelet/lipgloss"

	"github.com/gpuctl/gpuctl/internal/diagnose"
)

// Findings prints findings one below the other: severity, code, object and
// message on one line, the hint on the next.
func (p *Printer) Findings(findings []diagnose.Finding) error {
	for _, f := range findings {
		if err := p.finding(&f); err != nil {
			return err
		}
	}
	return nil
}

// ExplainedFindings prints findings with what the catalogue has to say about them.
func (p *Printer) ExplainedFindings(findings []diagnose.Finding) error {
	for _, f := range findings {
		if err := p.finding(&f); err != nil {
			return err
		}
		entry, _ := diagnose.Lookup(string(f.Code))
		for _, text := range []string{entry.About, entry.Anchor()} {
			if err := p.wrapped(strings.Repeat(" ", findingIndent), p.styles.dim.Render(text), findingIndent); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *Printer) finding(f *diagnose.Finding) error {
	head := p.severity(f.Severity).Render(fmt.Sprintf("%-7s %s", f.Severity, f.Code))
	if err := p.wrapped(head+"  ", subject(*f)+f.Message, findingIndent); err != nil || f.Hint == "" {
		return err
	}
	return p.wrapped(strings.Repeat(" ", findingIndent), p.styles.dim.Render(p.command(f.Hint)), findingIndent)
}

// findingIndent is where the message of a finding starts.
const findingIndent = 17

// ShortFindings prints a line for each finding, without its hint.
func (p *Printer) ShortFindings(findings []diagnose.Finding) error {
	for _, f := range findings {
		if _, err := fmt.Fprintf(p.w, "%s %s %s%s\n", f.Severity, f.Code, subject(f), f.Message); err != nil {
			return err
		}
	}
	return nil
}

// subject returns the object as the start of a line, "" when the message names it
// anyway.
func subject(f diagnose.Finding) string {
	if strings.Contains(f.Message, strings.TrimPrefix(f.Object, "node/")) {
		return ""
	}
	return f.Object + ": "
}

// Note prints one line of commentary.
func (p *Printer) Note(format string, args ...any) error {
	_, err := fmt.Fprintf(p.w, format+"\n", args...)
	return err
}

// Change prints what a plan adds or removes, and why.
func (p *Printer) Change(add bool, what, why string) error {
	style, sign := p.styles.bad, "- "
	if add {
		style, sign = p.styles.good, "+ "
	}
	_, err := fmt.Fprintf(p.w, "  %s  %s\n", style.Render(sign+what), p.styles.dim.Render(why))
	return err
}

// Diff prints a unified diff of two texts under their labels; nothing when they
// are equal.
func (p *Printer) Diff(oldLabel, newLabel, before, after string) error {
	diff := udiff.Unified(oldLabel, newLabel, before, after)
	for line := range strings.Lines(diff) {
		text := strings.TrimSuffix(line, "\n")
		if _, err := fmt.Fprintln(p.w, p.diffStyle(text).Render(text)); err != nil {
			return err
		}
	}
	return nil
}

func (p *Printer) diffStyle(line string) lipgloss.Style {
	switch {
	case strings.HasPrefix(line, "+++"), strings.HasPrefix(line, "---"):
		return p.styles.bold
	case strings.HasPrefix(line, "+"):
		return p.styles.good
	case strings.HasPrefix(line, "-"):
		return p.styles.bad
	case strings.HasPrefix(line, "@@"):
		return p.styles.dim
	default:
		return p.styles.plain
	}
}
