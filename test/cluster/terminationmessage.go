package cluster

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
)

// Limits of a termination message, as kubelet has them.
const (
	maxMessage     = 4096
	maxLogMessage  = 2048
	maxLogMessages = 80 // lines
)

// terminationFile returns the local file of the container's terminationMessagePath.
func (c *container) terminationFile() string {
	return filepath.Join(c.sandbox.dir, "containers", c.spec.Name, "termination-log")
}

// resetTerminationMessage makes an empty file: each run has a message of its own.
func (c *container) resetTerminationMessage() error {
	path := c.terminationFile()
	return errors.Join(os.MkdirAll(filepath.Dir(path), 0o750), os.WriteFile(path, nil, 0o600))
}

// terminationMessage returns what the container left behind to be read.
func (c *container) terminationMessage(code int32, log string) string {
	message := readHead(c.terminationFile(), maxMessage)
	if len(message) == 0 && code != 0 && c.spec.TerminationMessagePolicy == corev1.TerminationMessageFallbackToLogsOnError {
		message = readTail(log, maxLogMessage, maxLogMessages)
	}
	return string(bytes.ToValidUTF8(message, []byte("?")))
}

func readHead(path string, limit int64) []byte {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit))
	if err != nil {
		return nil
	}
	return data
}

// readTail returns the last lines of a file, and of these the last bytes.
func readTail(path string, limit, lines int) []byte {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	data = data[lastLinesAt(data, lines):]
	return data[max(0, len(data)-limit):]
}

// lastLinesAt returns where the last lines of data begin.
func lastLinesAt(data []byte, lines int) int {
	end := len(bytes.TrimSuffix(data, []byte("\n")))
	for range lines {
		if end = bytes.LastIndexByte(data[:end], '\n'); end < 0 {
			return 0
		}
	}
	return end + 1
}
