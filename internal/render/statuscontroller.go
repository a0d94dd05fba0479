package render

import (
	"fmt"
	"strings"

	"github.com/charmbracelet/lipgloss"

	"github.com/gpuctl/gpuctl/internal/diagnose"
)

// controller prints whether one runs, who leads, and what it says of the wiring.
func (s *statusPrinter) controller() {
	c := &s.o.Controller
	var parts []string
	switch {
	case c.Deployment != "" && c.Ready == 0:
		parts = append(parts, s.styles.warn.Render(fmt.Sprintf("0 of %d ready", c.Desired)))
	case c.Deployment != "":
		parts = append(parts, fmt.Sprintf("%d of %d ready", c.Ready, c.Desired))
	case c.Known && c.Leader == "":
		parts = append(parts, s.styles.dim.Render("none: the hook wires once"))
	case c.Leader == "":
		parts = append(parts, s.styles.dim.Render("not known"))
	}
	if c.Current && c.Wired != nil {
		parts = append(parts, "wired "+s.mark(c.Wired.Status == "True"))
	}
	idle := s.about("GPU0341", "Deployment "+c.Deployment)
	switch {
	case c.Leader != "":
		parts = append(parts, "led by "+c.Leader)
	case idle != "":
		parts = append(parts, s.styles.warn.Render("nobody leads"))
	}
	if idle != "" {
		parts = append(parts, s.styles.dim.Render(idle))
	}
	s.line(s.label("Controller") + strings.Join(parts, "   "))
	if c.Current {
		s.conditions(c)
	}
	if l := c.Last; l != nil {
		s.line(s.label("") + s.styles.dim.Render(fmt.Sprintf("%s %s ago: %s", l.Reason, age(s.now.Sub(l.At)), l.Summary)))
	}
}

// conditions prints what the controller says is not as it should be.
func (s *statusPrinter) conditions(c *diagnose.ControllerView) {
	if is := c.Wired; is != nil && is.Status != "True" {
		s.quote(is.Reason+": "+is.Message, s.about("GPU0340", ""))
	}
	if is := c.Contested; is != nil && is.Status == "True" {
		s.quote("Contested: "+is.Message, s.about("GPU0333", ""))
	}
}

// quote prints a message and the code of the finding that has it.
func (s *statusPrinter) quote(text, code string) {
	tail := ""
	if code != "" {
		tail = "  " + s.styles.dim.Render(code)
	}
	head := s.label("")
	if s.width > 0 {
		text = s.cut(text, s.width-lipgloss.Width(head)-lipgloss.Width(tail))
	}
	s.line(head + s.styles.warn.Render(text) + tail)
}

// about returns a code when there is such a finding, of an object unless that is "",
// and remembers that it was told.
func (s *statusPrinter) about(code diagnose.Code, object string) string {
	said := ""
	for _, f := range s.o.Findings {
		if f.Code == code && (object == "" || f.Object == object) {
			s.told[f], said = true, string(code)
		}
	}
	return said
}
