// Package process reads what a process has used, as Linux tells it.
package process

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"
)

// Usage is what a process has used.
type Usage struct {
	Resident int64 // memory now, KiB
	Peak     int64 // the most that it ever was, KiB
	CPU      time.Duration
}

// Of reads what proc(5) says about a process.
func Of(pid int) (Usage, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Usage{}, err
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return Usage{}, err
	}
	return parse(stat, status)
}

// parse reads the two files. Times are in ticks of 10 ms.
func parse(stat, status []byte) (u Usage, err error) {
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
		u.CPU += time.Duration(ticks) * 10 * time.Millisecond
	}
	for line := range bytes.Lines(status) {
		key, value, _ := bytes.Cut(line, []byte(":"))
		switch string(key) {
		case "VmRSS":
			_, err = fmt.Sscanf(string(value), "%d kB", &u.Resident)
		case "VmHWM":
			_, err = fmt.Sscanf(string(value), "%d kB", &u.Peak)
		}
		if err != nil {
			return u, fmt.Errorf("read the memory in %q: %w", line, err)
		}
	}
	return u, nil
}
