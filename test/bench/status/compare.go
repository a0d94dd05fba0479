package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"text/tabwriter"
	"time"
)

// warmUp is how often each command runs before it is timed.
const warmUp = 2

// command is one process to time.
type command struct {
	name string
	argv []string
}

// sample is one run of a command.
type sample struct {
	wall, cpu time.Duration
	peak      int64 // resident KiB
}

// compare runs the commands in turn and prints their medians.
func compare(ctx context.Context, out io.Writer, commands []command, kubeconfig string, rounds int) error {
	samples := make([][]sample, len(commands))
	for i := range warmUp + rounds {
		for k := range commands {
			// Each comes first in turn: the API server collects its garbage every few
			// requests, and that shall not always hit the same command.
			j := (i + k) % len(commands)
			s, err := commands[j].once(ctx, kubeconfig)
			if err != nil {
				return err
			}
			if i >= warmUp {
				samples[j] = append(samples[j], s)
			}
		}
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "median s\tmin s\tmax s\town CPU s\tRSS MiB\t")
	for j, c := range commands {
		walls := sorted(samples[j], func(s sample) float64 { return s.wall.Seconds() })
		cpu := sorted(samples[j], func(s sample) float64 { return s.cpu.Seconds() })
		peak := sorted(samples[j], func(s sample) float64 { return float64(s.peak) / 1024 })
		fmt.Fprintf(w, "%.2f\t%.2f\t%.2f\t%.2f\t%.0f\t  %s\n", median(walls), walls[0], walls[len(walls)-1], median(cpu), median(peak), c.name)
	}
	return w.Flush()
}

func (c command) once(ctx context.Context, kubeconfig string) (sample, error) {
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, c.argv[0], c.argv[1:]...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	cmd.Stdout, cmd.Stderr = struct{ io.Writer }{io.Discard}, &stderr // read as by a pipe, and not kept
	start := time.Now()
	err := cmd.Run()
	s := sample{wall: time.Since(start)}
	if err != nil {
		return s, fmt.Errorf("run %s: %w: %s", c.name, err, bytes.TrimSpace(stderr.Bytes()))
	}
	s.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		s.peak = usage.Maxrss
	}
	return s, nil
}

// sorted returns one measure of all samples, the smallest first.
func sorted(samples []sample, measure func(sample) float64) []float64 {
	var out []float64
	for _, s := range samples {
		out = append(out, measure(s))
	}
	slices.Sort(out)
	return out
}

func median(sorted []float64) float64 {
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}
