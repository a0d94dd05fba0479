package release

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/release"
)

// Change is an installation or an upgrade.
type Change struct {
	Values   map[string]any // the user's
	Defaults map[string]any // of an installation: values that the user's override
	DryRun   bool           // render by the server, write nothing
	Wait     bool           // until all pods are ready
	Timeout  time.Duration  // of each thing that is waited for
}

// Result is a revision of the release.
type Result struct {
	Revision int
	Manifest string // YAML of all objects, hooks at the end
	Notes    string
}

// Install makes the release, and its namespace if need be. The error is
// [ErrExists] when it is there already, and may be [ErrPending] or a [HookError].
func (c *Client) Install(ctx context.Context, change Change) (Result, error) {
	was, err := c.idle()
	switch {
	case errors.Is(err, ErrNotFound):
	case err != nil:
		return Result{}, err
	case was.Status != release.StatusUninstalled.String():
		return Result{}, fmt.Errorf("%s, revision %d, status %s: %w", c, was.Revision, was.Status, ErrExists)
	}
	chart, err := load()
	if err != nil {
		return Result{}, err
	}
	do := action.NewInstall(c.config)
	do.ReleaseName, do.Namespace, do.CreateNamespace = c.options.Name, c.options.Namespace, true
	do.Replace = true // one that was uninstalled and kept
	do.Wait, do.Timeout, do.DryRun = change.Wait, change.Timeout, change.DryRun
	if change.DryRun {
		do.DryRunOption = "server"
	}
	done, err := do.RunWithContext(ctx, chart, over(change.Values, change.Defaults))
	if err != nil {
		return Result{}, c.failure("install", err)
	}
	return result(done), nil
}

// Upgrade makes a new revision of the release. Without values of its own it keeps
// those of the last one. The error is [ErrNotFound] when there is no release, and may
// be [ErrPending] or a [HookError].
func (c *Client) Upgrade(ctx context.Context, change Change) (Result, error) {
	if _, err := c.idle(); err != nil {
		return Result{}, err
	}
	chart, err := load()
	if err != nil {
		return Result{}, err
	}
	do := action.NewUpgrade(c.config)
	do.Namespace, do.ResetThenReuseValues = c.options.Namespace, true
	do.Wait, do.Timeout, do.DryRun = change.Wait, change.Timeout, change.DryRun
	if change.DryRun {
		do.DryRunOption = "server"
	}
	done, err := do.RunWithContext(ctx, c.options.Name, chart, change.Values)
	if err != nil {
		return Result{}, c.failure("upgrade", err)
	}
	return result(done), nil
}

// Uninstall deletes the release. Without hooks nothing takes the wiring away. The
// error is a [HookError] when the hook before the deletion failed: then nothing is
// deleted yet.
func (c *Client) Uninstall(ctx context.Context, timeout time.Duration, hooks, wait bool) error {
	if _, err := c.Status(); err != nil {
		return err
	}
	do := action.NewUninstall(c.config)
	do.Timeout, do.DisableHooks, do.Wait = timeout, !hooks, wait
	ended := make(chan error, 1)
	go func() { // Helm itself does not listen to a context here
		done, err := do.Run(c.options.Name)
		if err != nil && done != nil && done.Release != nil && done.Release.Info.Status == release.StatusUninstalling {
			err = &HookError{Job: c.failed.get(), Err: oneLine{err}}
		}
		ended <- err
	}()
	select {
	case err := <-ended:
		if err != nil {
			return fmt.Errorf("uninstall %s: %w", c, err)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("uninstall %s: %w", c, ctx.Err())
	}
}

// idle returns the state of the release; the error is [ErrPending] when somebody is
// at work on it.
func (c *Client) idle() (Status, error) {
	was, err := c.Status()
	if err == nil && release.Status(was.Status).IsPending() {
		err = fmt.Errorf("%s, revision %d, status %s: %w", c, was.Revision, was.Status, ErrPending)
	}
	return was, err
}

// failure says what failed.
func (c *Client) failure(verb string, err error) error {
	err = oneLine{err}
	if job := c.failed.get(); job != "" {
		err = &HookError{Job: job, Err: err}
	}
	return fmt.Errorf("%s %s: %w", verb, c, err)
}

func result(r *release.Release) Result {
	out := Result{Revision: r.Version, Manifest: strings.TrimPrefix(r.Manifest, "\n")}
	for _, h := range r.Hooks {
		out.Manifest += fmt.Sprintf("---\n# Source: %s\n%s\n", h.Path, strings.TrimSpace(h.Manifest))
	}
	if r.Info != nil {
		out.Notes = r.Info.Notes
	}
	return out
}
