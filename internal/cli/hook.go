package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpuctl/gpuctl/internal/cluster"
	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/internal/patch"
	"github.com/gpuctl/gpuctl/internal/render"
)

// hookFlags are what the hook of a release adds to wire.
type hookFlags struct {
	wait, firstNode time.Duration
	event           bool
	terminationLog  string
}

func (f *hookFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.DurationVar(&f.wait, "wait", 0, "wait up to `DURATION` for KubeVirt, for the device plugin of every GPU node, and for the agents")
	flags.DurationVar(&f.firstNode, "first-node", 0, "with --wait: wait up to `DURATION` of it for a first GPU node")
	flags.BoolVar(&f.event, "event", false, "write the summary as an Event on the KubeVirt CR too")
	flags.StringVar(&f.terminationLog, "termination-log", "", "write the summary to `FILE` too, as a pod's termination message")
}

// report is what came out of a run, for those who do not read its output.
type report struct {
	head   string
	target *patch.Target // nil when KubeVirt was not found
	result patch.Result
	nodes  []diagnose.NodeGPUs
}

// maxTermination is how long a termination message can be (kubelet's
// MaxContainerTerminationMessageLength).
const maxTermination = 4096

// settle turns what must not fail a release into findings: without --strict the
// first-entry stop, and whatever keeps an uninstall from taking the wiring away.
func (l *live) settle(out *output, err error) error {
	if err == nil || l.flags.strict {
		return err
	}
	var refusal *patch.Refusal
	switch {
	case errors.As(err, &refusal) && refusal.Only("GPU0319"):
		return l.finish(out, refusal.Findings...)
	case l.flags.remove:
		if refusal != nil {
			return l.finish(out, append(refusal.Findings, removeFailed("see the findings"))...)
		}
		return l.finish(out, removeFailed(err.Error()))
	}
	return err
}

func removeFailed(problem string) diagnose.Finding {
	return diagnose.New("GPU0107", "cluster", diagnose.Values{"problem": problem})
}

// finish ends a run that planned nothing and fails nobody.
func (l *live) finish(out *output, findings ...diagnose.Finding) error {
	l.report.head = "nothing was changed"
	l.report.result = patch.Result{Findings: findings}
	return printFindings(l.s, out, findings)
}

// mirror passes the summary on as an Event and as the termination message. A
// failure to do so is no failure of the run.
func (l *live) mirror(ctx context.Context, err error) {
	text := l.report.text(err)
	if l.flags.event && l.report.target != nil && !l.flags.dryRun {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		on := &l.report.target.Document
		if l.report.target.Managed != nil {
			on = l.report.target.Managed
		}
		l.passOn("written as an Event", l.client.Record(ctx, on, cluster.Event{
			Controller: cluster.WiredBy, Instance: reportedBy(),
			Reason: l.report.reason(err, l.flags.remove), Warning: l.report.bad(err), Note: fit(text, cluster.MaxNote),
		}))
	}
	if l.flags.terminationLog != "" {
		l.passOn("written to "+l.flags.terminationLog, os.WriteFile(l.flags.terminationLog, []byte(fit(text, maxTermination)), 0o600))
	}
}

func (l *live) passOn(what string, err error) {
	if err != nil {
		_ = l.s.commentary().Findings([]diagnose.Finding{diagnose.New("GPU0108", "cluster", diagnose.Values{"what": what, "problem": err.Error()})})
	}
}

// reportedBy names the run, for the Event.
func reportedBy() string {
	if release := os.Getenv("HOOK_RELEASE"); release != "" {
		return release + "/" + os.Getenv("HOOK_REVISION")
	}
	return "gpuctl"
}

// text returns the summary: what was done, what VMs can use, and what to know.
func (r *report) text(err error) string {
	var b strings.Builder
	if release := os.Getenv("HOOK_RELEASE"); release != "" {
		fmt.Fprintf(&b, "release %s revision %s: ", release, os.Getenv("HOOK_REVISION"))
	}
	var refusal *patch.Refusal
	findings := r.result.Findings
	switch {
	case errors.As(err, &refusal):
		b.WriteString("refused\n")
		findings = refusal.Findings
	case err != nil:
		fmt.Fprintf(&b, "failed: %v\n", err)
		if r.head != "" {
			b.WriteString(r.head + "\n")
		}
	default:
		b.WriteString(r.head + "\n")
	}
	for _, n := range r.nodes {
		b.WriteString(nodeLine(n) + "\n")
	}
	for _, f := range diagnose.Sort(findings) {
		fmt.Fprintf(&b, "%s %s: %s\n", f.Severity, f.Code, f.Message)
	}
	return b.String()
}

// nodeLine returns "worker-1: 7 of 8 GPUs usable; GPU has no driver: … (GPU0202)".
func nodeLine(n diagnose.NodeGPUs) string {
	line := fmt.Sprintf("%s: %d usable", n.Node, n.Usable)
	if n.GPUs != nil {
		line = fmt.Sprintf("%s: %d of %d GPUs usable", n.Node, n.Usable, *n.GPUs)
	}
	for _, why := range n.Why {
		line += "; " + why.String()
	}
	return line
}

// reason is the Event's reason.
func (r *report) reason(err error, remove bool) string {
	var refusal *patch.Refusal
	var timeout timeoutError
	switch {
	case errors.As(err, &refusal):
		return "WiringRefused"
	case errors.As(err, &timeout):
		return "WiringTimedOut"
	case err != nil:
		return "WiringFailed"
	case r.has("GPU0319"):
		return "WiringHeldBack"
	case remove:
		return "Unwired"
	case len(r.result.Changes) > 0:
		return "Wired"
	default:
		return "WiringChecked"
	}
}

func (r *report) has(code diagnose.Code) bool {
	for _, f := range r.result.Findings {
		if f.Code == code {
			return true
		}
	}
	return false
}

// bad reports whether the Event is a warning.
func (r *report) bad(err error) bool {
	for _, f := range r.result.Findings {
		if f.Severity == diagnose.Error {
			return true
		}
	}
	return err != nil || r.has("GPU0319") || r.has("GPU0102") || r.has("GPU0105") || r.has("GPU0107")
}

// fit cuts a text after the last line that fits, and says so.
func fit(text string, size int) string {
	const more = "…\n"
	if len(text) <= size {
		return text
	}
	head := text[:size-len(more)]
	if i := strings.LastIndexByte(head, '\n'); i >= 0 {
		return head[:i+1] + more
	}
	return strings.ToValidUTF8(head, "") + more
}

// printNodes prints what VMs can use, node by node.
func printNodes(p *render.Printer, nodes []diagnose.NodeGPUs) error {
	if len(nodes) == 0 {
		return nil
	}
	var rows [][]render.Cell
	for _, n := range nodes {
		rows = append(rows, nodeRow(n))
	}
	return p.Table([]string{"NODE", "GPUS", "USABLE", "SERVED", "NOT USABLE"}, rows)
}

func nodeRow(n diagnose.NodeGPUs) []render.Cell {
	count, tone := "?", render.Good
	if n.GPUs != nil {
		count = strconv.Itoa(*n.GPUs)
	}
	if n.Usable == 0 {
		tone = render.Bad
	}
	served := []string{}
	for _, u := range n.Served {
		served = append(served, fmt.Sprintf("%d x %s", u.Count, u.Name))
	}
	why := []string{}
	for _, r := range n.Why {
		why = append(why, r.String())
	}
	return []render.Cell{
		{Text: n.Node},
		{Text: count},
		{Text: strconv.FormatInt(n.Usable, 10), Tone: tone},
		{Text: strings.Join(served, ", ")},
		{Text: strings.Join(why, "; "), Tone: render.Warn},
	}
}
