package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	testcluster "github.com/gpuctl/gpuctl/test/cluster"
)

// run measures how fast the binder gives orders their units: against a bare client that
// makes the same writes, with orders beside them that nothing can meet, and how long one
// order takes.
func (o *options) run(ctx context.Context, out io.Writer) error {
	return testcluster.Use(ctx, os.Stderr, func(ctx context.Context, c testcluster.Running) error {
		return o.measure(ctx, out, c)
	}, testcluster.APIOnly())
}

func (o *options) measure(ctx context.Context, out io.Writer, c testcluster.Running) error {
	if o.rounds < 1 || o.orders < 1 || o.orders > 8*o.nodes || o.workers < 1 || o.rate < 1 {
		return fmt.Errorf("%d rounds of %d orders by %d clients, %d a second, on %d nodes of 8 GPUs: that is nothing to measure",
			o.rounds, o.orders, o.workers, o.rate, o.nodes)
	}
	s, err := newStage(ctx, c.Config, o)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s; %d nodes of 8 GPUs, %d orders a round by %d clients, %d rounds in turn\n", machine(), o.nodes, o.orders, o.workers, o.rounds)
	var bare, bound, beside []float64
	for range o.rounds {
		if err := s.round(ctx, s.bare, &bare); err != nil {
			return err
		}
		if err := s.withBinder(ctx, func(ctx context.Context) error { return s.round(ctx, s.binder, &bound) }); err != nil {
			return err
		}
	}
	report(out, "a bare client, orders/s", bare)
	report(out, "the binder, orders/s", bound)
	fmt.Fprintf(out, "binder : bare client %.2f\n", median(bound)/median(bare))

	bound = nil
	for range o.rounds {
		if err := s.withBinder(ctx, func(ctx context.Context) error { return s.round(ctx, s.binder, &bound) }); err != nil {
			return err
		}
		if err := s.hopeless(ctx, o.hopeless); err != nil {
			return err
		}
		if err := s.withBinder(ctx, func(ctx context.Context) error { return s.round(ctx, s.binder, &beside) }); err != nil {
			return err
		}
		if err := s.clear(ctx); err != nil {
			return err
		}
	}
	report(out, "the binder, orders/s", bound)
	report(out, fmt.Sprintf("beside %d that cannot be met", o.hopeless), beside)
	fmt.Fprintf(out, "beside : without %.2f\n", median(beside)/median(bound))

	return s.withBinder(ctx, func(ctx context.Context) error {
		took, err := s.each(ctx)
		if err != nil {
			return err
		}
		slices.Sort(took)
		fmt.Fprintf(out, "from the order to Held, %d a second: p50 %s, p99 %s, of %d\n", o.rate,
			took[len(took)/2].Round(100*time.Microsecond), took[len(took)*99/100].Round(100*time.Microsecond), len(took))
		return nil
	})
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

func report(out io.Writer, what string, values []float64) {
	fmt.Fprintf(out, "%-36s %6.1f [%.1f..%.1f]\n", what, median(values), slices.Min(values), slices.Max(values))
}
