package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpuctl/gpuctl/internal/cluster"
	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/internal/manifest"
	"github.com/gpuctl/gpuctl/internal/patch"
)

// liveFlags are wire's flags for a live cluster.
type liveFlags struct {
	kubeconfig, kubeContext string
	thisHost                bool
	wait                    time.Duration
	strict                  bool
	force                   bool
	noWake                  bool
}

func (f *liveFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "`FILE` that says which cluster to speak to (default: as kubectl finds it)")
	flags.StringVar(&f.kubeContext, "context", "", "`NAME` of the kubeconfig's context")
	flags.BoolVar(&f.thisHost, "this-host", false, "read this host's inventory too; its node is $NODE_NAME, else the host's name")
	flags.DurationVar(&f.wait, "wait", 0, "wait up to `DURATION` for KubeVirt and for the device plugin of every GPU node")
	flags.BoolVar(&f.strict, "strict", true, "fail when --wait runs out (exit 124) or the first entry is held back (exit 1); without it both are findings")
	flags.BoolVar(&f.force, "force", false, "with --remove: take away entries that instances still use")
	flags.BoolVar(&f.noWake, "no-wake", false, "do not touch the instances that KubeVirt refused for what is wired now")
}

const (
	// applyPatience bounds the writing of one plan, retries included.
	applyPatience = 30 * time.Second
	// gatePatience is how long virt-api may take to learn of its new gate.
	gatePatience = 10 * time.Second
	// pollEvery is the pause between two looks at a cluster that is not ready.
	pollEvery = 2 * time.Second
)

// live wires one cluster.
type live struct {
	s      *streams
	flags  *wireFlags
	client *cluster.Client
	plan   patch.Planner
	hosts  map[string]inventory
	notes  []string // what the last look at the cluster could not read
}

func runLive(ctx context.Context, s *streams, flags *wireFlags, out *output) error {
	cluster.Quiet()
	client, err := cluster.Connect(cluster.Options{
		Kubeconfig: flags.kubeconfig, Context: flags.kubeContext, UserAgent: "gpuctl/" + currentBuild().Version,
	})
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
	return l.run(ctx, out)
}

// run wires the cluster as it is, or with --wait as it is when every GPU node is
// served or the time is over.
func (l *live) run(ctx context.Context, out *output) error {
	in, findings, pending, err := l.ready(ctx)
	switch {
	case l.flags.remove && notReady(err):
		return l.s.commentary().Note("KubeVirt is gone: nothing to remove")
	case l.flags.waits() && notReady(err):
		return l.waitedInVain(out, err)
	case err != nil:
		return err
	}
	for _, note := range l.notes {
		fmt.Fprintln(l.s.err, "note:", note)
	}
	if err := l.wire(ctx, out, in, append(findings, pending...)); err != nil {
		return err
	}
	if l.flags.waits() && len(pending) > 0 && l.flags.strict {
		return timeoutError{fmt.Errorf("waited %s, and %d GPU nodes serve nothing yet", l.flags.wait, len(pending))}
	}
	return nil
}

// waitedInVain says that KubeVirt was not there in time.
func (l *live) waitedInVain(out *output, err error) error {
	if l.flags.strict {
		return timeoutError{fmt.Errorf("waited %s: %w", l.flags.wait, err)}
	}
	return printFindings(l.s, out, []diagnose.Finding{diagnose.New("GPU0101", "cluster", diagnose.Values{
		"wait": l.flags.wait.String(), "problem": err.Error(),
	})})
}

// waits reports whether the command waits for nodes at all.
func (f *wireFlags) waits() bool { return f.wait > 0 && !f.dryRun && !f.remove }

// ready reads the cluster, again and again until the deadline while KubeVirt or a
// node is not ready. pending reports the nodes that then serve nothing yet.
func (l *live) ready(ctx context.Context) (in patch.Input, findings, pending []diagnose.Finding, err error) {
	deadline := time.Now().Add(l.flags.wait)
	for {
		in, findings, err = l.gather(ctx)
		if !l.flags.remove {
			pending = unserved(in.Nodes)
		}
		over := !l.flags.waits() || !time.Now().Before(deadline)
		if over || err != nil && !notReady(err) && !patch.Transient(err) || err == nil && len(pending) == 0 {
			return in, findings, pending, err
		}
		if err := l.untilNextLook(ctx, deadline, err == nil); err != nil {
			return in, nil, nil, err
		}
	}
}

// untilNextLook waits. While nodes are all that is missing it looks at them alone:
// a large cluster is not read whole every two seconds.
func (l *live) untilNextLook(ctx context.Context, deadline time.Time, nodesOnly bool) error {
	for {
		if err := pause(ctx, deadline); err != nil {
			return err
		}
		if !nodesOnly || !time.Now().Before(deadline) {
			return nil
		}
		nodes, err := l.client.Nodes(ctx)
		if err == nil && len(unserved(nodes)) > 0 {
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

// unserved reports the nodes that are meant for VM GPUs and serve none yet.
func unserved(nodes []gpu.Node) []diagnose.Finding {
	var out []diagnose.Finding
	for i := range nodes {
		if why, missing := diagnose.Unserved(&nodes[i]); missing {
			out = append(out, diagnose.New("GPU0102", "node/"+nodes[i].Name, diagnose.Values{"node": nodes[i].Name, "why": why}))
		}
	}
	return out
}

// gather reads the cluster into the plan's input.
func (l *live) gather(ctx context.Context) (patch.Input, []diagnose.Finding, error) {
	docs, notes, err := l.client.Gather(ctx, l.flags.remove)
	if err != nil {
		return patch.Input{}, nil, err
	}
	l.notes = notes
	facts, err := cluster.Read(docs)
	if err != nil {
		return patch.Input{}, nil, err
	}
	choose := patch.ChooseDeployed
	if l.flags.remove {
		choose = patch.Choose
	}
	in, findings, err := l.flags.inputOf(facts, l.hosts, choose)
	in.WorkloadsKnown = true // all of the cluster's were listed
	return in, findings, err
}

// wire carries out one plan: write, check, wake.
func (l *live) wire(ctx context.Context, out *output, in patch.Input, findings []diagnose.Finding) error {
	target := in.Target
	if l.flags.dryRun {
		result, err := l.plan(in)
		if err != nil {
			return err
		}
		result.Findings = diagnose.Sort(append(result.Findings, findings...))
		return printLive(l.s, out, target, target.Object, result, planned())
	}
	writing, cancel := context.WithTimeoutCause(ctx, applyPatience, fmt.Errorf("nothing was written within %s", applyPatience))
	defer cancel()
	done, err := patch.Apply(writing, l.client, in, l.plan)
	if err != nil {
		return l.client.Explain(err)
	}
	if !l.flags.remove {
		more, err := l.after(ctx, in, done.Result)
		findings = append(findings, more...)
		if err != nil {
			return err
		}
	}
	done.Findings = diagnose.Sort(append(done.Findings, findings...))
	return printLive(l.s, out, target, done.Before, done.Result, written())
}

// printLive prints a plan of a live object, without what only the API server may
// write: for a repository, or to be applied again.
func printLive(s *streams, out *output, t patch.Target, before manifest.Object, r patch.Result, at stage) error {
	t.Document = manifest.Live(t.File, published(before))
	r.Object = published(r.Object)
	return printPlan(s, out, &t, r, at)
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

// after proves that the wiring is live and wakes who waits for it.
func (l *live) after(ctx context.Context, in patch.Input, r patch.Result) ([]diagnose.Finding, error) {
	table, err := patch.TableOf(&in.Target, r.Object)
	if err != nil {
		return nil, err
	}
	var findings []diagnose.Finding
	if in.Target.Kind() == patch.KindKubeVirt {
		if findings, err = l.verify(ctx, &in.Target.Document, table); err != nil {
			return findings, err
		}
	}
	if l.flags.noWake || !table.Set {
		return findings, nil
	}
	if in.Target.Managed != nil && !l.passedOn(ctx, in.Target.Managed, table) {
		return append(findings, diagnose.New("GPU0327", in.Target.Ref(), diagnose.Values{
			"target": in.Target.Ref(), "kubevirt": in.Target.Managed.Ref(),
		})), nil
	}
	woken, failed, err := l.client.WakeAll(ctx, table.Permits)
	for _, name := range slices.Sorted(maps.Keys(failed)) {
		findings = append(findings, diagnose.New("GPU0104", "VirtualMachineInstance "+name, diagnose.Values{"name": name, "problem": failed[name].Error()}))
	}
	if err != nil {
		findings = append(findings, diagnose.New("GPU0104", "cluster", diagnose.Values{"name": "some instances", "problem": err.Error()}))
	}
	if len(woken) > 0 {
		findings = append(findings, diagnose.New("GPU0103", in.Target.Ref(), diagnose.Values{"names": strings.Join(woken, ", ")}))
	}
	return findings, nil
}

// passedOn waits until HyperConverged has copied the table onto the KubeVirt CR;
// until then KubeVirt refuses instances all the same.
func (l *live) passedOn(ctx context.Context, kubevirt *manifest.Document, table gpu.Table) bool {
	ctx, cancel := context.WithTimeout(ctx, gatePatience)
	defer cancel()
	behind := func(now gpu.Table) bool {
		return slices.ContainsFunc(table.Entries, func(e gpu.Entry) bool { return !e.Disabled && !now.Permits(e.Name) })
	}
	for {
		if obj, err := l.client.Get(ctx, kubevirt); err == nil {
			now, err := patch.TableOf(&patch.Target{Document: *kubevirt}, obj)
			if err == nil && !behind(now) {
				return true
			}
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// verify asks virt-api whether it lets VMs have host devices.
func (l *live) verify(ctx context.Context, target *manifest.Document, table gpu.Table) ([]diagnose.Finding, error) {
	device := "nvidia.com/gpuctl-probe"
	for _, e := range table.Entries {
		if e.Name.IsNVIDIA() && e.Name.Check() == nil {
			device = string(e.Name)
			break
		}
	}
	err := l.client.VerifyGate(ctx, target.Meta("namespace"), device, gatePatience)
	switch {
	case err == nil:
		return nil, nil
	case errors.Is(err, cluster.ErrGateClosed):
		return nil, &patch.Refusal{Written: true, Findings: []diagnose.Finding{diagnose.New("GPU0323", target.Ref(), diagnose.Values{
			"object": target.Ref(), "namespace": target.Meta("namespace"),
		})}}
	case ctx.Err() != nil:
		return nil, fmt.Errorf("the change is written; the check of the gate was stopped: %w", err)
	default:
		return []diagnose.Finding{diagnose.New("GPU0324", target.Ref(), diagnose.Values{"reason": err.Error()})}, nil
	}
}
