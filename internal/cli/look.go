package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/gpuctl/gpuctl/internal/cluster"
	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/internal/patch"
)

// pollEvery is the pause between two looks at a cluster that is not ready.
const pollEvery = 2 * time.Second

// sight is the cluster at one look.
type sight struct {
	in       patch.Input
	findings []diagnose.Finding
	notes    []string           // what could not be read
	pending  []diagnose.Finding // nodes that serve nothing yet, agents that do not report
	starting bool               // the agents' pods are not made yet
	empty    bool               // no node has to do with GPUs
	agents   []diagnose.Agent
}

// missing says what was waited for.
func (s *sight) missing() string {
	count := map[diagnose.Code]int{}
	for _, f := range s.pending {
		count[f.Code]++
	}
	var out []string
	if n := count["GPU0102"]; n > 0 {
		out = append(out, fmt.Sprintf("%d GPU nodes serve nothing yet", n))
	}
	if n := count["GPU0105"]; n > 0 {
		out = append(out, fmt.Sprintf("%d agents do not report", n))
	}
	return strings.Join(out, ", and ")
}

// onlyNodes reports that nothing is missing but what nodes serve.
func (s *sight) onlyNodes() bool {
	for _, f := range s.pending {
		if f.Code != "GPU0102" {
			return false
		}
	}
	return len(s.pending) > 0 && !s.starting
}

// waits reports whether the command waits for nodes at all.
func (f *wireFlags) waits() bool { return f.wait > 0 && !f.dryRun && !f.remove }

// deadline is when waiting ends: counted from the start of the hook's Job, whose
// pods may be retried, else from now.
func (l *live) deadline(ctx context.Context) (time.Time, error) {
	from := time.Now()
	if l.flags.remove {
		return from.Add(applyPatience), nil
	}
	if job := os.Getenv("HOOK_JOB"); job != "" && l.flags.waits() {
		started, err := l.client.JobStart(ctx, os.Getenv("POD_NAMESPACE"), job)
		switch {
		case err == nil && started.Before(from):
			from = started
		case err != nil && ctx.Err() == nil:
			fmt.Fprintln(l.s.err, "note: the wait counts from now:", err)
		}
	}
	return from.Add(l.flags.wait), ctx.Err()
}

// ready looks at the cluster, again and again until the deadline while KubeVirt, a
// node or an agent is not ready.
func (l *live) ready(ctx context.Context, deadline time.Time) (sight, error) {
	firstNode := deadline.Add(-l.flags.wait).Add(min(l.flags.firstNode, l.flags.wait))
	for {
		seen, err := l.look(ctx)
		switch {
		case !l.again(err, deadline):
			return seen, err
		case err != nil || seen.starting || len(seen.pending) > 0:
		case seen.empty && time.Now().Before(firstNode):
		default:
			return seen, nil
		}
		if err := l.untilNextLook(ctx, deadline, err == nil && seen.onlyNodes(), seen.in.Hosts); err != nil {
			return seen, err
		}
	}
}

// again reports whether another look may come: there is time, and if the last one
// failed, time may help.
func (l *live) again(err error, deadline time.Time) bool {
	switch {
	case !time.Now().Before(deadline):
		return false
	case l.flags.remove: // an uninstall does not give up at the first hiccup
		return !l.flags.strict && patch.Transient(err)
	case !l.flags.waits():
		return false
	}
	return err == nil || notReady(err) || patch.Transient(err)
}

// untilNextLook waits. While nodes are all that is missing it looks at them alone:
// a large cluster is not read whole every two seconds.
func (l *live) untilNextLook(ctx context.Context, deadline time.Time, nodesOnly bool, hosts []gpu.Host) error {
	for {
		if err := pause(ctx, deadline); err != nil {
			return err
		}
		if !nodesOnly || !time.Now().Before(deadline) {
			return nil
		}
		nodes, err := l.client.Nodes(ctx)
		if err == nil && len(diagnose.UnservedNodes(nodes, hosts)) > 0 {
			continue
		}
		return nil // ready reads it all, and says what failed
	}
}

// notReady reports that KubeVirt is not there yet, which waiting may change.
func notReady(err error) bool {
	return errors.Is(err, cluster.ErrNoKubeVirt) || errors.Is(err, cluster.ErrNotReady) || errors.Is(err, patch.ErrNoTarget)
}

// pause waits for the next look, not beyond the deadline.
func pause(ctx context.Context, deadline time.Time) error {
	timer := time.NewTimer(min(pollEvery, max(time.Until(deadline), 0)))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return fmt.Errorf("wait for the cluster: %w", ctx.Err())
	case <-timer.C:
		return nil
	}
}

// look reads the cluster into the plan's input.
func (l *live) look(ctx context.Context) (sight, error) {
	docs, notes, err := l.client.Gather(ctx, l.flags.remove)
	if err != nil {
		return sight{}, err
	}
	facts, err := cluster.Read(docs)
	if err != nil {
		return sight{}, err
	}
	choose := patch.ChooseDeployed
	if l.flags.remove {
		choose = patch.Choose
	}
	seen := sight{notes: notes}
	seen.in, seen.findings, err = l.flags.inputOf(facts, l.hosts, choose)
	seen.in.WorkloadsKnown = true // all of the cluster's were listed
	if err != nil || l.flags.remove {
		return seen, err
	}
	err = l.lookAtAgents(ctx, &seen)
	return seen, err
}

// lookAtAgents adds who is missing.
func (l *live) lookAtAgents(ctx context.Context, seen *sight) error {
	agents, starting, err := l.client.Agents(ctx, os.Getenv("POD_NAMESPACE"), time.Now())
	if patch.Transient(err) {
		return err
	}
	if err != nil {
		seen.notes = append(seen.notes, fmt.Sprintf("cannot tell which agents report: %v", err))
	}
	seen.starting = starting
	if starting && l.flags.wait > 0 {
		seen.notes = append(seen.notes, "not all pods of the agents are made; kubectl describe daemonset -A -l "+cluster.AgentSelector+" says why")
	}
	seen.pending = append(diagnose.UnservedNodes(seen.in.Nodes, seen.in.Hosts), diagnose.Agents(agents)...)
	seen.empty = !diagnose.AnyGPU(seen.in.Nodes, seen.in.Hosts)
	if seen.empty && len(agents) == 0 {
		seen.findings = append(seen.findings, diagnose.New("GPU0106", "cluster", nil))
	}
	seen.agents = agents
	return nil
}

// newestUnless returns the release to assume where no plugin was seen.
func newestUnless(r gpu.Release) gpu.Release {
	if r.Known() {
		return r
	}
	return gpu.Newest()
}
