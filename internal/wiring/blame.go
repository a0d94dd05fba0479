package wiring

import (
	"slices"
	"strings"

	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/internal/patch"
)

// seen is what is remembered of a target.
type seen struct {
	uid      string
	held     []patch.Piece
	managers []writer
	names    []gpu.ResourceName // that it permits
}

// settle remembers a target that needs nothing, or as much of it as there can be. whole
// says that nothing of gpuctl's is missing from it.
func (c *Controller) settle(t *patch.Target, whole bool) {
	if whole {
		c.undone = false
	} else if known := c.seenOf(t); known != nil && c.undone {
		return // what was taken away still is
	}
	before := c.seenOf(t)
	c.known = remember(t)
	// Somebody else may have permitted what instances wait for.
	if before == nil || slices.ContainsFunc(c.known.names, func(n gpu.ResourceName) bool { return !slices.Contains(before.names, n) }) {
		c.followed(t)
	}
}

// seenOf returns what is known of a target; nil of one that is not the one that was seen
// last. A KubeVirt that was installed anew, and a HyperConverged that has come, never had
// what the one before them had.
func (c *Controller) seenOf(t *patch.Target) *seen {
	if c.known == nil || c.known.uid != t.Meta("uid") {
		return nil
	}
	return c.known
}

func remember(t *patch.Target) *seen {
	all := patch.Recorded(t)
	lost := patch.Lost(t, all)
	s := &seen{
		uid: t.Meta("uid"), managers: managersOf(t.Object),
		held: slices.DeleteFunc(all, func(p patch.Piece) bool { return slices.Contains(lost, p) }),
	}
	enforced := t // what KubeVirt goes by
	if t.Managed != nil {
		enforced = &patch.Target{Document: *t.Managed}
	}
	table, err := patch.TableOf(enforced, enforced.Object)
	if err == nil {
		for _, e := range table.Entries {
			s.names = append(s.names, e.Name)
		}
	}
	return s
}

// blame counts a revert, once, and returns what was lost by it: of what is to be written
// back, and of what cannot be for the sake of others.
func (c *Controller) blame(t *patch.Target, r patch.Result) (lost []patch.Piece) {
	all := patch.Recorded(t)
	var managers []writer
	if known := c.seenOf(t); known != nil {
		all, managers = append(all, known.held...), known.managers
	}
	wanted := func(p patch.Piece) bool {
		return len(r.LeftOut) > 0 || slices.ContainsFunc(r.Changes, func(c patch.Change) bool { return c.Op == "add" && c.Piece() == p })
	}
	lost = slices.DeleteFunc(patch.Lost(t, all), func(p patch.Piece) bool { return !wanted(p) })
	if len(lost) == 0 || c.undone {
		return lost
	}
	c.undone = true
	now := c.Now()
	who := ""
	if managers != nil {
		who = culprit(managers, managersOf(t.Object))
	}
	c.contest.add(revert{at: now, manager: who, lost: inWords(lost)})
	c.Metrics.reverts.Inc()
	c.Log.Info("somebody took the wiring away", "object", t.Ref(), "manager", who, "lost", inWords(lost), "recently", len(c.contest.recent(now)))
	return lost
}

// inWords names pieces, sorted.
func inWords(pieces []patch.Piece) string {
	var out []string
	for _, p := range pieces {
		out = append(out, p.String())
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}
