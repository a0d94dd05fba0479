package render

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/charmbracelet/lipgloss"

	"github.com/gpuctl/gpuctl/internal/diagnose"
)

func (s *statusPrinter) resources() {
	if len(s.o.Resources) == 0 {
		return
	}
	s.line("")
	var rows [][]Cell
	for _, r := range s.o.Resources {
		permitted := Cell{Text: "yes", Tone: Good}
		if !r.Permitted {
			permitted = Cell{Text: "no", Tone: Bad}
		}
		rows = append(rows, []Cell{
			{Text: string(r.Name)},
			permitted,
			{Text: strconv.Itoa(r.Nodes)},
			number(r.Free), number(r.Used), number(r.Unusable), number(r.Unknown),
		})
	}
	if s.err == nil {
		s.err = s.Table([]string{"RESOURCE", "PERMITTED", "NODES", "FREE", "USED", "UNUSABLE", "UNKNOWN"}, rows)
	}
}

func number(n int64) Cell { return Cell{Text: strconv.FormatInt(n, 10), Right: true} }

// summed are rows that are alike but for their nodes.
type summed struct {
	row   diagnose.NodeView
	nodes int
}

// manyNodes is how many rows one screen shows; nodes without a note are summed up
// beyond that.
const manyNodes = 20

// rows returns what the table of nodes shows: rows with a note first where not all
// fit.
func (s *statusPrinter) rows() []summed {
	var out []summed
	if s.wide || len(s.o.Nodes) <= manyNodes {
		for _, n := range s.o.Nodes {
			out = append(out, summed{n, 1})
		}
		return out
	}
	for _, n := range s.o.Nodes {
		same := func(r summed) bool {
			return r.row.Resource == n.Resource && r.row.Code == n.Code && r.row.Note == n.Note
		}
		if n.Note != "" && len(out) < manyNodes {
			out = append(out, summed{n, 1})
			continue
		}
		i := slices.IndexFunc(out, func(r summed) bool { return same(r) && r.nodes > 1 || same(r) && r.row.Note == "" })
		if i < 0 {
			out = append(out, summed{n, 1})
			continue
		}
		r := &out[i]
		r.nodes++
		r.row.Free += n.Free
		r.row.Used += n.Used
		r.row.Unusable += n.Unusable
		r.row.Unknown += n.Unknown
	}
	return out
}

func (s *statusPrinter) nodes() {
	rows := s.rows()
	if len(rows) == 0 {
		s.line("")
		s.line(s.styles.dim.Render("no node has, or is meant to have, a GPU"))
		return
	}
	s.line("")
	var cells [][]Cell
	for _, r := range rows {
		node := r.row.Node
		if r.nodes > 1 {
			node = fmt.Sprintf("%d nodes", r.nodes)
		}
		row := []Cell{
			{Text: node},
			{Text: s.picture(r.row.Tally), Raw: true},
			{Text: string(r.row.Resource)},
			number(r.row.Free),
			number(r.row.Used),
		}
		if s.wide {
			row = append(row, Cell{Text: strings.Join(r.row.Users, ", ")})
		}
		cells = append(cells, append(row, Cell{Text: note(&r.row), Tone: Warn}))
	}
	header := []string{"NODE", "GPUS", "RESOURCE", "FREE", "USED", "NOTE"}
	if s.wide {
		header = slices.Insert(header, 5, "BY")
	}
	if s.err == nil {
		s.err = s.Table(header, cells)
	}
}

func note(n *diagnose.NodeView) string {
	return strings.TrimSpace(n.Note + "  " + string(n.Code))
}

// widest is how many GPUs a picture shows one by one.
const widest = 16

// picture shows one glyph a GPU: those in use first.
func (s *statusPrinter) picture(t diagnose.Tally) string {
	if t.Total() > widest {
		return fmt.Sprintf("%d of %d", t.Used, t.Total())
	}
	part := func(style lipgloss.Style, glyph string, n int64) string {
		if n == 0 {
			return ""
		}
		return style.Render(strings.Repeat(glyph, int(n)))
	}
	return part(s.styles.plain, s.glyphs.used, t.Used) + part(s.styles.good, s.glyphs.free, t.Free) +
		part(s.styles.bad, s.glyphs.unusable, t.Unusable) + part(s.styles.dim, s.glyphs.unsure, t.Unknown)
}
