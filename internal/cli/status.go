package cli

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpuctl/gpuctl/internal/cluster"
	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/internal/render"
)

// statusFlags are the flags of status.
type statusFlags struct {
	evidenceFlags
	failOn   failOn
	watch    bool
	interval time.Duration
}

func newStatus(s *streams) *cobra.Command {
	var flags statusFlags
	var out output
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the wiring, the GPUs of each node, and who waits for one",
		Long: `Show the wiring, the GPUs of each node, and who waits for one, on one screen.

Each GPU is one sign: used, free, unusable, or not known. On a terminal they are
■ □ ✘ ?, in a pipe # . x ?. Where there are many nodes, those without a note are
summed up; -o wide shows them all, and the resource names.

Without -f the cluster is read. -o json and -o yaml print the same in a form that
docs/status.md describes.`,
		Example: `  gpuctl status
  gpuctl status --watch
  gpuctl status -o json | jq .totals
  gpuctl status --fail-on warning -o short
  gpuctl status -f gpu-trouble.tar.gz`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runStatus(cmd.Context(), s, &flags, &out) },
	}
	flags.evidenceFlags.add(cmd)
	flags.failOn.flag(cmd)
	cmd.Flags().BoolVarP(&flags.watch, "watch", "w", false, "keep looking, and show what changes")
	cmd.Flags().DurationVar(&flags.interval, "interval", 5*time.Second, "with --watch: time between two looks")
	out.flag(cmd, "table", "wide", "json", "yaml", "short")
	return cmd
}

func runStatus(ctx context.Context, s *streams, flags *statusFlags, out *output) error {
	if err := flags.check(); err != nil {
		return err
	}
	if flags.offline() {
		if flags.watch {
			return usagef("--watch looks at a cluster: it does not go with -f, --lspci or --log")
		}
		m, err := flags.fromObjects(s)
		if err != nil {
			return err
		}
		return flags.show(s, out, &m)
	}
	client, err := flags.connect()
	if err != nil {
		return err
	}
	if flags.watch {
		return flags.keepLooking(ctx, s, out, client)
	}
	m, err := flags.fromCluster(ctx, s, client)
	if err != nil {
		return err
	}
	return flags.show(s, out, &m)
}

// show prints one look.
func (f *statusFlags) show(s *streams, out *output, m *material) error {
	o, err := f.overview(s, m)
	if err != nil {
		return err
	}
	if err := printOverview(s, out, s.printer(), &o, m.asOf()); err != nil {
		return err
	}
	return f.failOn.check(o.Findings)
}

func (f *statusFlags) overview(s *streams, m *material) (diagnose.Overview, error) {
	e, notes, err := f.evidence(m)
	for _, note := range notes {
		fmt.Fprintln(s.err, "note:", note)
	}
	if err != nil {
		return diagnose.Overview{}, err
	}
	return diagnose.Look(&e), nil
}

// printOverview prints an overview as of the time at which the cluster was read.
func printOverview(s *streams, out *output, p *render.Printer, o *diagnose.Overview, at time.Time) error {
	if done, err := out.structured(s, o); done {
		return err
	}
	if out.is("short") {
		return p.ShortStatus(o)
	}
	return p.Status(o, at, out.is("wide"))
}

// keepLooking shows the cluster again and again until it is stopped: on a terminal in
// place, in a pipe whenever something has changed. A cluster that does not answer is
// said so, and asked again.
func (f *statusFlags) keepLooking(ctx context.Context, s *streams, out *output, client *cluster.Client) error {
	inPlace := terminal(s.out)
	last := ""
	for {
		var screen bytes.Buffer
		started := time.Now()
		f.lookOnce(ctx, s, &screen, s.look(s.out), out, client)
		text := screen.String()
		select {
		case <-ctx.Done(): // stopped, as one stops a watch
			return nil
		default:
		}
		switch {
		case inPlace:
			fmt.Fprint(s.out, redraw(text))
		case text != last:
			fmt.Fprint(s.out, text)
		}
		last = text
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(max(f.interval, time.Since(started))): // never more than half of the time
		}
	}
}

// lookOnce reads the cluster and prints it to a buffer as the stream will show it, or
// prints why it could not be read.
func (f *statusFlags) lookOnce(ctx context.Context, s *streams, screen *bytes.Buffer, as render.Look, out *output, client *cluster.Client) {
	shot := &streams{out: screen, err: screen, program: s.program}
	m, err := f.fromCluster(ctx, shot, client)
	var o diagnose.Overview
	if err == nil {
		o, err = f.overview(shot, &m)
	}
	if err == nil {
		err = printOverview(shot, out, render.New(screen, as), &o, m.asOf())
	}
	if err != nil {
		screen.Reset()
		fmt.Fprintf(screen, "error: %v\n", err)
	}
}

// redraw puts a text in the place of the last one on a terminal, without flicker:
// each line is overwritten, and what is left below is erased.
func redraw(text string) string {
	return "\x1b[H" + strings.ReplaceAll(text, "\n", "\x1b[K\n") + "\x1b[J"
}
