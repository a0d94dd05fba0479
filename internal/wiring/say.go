package wiring

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/internal/cluster"
	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/internal/patch"
)

// recall takes over what the leader before has seen. It is a report: where it cannot be
// read, the wiring goes on.
func (c *Controller) recall(ctx context.Context) {
	if c.recalled {
		return
	}
	have, err := c.Client.GPUWiring(ctx)
	if err != nil {
		c.Log.Error(err, "learn what the leader before has seen")
		return
	}
	c.recalled = true
	if have != nil {
		c.takeOver(&have.Status)
	}
}

func (c *Controller) takeOver(s *v1alpha1.GPUWiringStatus) {
	c.status = *s
	past := func(t time.Time) time.Time { // the clock of another machine may be ahead
		if now := c.Now(); t.After(now) {
			return now
		}
		return t
	}
	for _, r := range s.Reverts {
		c.contest.reverts = append(c.contest.reverts, revert{at: past(r.Time.Time), manager: r.Manager, lost: r.Lost})
	}
	if s.LastWrite != nil {
		c.contest.wrote = past(s.LastWrite.Time)
	}
	// The last one is not repaired yet, and counted.
	c.undone = len(s.Reverts) > 0 && (s.LastWrite == nil || s.Reverts[len(s.Reverts)-1].Time.After(s.LastWrite.Time))
}

// say tells how it stands: in the GPUWiring, by metrics, and by an Event where that is
// news.
func (c *Controller) say(ctx context.Context, out *outcome) {
	before := c.status
	now := c.describe(out)
	c.Metrics.show(now, len(c.unserved))
	if !equality.Semantic.DeepEqual(&before, now) || c.Now().Sub(c.checked) >= c.Resync {
		c.status, c.checked = *now, c.Now()
		stored, err := c.Client.WriteGPUWiring(ctx, now)
		if err != nil {
			c.Log.Error(err, "say how the wiring stands")
			c.checked = time.Time{} // the next look tries again
		} else {
			c.status = *stored
		}
	}
	if out.target == nil {
		return
	}
	for _, e := range news(&before, now) {
		c.record(ctx, out.target, e)
	}
}

// describe returns the GPUWiring's status.
func (c *Controller) describe(out *outcome) *v1alpha1.GPUWiringStatus {
	s := c.status.DeepCopy()
	if out.target != nil {
		s.Target = out.target.Ref()
	}
	if !c.contest.wrote.IsZero() {
		s.LastWrite = &metav1.MicroTime{Time: c.contest.wrote.Truncate(time.Microsecond)}
	}
	s.Reverts = nil
	for _, r := range c.contest.recent(c.Now()) {
		s.Reverts = append(s.Reverts, v1alpha1.Revert{
			Time: metav1.MicroTime{Time: r.at.Truncate(time.Microsecond)}, Manager: cut(r.manager, 128), Lost: cut(r.lost, 1024),
		})
	}
	meta.SetStatusCondition(&s.Conditions, c.wired(out))
	contested := ""
	if c.contest.contested(c.Now()) && out.target != nil {
		contested = c.contestFinding(out.target).Message
	}
	meta.SetStatusCondition(&s.Conditions, v1alpha1.Contested(contested))
	return s
}

// wired is the condition that says how a look ended.
func (c *Controller) wired(out *outcome) metav1.Condition {
	var refusal *patch.Refusal
	err := out.wired
	switch gate := c.gate.Load(); {
	case err == nil && gate != nil && gate.Code == "GPU0327":
		return v1alpha1.Wired(metav1.ConditionFalse, v1alpha1.ReasonNotPassedOn, text(*gate))
	case err == nil && gate != nil:
		return v1alpha1.Wired(metav1.ConditionFalse, v1alpha1.ReasonRefused, text(*gate))
	case err == nil:
		return v1alpha1.Wired(metav1.ConditionTrue, v1alpha1.ReasonWired, leftAlone(out.odd))
	case out.backed:
		return v1alpha1.Wired(metav1.ConditionFalse, v1alpha1.ReasonBackedOff, "it is written again within a minute; see "+v1alpha1.ConditionContested)
	case errors.Is(err, patch.ErrNoTarget):
		return v1alpha1.Wired(metav1.ConditionUnknown, v1alpha1.ReasonNoKubeVirt, err.Error())
	case errors.As(err, &refusal):
		if heldBack(err) {
			return v1alpha1.Wired(metav1.ConditionFalse, v1alpha1.ReasonHeldBack, textsOf(refusal))
		}
		return v1alpha1.Wired(metav1.ConditionFalse, v1alpha1.ReasonRefused, textsOf(refusal))
	case !passing(err):
		return v1alpha1.Wired(metav1.ConditionFalse, v1alpha1.ReasonIncomplete, cut(err.Error(), 1024))
	default:
		return v1alpha1.Wired(metav1.ConditionFalse, v1alpha1.ReasonFailed, cut(err.Error(), 1024))
	}
}

// leftAlone names what is odd about a target that needs nothing. Codes alone: what the
// findings say may change with every node.
func leftAlone(odd []diagnose.Finding) string {
	var codes []string
	for _, f := range odd {
		codes = append(codes, string(f.Code))
	}
	if len(codes) == 0 {
		return ""
	}
	slices.Sort(codes)
	return "left as it is, see gpuctl diagnose: " + strings.Join(slices.Compact(codes), ", ")
}

// heldBack reports that nothing but what VMs use stands in the way of a first entry.
func heldBack(err error) bool {
	refusal, ok := errors.AsType[*patch.Refusal](err)
	return ok && refusal.Only("GPU0319")
}

// contestFinding says who reverts what.
func (c *Controller) contestFinding(t *patch.Target) diagnose.Finding {
	var reverts []diagnose.Revert
	for _, r := range c.contest.recent(c.Now()) {
		reverts = append(reverts, diagnose.Revert{Manager: r.manager, Lost: r.lost})
	}
	return diagnose.Contest(t.Ref(), reverts)
}

// text returns a finding in one line.
func text(f diagnose.Finding) string { return string(f.Code) + ": " + f.Message }

func textsOf(r *patch.Refusal) string {
	var out []string
	for _, f := range r.Findings {
		if f.Severity == diagnose.Error {
			out = append(out, text(f))
		}
	}
	return strings.Join(out, "; ")
}

func refusalOf(f diagnose.Finding) *patch.Refusal {
	return &patch.Refusal{Findings: []diagnose.Finding{f}}
}

// news returns the Events for what is otherwise than before.
func news(before, now *v1alpha1.GPUWiringStatus) (events []cluster.Event) {
	reasons := map[string]string{
		v1alpha1.ReasonHeldBack: "WiringHeldBack", v1alpha1.ReasonRefused: "WiringRefused", v1alpha1.ReasonFailed: "WiringFailed",
		v1alpha1.ReasonIncomplete: "WiringIncomplete", v1alpha1.ReasonNotPassedOn: "WiringNotPassedOn",
		v1alpha1.ReasonReverted: "WiringContested", v1alpha1.ReasonCalm: "WiringCalm",
	}
	for _, is := range now.Conditions {
		was := meta.FindStatusCondition(before.Conditions, is.Type)
		reason := reasons[is.Reason]
		first := was == nil && is.Reason == v1alpha1.ReasonCalm
		if reason == "" || first || was != nil && was.Reason == is.Reason {
			continue
		}
		note := is.Message
		if is.Reason == v1alpha1.ReasonCalm {
			note = "nobody takes the wiring away any more"
		}
		events = append(events, cluster.Event{Reason: reason, Warning: is.Reason != v1alpha1.ReasonCalm, Note: note})
	}
	return events
}

// announceWrite tells of a write.
func (c *Controller) announceWrite(ctx context.Context, t *patch.Target, r patch.Result, lost []patch.Piece) {
	var lines []string
	for _, change := range r.Changes {
		sign := map[bool]string{true: "+ ", false: "- "}[change.Op == "add"]
		lines = append(lines, sign+change.String()+": "+change.Why)
	}
	c.Log.Info("wrote", "object", t.Ref(), "changes", lines)
	e := cluster.Event{Reason: "Wired", Note: strings.Join(lines, "\n")}
	if len(lost) > 0 {
		e = cluster.Event{Reason: "WiringRepaired", Warning: true, Note: strings.Join(lines, "\n")}
		if rs := c.contest.reverts; len(rs) > 0 {
			e.Note = "taken away by " + diagnose.Revert{Manager: rs[len(rs)-1].manager}.Who() + ", written back:\n" + e.Note
		}
	}
	c.record(ctx, t, e)
}

// record writes an Event; on the KubeVirt CR, where people look.
func (c *Controller) record(ctx context.Context, t *patch.Target, e cluster.Event) {
	on := &t.Document
	if t.Managed != nil {
		on = t.Managed
	}
	e.Controller, e.Instance, e.Note = cluster.KeptBy, c.Instance, cut(e.Note, cluster.MaxNote)
	if err := c.Client.Record(ctx, on, e); err != nil {
		c.Log.Error(err, "write an Event", "reason", e.Reason)
	}
}

// cut shortens a text to so many bytes.
func cut(s string, size int) string {
	const more = "…"
	if len(s) <= size {
		return s
	}
	return strings.ToValidUTF8(s[:size-len(more)], "") + more
}
