package cluster

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"time"
)

// interval between two looks at something that is awaited.
const interval = 50 * time.Millisecond

// poll calls check until it returns nil. When ctx ends first, the error says
// what the last complete check returned.
func poll(ctx context.Context, check func(context.Context) error) error {
	var last error
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), last)
		case <-time.After(interval):
		}
	}
}

// appendLine adds a line to a log. A log that cannot be written is no reason to
// stop.
func appendLine(path, line string) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return
	}
	defer f.Close()
	fmt.Fprintln(f, line)
}

// tail returns the last lines of a log.
func tail(path string) []byte {
	data, err := os.ReadFile(path)
	if err != nil {
		return []byte(err.Error())
	}
	return lastLines(data)
}

func lastLines(data []byte) []byte {
	const lines = 20
	data = bytes.TrimRight(data, "\n")
	end := len(data)
	for range lines {
		if end = bytes.LastIndexByte(data[:end], '\n'); end < 0 {
			return data
		}
	}
	return data[end+1:]
}
