package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpuctl/gpuctl/charts"
	"github.com/gpuctl/gpuctl/internal/cluster"
	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/internal/manifest"
	"github.com/gpuctl/gpuctl/internal/patch"
	"github.com/gpuctl/gpuctl/internal/release"
)

// releaseFlags are the flags of install, upgrade and uninstall.
type releaseFlags struct {
	clusterFlags
	namespace, name string
	timeout         time.Duration
	wait            bool
}

func (f *releaseFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	f.clusterFlags.add(cmd)
	flags.StringVarP(&f.namespace, "namespace", "n", "gpuctl-system", "`NAMESPACE` of the release")
	flags.StringVar(&f.name, "release-name", charts.GPUOperatorHooks, "`NAME` of the release")
	flags.DurationVar(&f.timeout, "timeout", 5*time.Minute, "time for each thing that is waited for, a hook for example")
}

// changeFlags are those of install and upgrade.
type changeFlags struct {
	releaseFlags
	values release.Values
	dryRun bool
}

func (f *changeFlags) add(cmd *cobra.Command) {
	f.releaseFlags.add(cmd)
	flags := cmd.Flags()
	flags.StringArrayVarP(&f.values.Files, "values", "f", nil, "read values from `FILE`, - for stdin (repeatable)")
	flags.StringArrayVar(&f.values.Sets, "set", nil, "set a value: `KEY=VALUE` (repeatable)")
	flags.StringArrayVar(&f.values.SetStrings, "set-string", nil, "set a value to a text: `KEY=VALUE` (repeatable)")
	flags.BoolVar(&f.dryRun, "dry-run", false, "print what would be written, and write nothing")
	flags.BoolVar(&f.wait, "wait", false, "wait until the agents are ready")
}

// enabled are the values that install has unless the user says else.
func enabled(*release.Client) (map[string]any, error) {
	return map[string]any{"gpu": map[string]any{"enabled": true}}, nil
}

// stored are the values that upgrade has unless the user says else.
func stored(helm *release.Client) (map[string]any, error) {
	last, err := helm.Status()
	return last.Values, err
}

func newInstall(s *streams) *cobra.Command {
	var flags changeFlags
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Install gpuctl in a cluster: node agents, and the hook that wires KubeVirt",
		Long: `Install gpuctl in a cluster: node agents, and the hook that wires KubeVirt.

It is a Helm release of the chart gpu-operator-hooks that this binary carries; helm
sees it and can go on with it. Before anything is written the cluster is looked at:
its version, KubeVirt, gpu-operator, and what you may do. gpu.enabled is true unless
you say else; all values are in the chart's README.`,
		Example: `  gpuctl install
  gpuctl install --dry-run > gpuctl.yaml
  gpuctl install --wait --set gpu.variant=vgpu -f values.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runChange(cmd.Context(), s, &flags, enabled, (*release.Client).Install)
		},
	}
	flags.add(cmd)
	return cmd
}

func newUpgrade(s *streams) *cobra.Command {
	var flags changeFlags
	cmd := &cobra.Command{
		Use:   "upgrade",
		Short: "Bring the release to this gpuctl's chart, and wire again",
		Long: `Bring the release to this gpuctl's chart, and wire again.

Values that an earlier install or upgrade was given stay, unless you give others. The
hook wires what has come since.`,
		Example: `  gpuctl upgrade
  gpuctl upgrade --set hook.strict=true`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runChange(cmd.Context(), s, &flags, stored, (*release.Client).Upgrade)
		},
	}
	flags.add(cmd)
	return cmd
}

type (
	// baser returns the values that lie below the user's.
	baser   func(*release.Client) (map[string]any, error)
	changer func(*release.Client, context.Context, release.Change) (release.Result, error)
)

// runChange looks at the cluster, changes the release, and says what came of it.
func runChange(ctx context.Context, s *streams, flags *changeFlags, base baser, do changer) error {
	progress := newProgress(s)
	defer progress.done()
	client, helm, err := flags.open(progress)
	if err != nil {
		return err
	}
	values, err := flags.values.Merge()
	if err != nil {
		return usageError{err}
	}
	defaults, err := base(helm)
	if err != nil {
		return flags.explain(ctx, client, err)
	}
	effective, err := release.NewEffective(values, defaults)
	if err != nil {
		return err
	}
	if err := flags.preflight(ctx, s, client, effective); err != nil {
		return err
	}
	done, err := do(helm, ctx, release.Change{
		Values: values, Defaults: defaults, DryRun: flags.dryRun, Wait: flags.wait, Timeout: flags.timeout,
	})
	progress.done()
	if err != nil {
		return flags.explain(ctx, client, err)
	}
	if flags.dryRun {
		_, err := fmt.Fprint(s.out, done.Manifest)
		return err
	}
	fmt.Fprintf(s.err, "release %s in namespace %s is at revision %d\n", flags.name, flags.namespace, done.Revision)
	if done.Notes != "" {
		fmt.Fprintf(s.err, "\n%s\n", done.Notes)
	}
	return nil
}

// open makes the clients of the cluster and of the release.
func (f *releaseFlags) open(p *progress) (*cluster.Client, *release.Client, error) {
	client, err := f.connect()
	if err != nil {
		return nil, nil, err
	}
	helm, err := release.Open(release.Options{
		Kubeconfig: f.kubeconfig, Context: f.kubeContext, Namespace: f.namespace, Name: f.name, Progress: p.step,
	})
	return client, helm, err
}

// preflight stops before anything is written when it cannot end well.
func (f *changeFlags) preflight(ctx context.Context, s *streams, client *cluster.Client, values release.Effective) error {
	facts, err := client.Preflight(ctx, f.namespace, f.name, fmt.Sprint(values.Get("gpu.variant")))
	if err != nil {
		return err
	}
	facts.KubeVirt, err = kubeVirtOf(ctx, client)
	if err != nil {
		facts.Unknown = append(facts.Unknown, fmt.Sprintf("KubeVirt: %v", err))
	}
	if values.Get("crds.enabled") == false {
		facts.CRDOwner = ""
	}
	findings := facts.Findings()
	if len(findings) > 0 && findings[0].Severity == diagnose.Error {
		_ = s.commentary().Findings(findings)
		return errors.New("nothing was written: see the findings of severity error above")
	}
	return s.commentary().Findings(findings)
}

// kubeVirtOf returns the KubeVirt that wiring would go by, nil when there is none.
func kubeVirtOf(ctx context.Context, client *cluster.Client) (*diagnose.KubeVirt, error) {
	docs, err := client.KubeVirts(ctx)
	if err != nil {
		return nil, err
	}
	kubevirt, managed, err := patch.KubeVirt(docs)
	if err != nil || kubevirt == nil {
		return nil, err
	}
	text := func(field string) string {
		v, _ := manifest.Lookup(kubevirt.Object, manifest.Path{"status", field})
		s, _ := v.(string)
		return s
	}
	return &diagnose.KubeVirt{
		Ref: kubevirt.Ref(), Phase: text("phase"), Version: text("observedKubeVirtVersion"), HyperConverged: managed,
	}, nil
}

// explain says what to do about an error of Helm's.
func (f *releaseFlags) explain(ctx context.Context, client *cluster.Client, err error) error {
	var hook *release.HookError
	switch {
	case errors.Is(err, release.ErrExists):
		return fmt.Errorf("%w; run: gpuctl upgrade -n %s --release-name %s", err, f.namespace, f.name)
	case errors.Is(err, release.ErrNotFound):
		return fmt.Errorf("%w; run: gpuctl install -n %s --release-name %s; helm list -A shows all releases", err, f.namespace, f.name)
	case errors.Is(err, release.ErrPending):
		return fmt.Errorf("%w; if it was: gpuctl uninstall -n %s --release-name %s, or to keep an earlier revision: helm rollback -n %s %s", err, f.namespace, f.name, f.namespace, f.name)
	case errors.As(err, &hook):
		return f.explainHook(ctx, client, hook.Job, err)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w; see: kubectl -n %s get pods", err, f.namespace)
	}
	return client.Explain(err)
}

// explainHook says why a hook failed.
func (f *releaseFlags) explainHook(ctx context.Context, client *cluster.Client, job string, err error) error {
	if job == "" {
		return client.Explain(err)
	}
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	why, readErr := client.HookFailure(asking, f.namespace, job)
	if readErr != nil || why == "" {
		return fmt.Errorf("%w; see: kubectl -n %s logs job/%s", err, f.namespace, job)
	}
	return fmt.Errorf("%w; the hook says:\n%s\nsee: kubectl -n %s logs job/%s", err, why, f.namespace, job)
}
