//go:build !linux

package discover

import "os"

// readFile reads at most limit bytes. Only copies of a Linux machine's /sys can
// be read here, so nothing is won by being quick.
func readFile(path string, limit int) ([]byte, error) {
	data, err := os.ReadFile(path)
	return data[:min(len(data), limit)], err
}
