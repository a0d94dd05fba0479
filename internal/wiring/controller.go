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

	recalled  bool // the GPUWiring was read
	contest   contest
	status    v1alpha1.GPUWiringStatus // as last written
	checked   time.Time                // whether the GPUWiring still says it
	unserved  map[gpu.ResourceName]time.Time
	workloads workloads
	known     *seen // the target as it was when it was last found or made right
	undone    bool  // a revert that was counted is not repaired yet
	gate      atomic.Pointer[diagnose.Finding]
	after     follower
}

// New makes a controller.
func New(o Options) *Controller {
	return &Controller{Options: o, unserved: map[gpu.ResourceName]time.Time{}}
}

// notSynced is when it is asked again whether all objects are held.
const notSynced = 200 * time.Millisecond

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
	if !c.Watcher.Synced() {
		return notSynced, nil
	}
	c.recall(ctx)
	out := c.attempt(ctx)
	if ctx.Err() != nil {
		return 0, nil // stopped: what was begun is the next leader's
	}
	if errors.Is(out.wired, cluster.ErrNotSynced) {
		return notSynced, nil
	}
	c.say(ctx, &out)
	if passing(out.wired) {
		return 0, out.wired
	}
	return c.next(out.wired), nil
}

// passing reports what may be over by itself, and soon.
func passing(err error) bool {
	var refusal *patch.Refusal
	var unpermitted *unpermittedError
	return err != nil && !errors.As(err, &refusal) && !errors.As(err, &unpermitted) && !errors.Is(err, patch.ErrNoTarget)
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
	if c.workloads.again {
		sooner(workloadsLast - now.Sub(c.workloads.at))
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
	if err == nil && len(result.Edits) > 0 {
		// 3. What it lacks now: what is held here may be older than the last write.
		if in.Target.Object, err = c.Client.Get(ctx, &in.Target.Document); err == nil {
			result, err = plan(in)
		}
	}
	if err != nil {
		out.wired = err
		return out
	}
	out.odd = oddities(&in.Target, result)
	out.wired = c.incomplete(&in, &result)
	// 4. Who took it away.
	lost := c.blame(&in.Target, result)
	if len(result.Edits) == 0 {
		c.settle(&in.Target, out.wired == nil)
		return out
	}
	// 5. The write, unless it has to wait.
	if wait := c.contest.wait(c.Now()); wait > 0 {
		out.backed, out.wired = true, refusalOf(c.contestFinding(&in.Target))
		return out
	}
	if err := c.write(ctx, &in, plan, lost); err != nil {
		out.wired = err
	}
	return out
}

// incomplete says why VMs cannot use something that nodes serve although all is written
// that can be; nil when they can.
func (c *Controller) incomplete(in *patch.Input, r *patch.Result) error {
	if len(r.LeftOut) > 0 {
		return &patch.Refusal{Findings: r.LeftOut}
	}
	table, err := patch.TableOf(&in.Target, r.Object)
	if err != nil {
		return err
	}
	var names []string
	for i := range in.Nodes {
		for _, name := range diagnose.Unpermitted(&in.Nodes[i], table) {
			names = append(names, string(name))
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	return &unpermittedError{slices.Compact(names)}
}

// unpermittedError says that nodes serve names which the plan does not permit.
type unpermittedError struct{ names []string }

// Error names them.
func (e *unpermittedError) Error() string {
	return "nodes serve " + strings.Join(e.names, ", ") + ", which nothing tells the device of: gpuctl diagnose says more"
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
	plugins, note, err := c.Client.Plugins(ctx)
	if err != nil {
		return in, err
	}
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
	in.Nodes, in.Hosts, in.Permits, in.Partial = facts.Nodes, facts.Hosts, c.Permits, true
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

// write carries the plan out.
func (c *Controller) write(ctx context.Context, in *patch.Input, plan patch.Planner, lost []patch.Piece) error {
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
	if err == nil && len(done.LeftOut) == 0 { // else something may be missing still
		c.undone, c.known = false, remember(&in.Target)
	}
	c.followed(&in.Target)
	return err
}
