package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"text/tabwriter"
	"time"
)

// warmUp is how often each command runs before it is timed.
const warmUp = 3

// comparison is a set of commands that are timed side by side.
type comparison struct {
	title    string
	missing  string // why it cannot be made here; "" when it can
	commands []command
	cleanUp  func()
}

// command is one process to time.
type command struct {
	name string
	argv []string
	// less names a command of the same comparison whose time is subtracted,
	// run by run, in an extra row.
	less string
}

// series holds the wall times of one command, in the order of its runs.
type series []time.Duration

// measure runs the commands in turn and returns one series for each.
func (c comparison) measure(ctx context.Context, runs int) ([]series, error) {
	times := make([]series, len(c.commands))
	for i := range warmUp + runs {
		for j, cmd := range c.commands {
			took, err := cmd.once(ctx)
			if err != nil {
				return nil, err
			}
			if i >= warmUp {
				times[j] = append(times[j], took)
			}
		}
	}
	return times, nil
}

func (c command) once(ctx context.Context) (time.Duration, error) {
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, c.argv[0], c.argv[1:]...)
	cmd.Stderr = &stderr
	start := time.Now()
	err := cmd.Run()
	took := time.Since(start)
	if err != nil {
		return 0, fmt.Errorf("run %s: %w: %s", c.name, err, bytes.TrimSpace(stderr.Bytes()))
	}
	return took, nil
}

func (c comparison) print(out io.Writer, times []series) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(out, "\n%s\n", c.title)
	fmt.Fprintln(w, "median\tmin\tmax\t")
	for i, cmd := range c.commands {
		row(w, cmd.name, times[i])
		if j := slices.IndexFunc(c.commands, func(o command) bool { return o.name == cmd.less }); j >= 0 {
			row(w, cmd.name+" less "+cmd.less, times[i].less(times[j]))
		}
	}
	return w.Flush()
}

// row prints the name last, where it may be of any length.
func row(w io.Writer, name string, s series) {
	sorted := slices.Sorted(slices.Values(s))
	fmt.Fprintf(w, "%s\t%s\t%s\t  %s\n", ms(s.median()), ms(sorted[0]), ms(sorted[len(sorted)-1]), name)
}

// less returns the differences run by run.
func (s series) less(other series) series {
	out := make(series, len(s))
	for i := range s {
		out[i] = s[i] - other[i]
	}
	return out
}

func (s series) median() time.Duration {
	sorted := slices.Sorted(slices.Values(s))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

func ms(d time.Duration) string {
	return fmt.Sprintf("%.1f", float64(d)/float64(time.Millisecond))
}
