package render

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/charmbracelet/lipgloss"

	"github.com/gpuctl/gpuctl/internal/diagnose"
)

// Status prints a cluster at a glance. Ages count to now. All rows are shown when
// wide; else nodes that are alike are summed up where there are many.
func (p *Printer) Status(o *diagnose.Overview, now time.Time, wide bool) error {
	s := statusPrinter{Printer: p, o: o, now: now, wide: wide, told: map[diagnose.Finding]bool{}}
	s.head()
	s.nodes()
	if wide {
		s.resources()
	}
	s.waiting()
	s.findings()
	s.end()
	return s.err
}

// ShortStatus prints a cluster in one line.
func (p *Printer) ShortStatus(o *diagnose.Overview) error {
	t := o.Totals
	_, err := fmt.Fprintf(p.w, "%d GPUs: %d free, %d used, %d unusable, %d unknown; %d waiting; %s\n",
		t.GPUs.Total(), t.GPUs.Free, t.GPUs.Used, t.GPUs.Unusable, t.GPUs.Unknown, len(o.Waiting), tally(t))
	return err
}

type statusPrinter struct {
	*Printer
	o    *diagnose.Overview
	now  time.Time
	wide bool
	told map[diagnose.Finding]bool // findings that are on the screen already
	err  error
}

func (s *statusPrinter) line(text string) {
	if s.err == nil {
		if s.width > 0 {
			text = s.cut(text, s.width)
		}
		_, s.err = fmt.Fprintln(s.w, strings.TrimRight(text, " "))
	}
}

// mark returns the sign for good or bad, coloured.
func (s *statusPrinter) mark(good bool) string {
	if good {
		return s.styles.good.Render(s.glyphs.good)
	}
	return s.styles.bad.Render(s.glyphs.bad)
}

func (s *statusPrinter) label(text string) string {
	return s.styles.bold.Render(fmt.Sprintf("%-10s", text)) + " "
}

func (s *statusPrinter) head() {
	s.line(s.label("KubeVirt") + s.kubevirt())
	s.line(s.label("Hook") + s.hook())
	s.controller()
	s.agents()
	s.orders()
}

// orders prints how many devices there are, where any is ordered, and which are lost.
func (s *statusPrinter) orders() {
	o := s.o.Orders
	if o == nil {
		return
	}
	parts := []string{fmt.Sprintf("%d held", o.Held), fmt.Sprintf("%d in use", o.Attached)}
	if o.Pending > 0 {
		parts = append(parts, s.styles.warn.Render(fmt.Sprintf("%d pending", o.Pending)))
	}
	if len(o.Lost) > 0 {
		parts = append(parts, s.styles.bad.Render(fmt.Sprintf("%d lost", len(o.Lost)))+": "+strings.Join(o.Lost, ", "))
	}
	s.line(s.label("Orders") + strings.Join(parts, "   "))
}

func (s *statusPrinter) kubevirt() string {
	k := s.o.KubeVirt
	if k == nil {
		return s.styles.warn.Render("not found")
	}
	object := k.Object
	if kind, name, ok := strings.Cut(object, " "); ok && kind == "KubeVirt" {
		object = name
	}
	table := fmt.Sprintf("table %d of %d wired", k.Wired, k.Served)
	switch {
	case !k.Table:
		table = s.styles.warn.Render("no table")
	case k.Wired < k.Served:
		table = s.styles.bad.Render(table)
	case k.Served == 0:
		table = "table set, nothing served"
	}
	return strings.TrimSpace(object+" "+k.Version) + "    gate " + s.mark(k.Gate) + "   " + table
}

func (s *statusPrinter) hook() string {
	h := s.o.Hook
	if h == nil {
		return s.styles.dim.Render("no run on record (Events last an hour)")
	}
	who := "gpuctl wire"
	if h.Release != "" {
		who = fmt.Sprintf("release %s, revision %s", h.Release, h.Revision)
	}
	style := s.styles.plain
	if h.Result != "Wired" && h.Result != "WiringChecked" && h.Result != "Unwired" {
		style = s.styles.warn
	}
	return fmt.Sprintf("%s, %s ago (%s)", style.Render(said(h)), age(s.now.Sub(h.At)), who)
}

// said puts a hook's result into words.
func said(h *diagnose.HookView) string {
	switch h.Result {
	case "Wired":
		return fmt.Sprintf("wired, %s", plural(h.Changes, "change"))
	case "WiringChecked":
		return "checked, nothing to change"
	case "Unwired":
		return fmt.Sprintf("unwired, %s", plural(h.Changes, "change"))
	case "WiringHeldBack":
		return "held back by the first entry"
	case "WiringRefused":
		return "refused"
	case "WiringTimedOut":
		return "ran out of time"
	default:
		return "failed"
	}
}

func (s *statusPrinter) agents() {
	a := s.o.Agents
	switch {
	case !a.Known:
		s.line(s.label("Agents") + s.styles.dim.Render("not known"))
		return
	case a.Total == 0:
		s.line(s.label("Agents") + s.styles.dim.Render("none installed"))
		return
	}
	text := fmt.Sprintf("%d of %d reporting", a.Reporting, a.Total)
	if len(a.Silent) > 0 {
		quiet := a.Silent[0]
		more := quiet.Node + " never reported"
		if quiet.Seconds > 0 {
			more = quiet.Node + " silent for " + age(time.Duration(quiet.Seconds)*time.Second)
		}
		if n := len(a.Silent) - 1; n > 0 {
			more += fmt.Sprintf(" and %d more", n)
		}
		text += "   " + s.styles.warn.Render(more) + "   " + s.styles.dim.Render("GPU0105")
	}
	s.line(s.label("Agents") + text)
}

// age returns a duration as kubectl shows it: "4m", "3h12m", "2d".
func age(d time.Duration) string {
	switch d = max(d, 0); {
	case d < time.Minute:
		return strconv.Itoa(int(d.Seconds())) + "s"
	case d < time.Hour:
		return strconv.Itoa(int(d.Minutes())) + "m"
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%dm", int(d.Hours()), int(d.Minutes())%60)
	default:
		return strconv.Itoa(int(d.Hours()/24)) + "d"
	}
}

// plural returns "1 change" or "2 changes".
func plural(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}

// tally returns "1 error, 2 warnings".
func tally(t diagnose.Totals) string {
	var out []string
	for _, c := range []struct {
		n    int
		word string
	}{{t.Errors, "error"}, {t.Warnings, "warning"}} {
		if c.n > 0 {
			out = append(out, plural(c.n, c.word))
		}
	}
	if len(out) == 0 {
		return "nothing wrong"
	}
	return strings.Join(out, ", ")
}

func (s *statusPrinter) waiting() {
	if len(s.o.Waiting) == 0 {
		return
	}
	s.line("")
	for i, w := range s.o.Waiting {
		label := ""
		switch {
		case i == 0:
			label = "Waiting"
		case i == manyWaiting && !s.wide:
			s.line(s.label("") + s.styles.dim.Render(fmt.Sprintf("and %d more", len(s.o.Waiting)-i)))
			return
		}
		since := ""
		if !w.Since.IsZero() {
			since = "  " + age(s.now.Sub(w.Since))
		}
		why := strings.TrimPrefix(strings.TrimPrefix(w.Why, "VirtualMachine "+w.Namespace+"/"+w.Name+" "), "VirtualMachineInstance "+w.Namespace+"/"+w.Name+" ")
		head := s.label(label) + w.Namespace + "/" + w.Name + since + "  "
		tail := "  " + s.styles.dim.Render(string(w.Code))
		if s.width > 0 {
			why = s.cut(why, s.width-lipgloss.Width(head)-lipgloss.Width(tail))
		}
		s.line(head + why + tail)
	}
}

// manyWaiting and manyFindings are how many of each one screen shows.
const (
	manyWaiting  = 5
	manyFindings = 5
)

// findings prints what is wrong and is not on a row above already.
func (s *statusPrinter) findings() {
	shown := map[diagnose.Code]bool{"GPU0105": true}
	for _, n := range s.o.Nodes {
		shown[n.Code] = true
	}
	for _, w := range s.o.Waiting {
		shown[w.Code] = true
	}
	var rest []diagnose.Finding
	for _, f := range s.o.Findings {
		if f.Severity.Level() >= diagnose.Warning.Level() && !shown[f.Code] && !s.told[f] {
			rest = append(rest, f)
		}
	}
	if len(rest) == 0 {
		return
	}
	s.line("")
	for i, f := range rest {
		if i == manyFindings && !s.wide {
			s.line(s.label("") + s.styles.dim.Render(s.command(fmt.Sprintf("and %d more: gpuctl diagnose", len(rest)-i))))
			return
		}
		style := s.severity(f.Severity)
		label := s.label(style.Render(fmt.Sprintf("%-10s", title(f.Severity))))
		tail := "  " + s.styles.dim.Render(string(f.Code))
		text := subject(f) + f.Message
		if s.width > 0 {
			text = s.cut(text, s.width-lipgloss.Width(label)-lipgloss.Width(tail))
		}
		s.line(label + text + tail)
	}
}

func title(s diagnose.Severity) string { return strings.ToUpper(string(s[:1])) + string(s[1:]) }

func (s *statusPrinter) end() {
	s.line("")
	text := tally(s.o.Totals)
	style := s.styles.good
	switch {
	case s.o.Totals.Errors > 0:
		style = s.styles.bad
	case s.o.Totals.Warnings > 0:
		style = s.styles.warn
	}
	text = style.Render(text)
	if s.o.Next != "" {
		text += "   next: " + s.styles.bold.Render(s.command(s.o.Next))
	}
	s.line(text)
}
