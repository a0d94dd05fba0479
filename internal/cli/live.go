package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpuctl/gpuctl/internal/cluster"
	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/internal/manifest"
	"github.com/gpuctl/gpuctl/internal/patch"
	"github.com/gpuctl/gpuctl/internal/wiring"
)

// liveFlags are wire's flags for a live cluster.
type liveFlags struct {
	clusterFlags
	hookFlags
	thisHost bool
	strict   bool
	force    bool
	noWake   bool
	stop     string // the controller's Deployment
}

func (f *liveFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	f.clusterFlags.add(cmd)
	flags.BoolVar(&f.thisHost, "this-host", false, "read this host's inventory too; its node is $NODE_NAME, else the host's name")
	f.hookFlags.add(cmd)
	flags.BoolVar(&f.strict, "strict", true, "fail when --wait runs out (exit 124) or the first entry is held back (exit 1); without it both are findings, and so is a --remove that fails")
	flags.BoolVar(&f.force, "force", false, "with --remove: take away entries that instances still use")
	flags.StringVar(&f.stop, "stop-controller", "", "with --remove: first stop the controller, the Deployment `[NAMESPACE/]NAME` (default namespace $POD_NAMESPACE)")
	flags.BoolVar(&f.noWake, "no-wake", false, "do not touch the instances that KubeVirt refused for what is wired now")
}

// applyPatience bounds the writing of one plan, retries included.
const applyPatience = 30 * time.Second

// live wires one cluster.
type live struct {
	s      *streams
	flags  *wireFlags
	client *cluster.Client
	plan   patch.Planner
	hosts  map[string]inventory
	report report // of what came out

	unstopped []diagnose.Finding // a controller that may write back what is removed
}

func runLive(ctx context.Context, s *streams, flags *wireFlags, out *output) error {
	client, err := flags.connect()
	if err != nil {
		return err
	}
	l := &live{s: s, flags: flags, client: client, plan: flags.planner()}
	if l.hosts, err = flags.read(s.in); err != nil {
		return err
	}
	if flags.thisHost {
		own, err := thisHost()
		if err != nil {
			return err
		}
		maps.Copy(l.hosts, own)
	}
	err = l.settle(out, l.run(ctx, out))
	l.mirror(ctx, err)
	return err
}

// run wires the cluster as it is, or with --wait as it is when every GPU node is
// served and reported, or the time is over.
func (l *live) run(ctx context.Context, out *output) error {
	deadline, err := l.deadline(ctx)
	if err != nil {
		return err
	}
	if l.flags.remove && !l.flags.dryRun {
		if err := l.stopController(ctx); err != nil {
			return err
		}
	}
	seen, err := l.ready(ctx, deadline)
	switch {
	case l.flags.remove && notReady(err):
		l.report.head = "KubeVirt is gone: nothing to remove"
		return l.s.commentary().Note("%s", l.report.head)
	case l.flags.waits() && notReady(err):
		return l.waitedInVain(out, err)
	case err != nil:
		return err
	}
	for _, note := range seen.notes {
		fmt.Fprintln(l.s.err, "note:", note)
	}
	seen.findings = append(seen.findings, l.unstopped...)
	if err := l.wire(ctx, out, seen, deadline); err != nil {
		return err
	}
	if l.flags.waits() && len(seen.pending) > 0 && l.flags.strict {
		return timeoutError{fmt.Errorf("waited %s, and %s; see the findings above", l.flags.wait, seen.missing())}
	}
	return nil
}

// waitedInVain says that KubeVirt was not there in time.
func (l *live) waitedInVain(out *output, err error) error {
	if l.flags.strict {
		return timeoutError{fmt.Errorf("waited %s: %w", l.flags.wait, err)}
	}
	return l.finish(out, diagnose.New("GPU0101", "cluster", diagnose.Values{
		"wait": l.flags.wait.String(), "problem": err.Error(),
	}))
}

// wire carries out one plan: write, check, wake.
func (l *live) wire(ctx context.Context, out *output, seen sight, deadline time.Time) error {
	in, findings := seen.in, slices.Concat(seen.findings, seen.pending)
	l.report.target = &in.Target
	if l.flags.dryRun {
		result, err := l.plan(in)
		if err != nil {
			return err
		}
		result.Findings = diagnose.Sort(append(result.Findings, findings...))
		return l.print(out, in.Target.Object, result, seen, planned())
	}
	patience := max(applyPatience, time.Until(deadline))
	writing, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("nothing was written within %s", patience.Round(time.Second)))
	defer cancel()
	done, err := patch.Apply(writing, l.client, in, l.plan)
	if err != nil {
		return l.client.Explain(err)
	}
	if !l.flags.remove {
		more, err := wiring.Follow(ctx, l.client, &in.Target, done.Object, !l.flags.noWake)
		findings = append(findings, more...)
		if err != nil {
			return err
		}
	}
	done.Findings = diagnose.Sort(append(done.Findings, findings...))
	return l.print(out, done.Before, done.Result, seen, written())
}

// print prints a plan of the live object, without what only the API server may
// write: for a repository, or to be applied again. Then it says what VMs can use.
func (l *live) print(out *output, before manifest.Object, r patch.Result, seen sight, at stage) error {
	t := *l.report.target
	t.Document = manifest.Live(t.File, published(before))
	object := r.Object
	r.Object = published(object)
	l.report.result, l.report.head = r, headline(&t, r, at)
	var err error
	if !l.flags.remove {
		l.report.nodes, err = summarizeNodes(&seen.in, object, seen.agents)
	}
	return errors.Join(err, printPlan(l.s, out, &t, r, at, l.report.nodes))
}

func published(obj manifest.Object) manifest.Object {
	out, _ := manifest.DeepCopy(obj).(map[string]any)
	delete(out, "status")
	meta, _ := out["metadata"].(map[string]any)
	for _, key := range []string{"resourceVersion", "uid", "creationTimestamp", "generation", "managedFields"} {
		delete(meta, key)
	}
	return out
}
