// Package often checks properties as often as a change's tests have time for.
package often

import (
	"testing"

	"pgregory.net/rapid"
)

const (
	runs      = 10_000
	shortRuns = 200 // with -short
	perCheck  = 100 // rapid's own, unless -rapid.checks is given
)

// Check checks a property of which one run takes microseconds 10,000 times.
func Check(t *testing.T, property func(*rapid.T)) {
	t.Helper()
	n := runs
	if testing.Short() {
		n = shortRuns
	}
	for done := 0; done < n && !t.Failed(); done += perCheck {
		rapid.Check(t, property)
	}
}
