package cli

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/gpuctl/gpuctl/internal/books"
	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/internal/render"
)

// fitView is what simulate order and simulate vm print as JSON and YAML.
type fitView struct {
	Subject  string            `json:"subject"`
	Fits     bool              `json:"fits"`
	Asked    int               `json:"asked"`
	Placed   []placedView      `json:"placed"`            // one for each that fits
	Runs     string            `json:"runsOn,omitempty"`  // where a VM runs now
	Drained  []string          `json:"drained,omitempty"` // as if
	Moved    []shiftView       `json:"moved,omitempty"`   // devices, by the drain
	Machines []machineView     `json:"vms,omitempty"`     // that ended by the drain
	Ahead    []shiftView       `json:"ahead,omitempty"`   // orders that wait and go first
	Budgets  []budgetView      `json:"budgets,omitempty"` // from the tenant up, of the last
	Nodes    []nodeFitView     `json:"nodes,omitempty"`   // of the last
	Refusal  *diagnose.Finding `json:"refusal,omitempty"` // of the first that does not fit
	Notes    []string          `json:"notes,omitempty"`   // what is not judged
}

type placedView struct {
	Node  string      `json:"node"`
	Moves []shiftView `json:"moves,omitempty"` // that are made first
}

// shiftView is a device that changes its node.
type shiftView struct {
	Device string `json:"device"` // namespace/name
	Class  string `json:"class"`
	Units  int64  `json:"units"`
	From   string `json:"from,omitempty"` // "" for an order that waited
	To     string `json:"to,omitempty"`   // "" for one that is lost
}

type budgetView struct {
	Level string `json:"level"`
	Key   string `json:"key"`
	Limit int64  `json:"limit"`
	Used  int64  `json:"used"`
	Asked int64  `json:"asked"`
}

type nodeFitView struct {
	Node  string      `json:"node"`
	Fits  bool        `json:"fits"` // as things are
	Units []unitsView `json:"units"`
	Why   string      `json:"why,omitempty"`
}

type unitsView struct {
	Resource string `json:"resource"`
	Free     int64  `json:"free"`
	Served   int64  `json:"served"`
}

// machineView is a VM of a drained node, or one that could not start any more.
type machineView struct {
	Name    string            `json:"vm"`             // namespace/name
	From    string            `json:"from,omitempty"` // "" for one that does not run
	To      string            `json:"to,omitempty"`   // "" for one that does not start any more
	Why     string            `json:"why,omitempty"`
	Refusal *diagnose.Finding `json:"refusal,omitempty"`
}

func (v *machineView) is(fit *books.Fit) {
	v.To = fit.Node
	if fit.Refusal != nil {
		v.Why, v.Refusal = string(fit.Refusal.Code), &fit.Refusal.Finding
	}
}

func shiftViews(all []books.Shift) (out []shiftView) {
	for _, s := range all {
		out = append(out, shiftView{Device: s.Namespace + "/" + s.Name, Class: s.Class, Units: s.Units, From: s.From, To: s.To})
	}
	return out
}

// take adds what became of one of those that are asked for.
func (v *fitView) take(fit *books.Fit) {
	v.Budgets, v.Nodes = nil, nil
	for _, b := range fit.Budgets {
		v.Budgets = append(v.Budgets, budgetView{Level: b.Level, Key: b.Key.String(), Limit: b.Limit, Used: b.Use, Asked: b.Ask})
	}
	for _, n := range fit.Nodes {
		view := nodeFitView{Node: n.Node, Fits: n.Why == "", Why: n.Why}
		for _, u := range n.Units {
			view.Units = append(view.Units, unitsView{Resource: string(u.Resource), Free: u.Free, Served: u.Served})
		}
		v.Nodes = append(v.Nodes, view)
	}
	if fit.Refusal != nil {
		v.Refusal = &fit.Refusal.Finding
		return
	}
	v.Placed = append(v.Placed, placedView{Node: fit.Node, Moves: shiftViews(fit.Moves)})
}

func (v *fitView) print(s *streams, out *output) error {
	v.Fits = len(v.Placed) == v.Asked
	v.Placed = append([]placedView{}, v.Placed...)
	done, err := out.structured(s, v)
	if !done {
		err = v.text(s, out.is("wide"))
	}
	if err == nil && !v.Fits {
		err = unfitError{errors.New("it does not fit")}
	}
	return err
}

func (v *fitView) text(s *streams, wide bool) error {
	p := s.printer()
	lines := v.verdict()
	if v.Runs != "" {
		lines = append(lines, "  now     it runs on "+v.Runs+": this is as if it were started anew")
	}
	for _, d := range v.Moved {
		lines = append(lines, "  drain   "+d.String())
	}
	for _, m := range v.Machines {
		lines = append(lines, "  drain   "+m.String())
	}
	for _, a := range v.Ahead {
		lines = append(lines, fmt.Sprintf("  before  %s, which waits, gets %d x %s on %s", a.Device, a.Units, a.Class, a.To))
	}
	for _, placed := range v.Placed {
		for _, m := range placed.Moves {
			lines = append(lines, "  first   "+m.String())
		}
	}
	for _, b := range v.Budgets {
		lines = append(lines, fmt.Sprintf("  budget  %s %s: limit %d, in use %d, asked for %d", b.Level, b.Key, b.Limit, b.Used, b.Asked))
	}
	for _, note := range v.Notes {
		lines = append(lines, "  note    "+note)
	}
	for _, line := range lines {
		if err := p.Note("%s", line); err != nil {
			return err
		}
	}
	if wide && len(v.Nodes) > 0 {
		if err := p.Table([]string{"NODE", "FREE", "WHY NOT"}, nodeRows(v.Nodes)); err != nil {
			return err
		}
	}
	if v.Refusal == nil {
		return nil
	}
	return p.Findings([]diagnose.Finding{*v.Refusal})
}

// verdict is the first line, and who fits where if there are several.
func (v *fitView) verdict() []string {
	as := ""
	if len(v.Drained) > 0 {
		as = " without " + strings.Join(v.Drained, ", ")
	}
	switch {
	case v.Asked > 1:
		lines := []string{fmt.Sprintf("%d of %d fit%s: %s", len(v.Placed), v.Asked, as, v.Subject)}
		counted := map[string]int{}
		for _, p := range v.Placed {
			counted[p.Node]++
		}
		for _, p := range v.Placed {
			if n := counted[p.Node]; n > 0 {
				lines = append(lines, fmt.Sprintf("  on      %s: %d", p.Node, n))
				delete(counted, p.Node)
			}
		}
		return lines
	case v.Refusal != nil:
		return []string{"does not fit" + as + ": " + v.Subject}
	}
	return []string{fmt.Sprintf("fits%s: %s", as, v.Subject), "  on      " + cmp.Or(v.Placed[0].Node, "any node")}
}

func nodeRows(nodes []nodeFitView) (rows [][]render.Cell) {
	for _, n := range nodes {
		free := make([]string, len(n.Units))
		for i, u := range n.Units {
			free[i] = fmt.Sprintf("%d of %d %s", u.Free, u.Served, u.Resource)
		}
		row := render.Text(n.Node, strings.Join(free, ", "), cmp.Or(n.Why, "-"))
		if row[2].Tone = render.Warn; n.Fits {
			row[2].Tone = render.Good
		}
		rows = append(rows, row)
	}
	return rows
}

// String says what becomes of a device.
func (d shiftView) String() string {
	if d.To == "" {
		return fmt.Sprintf("%s loses its %d x %s on %s", d.Device, d.Units, d.Class, d.From)
	}
	return fmt.Sprintf("%s (%d x %s) moves from %s to %s", d.Device, d.Units, d.Class, d.From, d.To)
}

// String says what becomes of a VM.
func (v machineView) String() string {
	if v.To == "" {
		return fmt.Sprintf("VM %s stops on %s and does not start again: %s", v.Name, v.From, v.Why)
	}
	return fmt.Sprintf("VM %s stops on %s and starts on %s", v.Name, v.From, v.To)
}

// drainView is what simulate drain prints as JSON and YAML.
type drainView struct {
	Drained []string      `json:"drained"`
	Fits    bool          `json:"fits"` // all have a place
	Devices []shiftView   `json:"devices"`
	VMs     []machineView `json:"vms"`
	Notes   []string      `json:"notes,omitempty"`
}

func (v *drainView) print(s *streams, out *output) error {
	v.Fits = true
	for _, d := range v.Devices {
		v.Fits = v.Fits && d.To != ""
	}
	for _, m := range v.VMs {
		v.Fits = v.Fits && m.To != ""
	}
	done, err := out.structured(s, v)
	if !done {
		err = v.text(s)
	}
	if err == nil && !v.Fits {
		err = unfitError{errors.New("not all have a place")}
	}
	return err
}

func (v *drainView) text(s *streams) error {
	p := s.printer()
	if len(v.Devices)+len(v.VMs) == 0 {
		return p.Note("nothing has to leave %s", strings.Join(v.Drained, ", "))
	}
	var refused []diagnose.Finding
	var devices, machines [][]render.Cell
	for _, d := range v.Devices {
		row := render.Text(d.Device, d.Class, fmt.Sprint(d.Units), d.From, cmp.Or(d.To, "lost"))
		row[2].Right, row[4].Tone = true, placeTone(d.To)
		devices = append(devices, row)
	}
	for _, m := range v.VMs {
		row := render.Text(m.Name, cmp.Or(m.From, "-"), cmp.Or(m.To, "does not start"), cmp.Or(m.Why, "-"))
		row[2].Tone = placeTone(m.To)
		machines = append(machines, row)
		if m.Refusal != nil {
			refused = append(refused, *m.Refusal)
		}
	}
	if len(devices) > 0 {
		if err := p.Table([]string{"DEVICE", "CLASS", "UNITS", "FROM", "TO"}, devices); err != nil {
			return err
		}
	}
	if len(machines) > 0 {
		if err := p.Table([]string{"VM", "FROM", "TO", "WHY"}, machines); err != nil {
			return err
		}
	}
	for _, note := range v.Notes {
		if err := p.Note("note: %s", note); err != nil {
			return err
		}
	}
	return p.Findings(refused)
}

func placeTone(node string) render.Tone {
	if node == "" {
		return render.Bad
	}
	return render.Good
}
