package wiring

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/internal/cluster"
	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/internal/patch"
)

// Options say what the controller keeps true, and by what means.
type Options struct {
	Client  *cluster.Client
	Watcher *cluster.Watcher
	Permits []patch.Permit
	// StaleAfter is for how long no node has served the name of an own entry before
	// the entry may go; zero keeps all. It counts while this replica leads.
	StaleAfter time.Duration
	Resync     time.Duration // between two looks without anything having happened
	Instance   string        // who reports Events
	Metrics    *Metrics
	Log        logr.Logger
	Now        func() time.Time
}

// Controller keeps the wiring true. Only the leader runs it; it remembers what it saw
// for as long as it leads, and what others must know it says in the GPUWiring.
type Controller struct {
	Options
	busy atomic.Int64 // when the running look began, in Unix nanoseconds; 0 for none

	recalled bool // the GPUWiring was read
	contest  contest
	status   v1alpha1.GPUWiringStatus // as last written
	checked  time.Time                // whether the GPUWiring still says it
	unserved map[gpu.ResourceName]time.Time
	known    *seen // the target as it was when it was last found or made right
	undone   bool  // a revert that was counted is not repaired yet
	gate     atomic.Pointer[diagnose.Finding]
	after    follower
}

// seen is what is remembered of a target.
type seen struct {
	uid      string
	held     []string
	managers []writer
	names    []gpu.ResourceName // that it permits
}

// New makes a controller.
func New(o Options) *Controller {
	return &Controller{Options: o, unserved: map[gpu.ResourceName]time.Time{}}
}

// writePatience bounds the writing of one plan, retries included.
const writePatience = 15 * time.Second

// outcome is how one look ended.
type outcome struct {
	target *patch.Target
	wired  error              // nil: the target is as it should be
	backed bool               // it will be written later, being contested
	odd    []diagnose.Finding // about the target: left as it is
}

// wire looks once, and writes if need be. It returns when to look again.
func (c *Controller) wire(ctx context.Context) (again time.Duration, err error) {
	c.busy.Store(c.Now().UnixNano())
	defer c.busy.Store(0)
	if err := c.recall(ctx); err != nil {
		return 0, err
	}
	out := c.attempt(ctx)
	if ctx.Err() != nil {
		return 0, nil // stopped: what was begun is the next leader's
	}
	c.say(ctx, &out)
	var refusal *patch.Refusal
	if out.wired != nil && !errors.As(out.wired, &refusal) && !errors.Is(out.wired, patch.ErrNoTarget) {
		return 0, out.wired // by itself it may be over soon
	}
	return c.next(out.wired), nil
}

// next returns when something is due that no change of an object announces. wired is why
// the target is not right; nil when it is.
func (c *Controller) next(wired error) time.Duration {
	now, next := c.Now(), c.Resync
	sooner := func(d time.Duration) {
		if d > 0 {
			next = min(next, d)
		}
	}
	if heldBack(wired) {
		sooner(askAgain) // VMs are not watched, and somebody may be taking them away
	}
	sooner(c.contest.wait(now))
	sooner(c.contest.calm(now))
	for _, since := range c.unserved {
		sooner(c.StaleAfter - now.Sub(since))
	}
	return next
}

// attempt makes the target right, or says why it is not.
func (c *Controller) attempt(ctx context.Context) (out outcome) {
	// 1. What there is, as far as is known here.
	in, err := c.look(ctx)
	if err != nil {
		out.wired = err
		return out
	}
	out.target = &in.Target
	// 2. What it lacks. Most looks end here.
	plan := c.planner(ctx)
	result, err := plan(in)
	out.odd = oddities(&in.Target, result)
	if err != nil || len(result.Edits) == 0 {
		c.settle(&in.Target, err)
		out.wired = err
		return out
	}
	// 3. What it lacks now: what is held here may be older than the last write.
	if in.Target.Object, err = c.Client.Get(ctx, &in.Target.Document); err == nil {
		result, err = plan(in)
	}
	if err != nil || len(result.Edits) == 0 {
		c.settle(&in.Target, err)
		out.wired = err
		return out
	}
	// 4. Who took it away, and whether to wait before it is put back.
	lost := c.blame(&in.Target, result)
	if wait := c.contest.wait(c.Now()); wait > 0 {
		out.backed, out.wired = true, refusalOf(c.contestFinding(&in.Target))
		return out
	}
	// 5. The write.
	out.wired = c.write(ctx, &in, plan, lost)
	return out
}

// oddities are the findings about the target itself that somebody should look at.
func oddities(t *patch.Target, r patch.Result) []diagnose.Finding {
	return slices.DeleteFunc(slices.Clone(r.Findings), func(f diagnose.Finding) bool {
		return f.Object != t.Ref() || f.Severity != diagnose.Error && f.Severity != diagnose.Warning
	})
}

// look collects what the plan depends on.
func (c *Controller) look(ctx context.Context) (in patch.Input, err error) {
	docs, err := c.Watcher.Documents(ctx)
	if err != nil {
		return in, err
	}
	plugins, note := c.Client.Plugins(ctx)
	if note != "" {
		c.Log.Info("names are predicted for the newest device plugin", "reason", note)
	}
	facts, err := cluster.Read(append(docs, plugins...))
	if err != nil {
		return in, err
	}
	if in.Target, err = patch.ChooseDeployed(facts.Targets); err != nil {
		return in, err
	}
	in.Nodes, in.Hosts, in.Permits = facts.Nodes, facts.Hosts, c.Permits
	in.Idle = c.idle(&in)
	return in, nil
}

// idle says for how long gpuctl's own names have been served by nobody.
func (c *Controller) idle(in *patch.Input) patch.Idle {
	now, served := c.Now(), diagnose.Served(in.Nodes)
	idle := patch.Idle{Limit: c.StaleAfter, For: map[gpu.ResourceName]time.Duration{}}
	before := c.unserved
	c.unserved = map[gpu.ResourceName]time.Time{}
	for _, name := range patch.Own(&in.Target) {
		if served[name] > 0 {
			continue
		}
		since, known := before[name]
		if !known {
			since = now
		}
		c.unserved[name], idle.For[name] = since, now.Sub(since)
	}
	return idle
}

// planner plans. What VMs ask for is read when the plan depends on it: before a first
// entry switches the permit check on, and before an entry goes.
func (c *Controller) planner(ctx context.Context) patch.Planner {
	var workloads []gpu.Workload
	known := false
	return func(in patch.Input) (patch.Result, error) {
		in.Workloads, in.WorkloadsKnown = workloads, true
		result, err := patch.Plan(in)
		if known || err != nil || !patch.DependsOnWorkloads(&in, &result) {
			return result, err
		}
		docs, notes, err := c.Client.Workloads(ctx)
		if err != nil {
			return patch.Result{}, err
		}
		for _, note := range notes {
			c.Log.Info("some workloads are not considered", "reason", note)
		}
		facts, err := cluster.Read(docs)
		if err != nil {
			return patch.Result{}, err
		}
		workloads, known = facts.Workloads, true
		in.Workloads = workloads
		return patch.Plan(in)
	}
}

// settle remembers a target that needs nothing.
func (c *Controller) settle(t *patch.Target, err error) {
	if err != nil {
		return
	}
	c.undone = false
	before := c.seenOf(t)
	c.known = remember(t)
	// Somebody else may have permitted what instances wait for.
	if before == nil || slices.ContainsFunc(c.known.names, func(n gpu.ResourceName) bool { return !slices.Contains(before.names, n) }) {
		c.after.due(t)
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
	_, held := patch.Holdings(t)
	s := &seen{uid: t.Meta("uid"), held: held, managers: managersOf(t.Object)}
	table, err := patch.TableOf(t, t.Object)
	if err == nil {
		for _, e := range table.Entries {
			s.names = append(s.names, e.Name)
		}
	}
	return s
}

// blame counts a revert, once, and returns what was lost by it.
func (c *Controller) blame(t *patch.Target, r patch.Result) (lost []string) {
	all, _ := patch.Holdings(t)
	var managers []writer
	if known := c.seenOf(t); known != nil {
		all, managers = append(all, known.held...), known.managers
	}
	for _, change := range r.Changes {
		if change.Op == "add" && slices.Contains(all, change.String()) {
			lost = append(lost, change.String())
		}
	}
	if len(lost) == 0 || c.undone {
		return lost
	}
	c.undone = true
	now := c.Now()
	who := ""
	if managers != nil {
		who = culprit(managers, managersOf(t.Object))
	}
	c.contest.add(revert{at: now, manager: who, lost: strings.Join(lost, ", ")})
	c.Metrics.reverts.Inc()
	c.Log.Info("somebody took the wiring away", "object", t.Ref(), "manager", who, "lost", lost, "recently", len(c.contest.recent(now)))
	return lost
}

// write carries the plan out.
func (c *Controller) write(ctx context.Context, in *patch.Input, plan patch.Planner, lost []string) error {
	writing, cancel := context.WithTimeoutCause(ctx, writePatience, fmt.Errorf("nothing was written within %s", writePatience))
	defer cancel()
	done, err := patch.Apply(writing, c.Client, *in, plan)
	var refusal *patch.Refusal
	written := len(done.Edits) > 0 && (err == nil || errors.As(err, &refusal) && refusal.Written)
	if !written {
		if err != nil && refusal == nil {
			c.Metrics.failures.Inc()
		}
		return c.Client.Explain(err)
	}
	c.contest.wrote = c.Now()
	c.Metrics.writes.Inc()
	in.Target.Object = done.Object
	if done.Stored != nil {
		in.Target.Object = done.Stored
	}
	c.announceWrite(ctx, &in.Target, done.Result, lost)
	if err == nil {
		c.undone, c.known = false, remember(&in.Target)
	}
	c.after.due(&in.Target)
	return err
}
