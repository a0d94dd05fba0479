package main

import (
	"context"
	"fmt"
	"time"

	"github.com/gpuctl/gpuctl/test/bench/process"
	"github.com/gpuctl/gpuctl/test/cluster"
)

// watch waits for a while and returns what the replicas did meanwhile.
func (all replicas) watch(ctx context.Context, c cluster.Running, d time.Duration) (report, error) {
	began, before, err := all.look()
	if err != nil {
		return report{}, err
	}
	select {
	case <-ctx.Done():
		return report{}, context.Cause(ctx)
	case <-time.After(d):
	}
	ended, after, err := all.look()
	if err != nil {
		return report{}, err
	}
	requests, err := c.Requests(began, func(user string) bool { return all.nameOf(user) != "" })
	if err != nil {
		return report{}, err
	}
	r := report{lasted: ended.Sub(began)}
	for i, one := range all {
		after[i].CPU -= before[i].CPU
		r.consumers = append(r.consumers, consumer{one.name, after[i]})
	}
	for _, q := range requests {
		q.User = all.nameOf(q.User)
		r.requests = append(r.requests, q)
	}
	return r, nil
}

func (all replicas) look() (at time.Time, used []process.Usage, err error) {
	for _, r := range all {
		u, err := process.Of(r.cmd.Process.Pid)
		if err != nil {
			return at, nil, fmt.Errorf("look at %s: %w", r.name, err)
		}
		used = append(used, u)
	}
	return time.Now(), used, nil
}
