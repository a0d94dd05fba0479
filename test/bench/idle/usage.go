package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/gpuctl/gpuctl/test/cluster"
)

// usage is what a process has used.
type usage struct {
	resident int64 // KiB
	peak     int64
	cpu      time.Duration
}

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
		after[i].cpu -= before[i].cpu
		r.processes = append(r.processes, process{one.name, after[i]})
	}
	for _, q := range requests {
		q.User = all.nameOf(q.User)
		r.requests = append(r.requests, q)
	}
	return r, nil
}

func (all replicas) look() (at time.Time, used []usage, err error) {
	for _, r := range all {
		u, err := usageOf(r.cmd.Process.Pid)
		if err != nil {
			return at, nil, fmt.Errorf("look at %s: %w", r.name, err)
		}
		used = append(used, u)
	}
	return time.Now(), used, nil
}

// usageOf reads what proc(5) says about a process.
func usageOf(pid int) (usage, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return usage{}, err
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return usage{}, err
	}
	return parseUsage(stat, status)
}

// parseUsage reads the two files. Times are in ticks of 10 ms.
func parseUsage(stat, status []byte) (u usage, err error) {
	// The name, in brackets, may hold anything.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 {
		return u, fmt.Errorf("read the CPU time in %q", stat)
	}
	for _, field := range fields[11:13] { // utime and stime
		ticks, err := strconv.ParseInt(string(field), 10, 64)
		if err != nil {
			return u, fmt.Errorf("read the CPU time: %w", err)
		}
		u.cpu += time.Duration(ticks) * 10 * time.Millisecond
	}
	for line := range bytes.Lines(status) {
		key, value, _ := bytes.Cut(line, []byte(":"))
		switch string(key) {
		case "VmRSS":
			_, err = fmt.Sscanf(string(value), "%d kB", &u.resident)
		case "VmHWM":
			_, err = fmt.Sscanf(string(value), "%d kB", &u.peak)
		}
		if err != nil {
			return u, fmt.Errorf("read the memory in %q: %w", line, err)
		}
	}
	return u, nil
}
