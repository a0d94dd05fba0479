package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestMedian(t *testing.T) {
	for name, tc := range map[string]struct {
		times series
		want  time.Duration
	}{
		"odd":  {series{9, 1, 5}, 5},
		"even": {series{8, 1, 4, 100}, 6},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.times.median(); got != tc.want {
				t.Errorf("median of %v: got %d, want %d", tc.times, got, tc.want)
			}
		})
	}
}

func TestPrint(t *testing.T) {
	c := comparison{title: "Reading", commands: []command{{name: "read", less: "start"}, {name: "start"}}}
	ms := time.Millisecond
	var out bytes.Buffer
	if err := c.print(&out, []series{{10 * ms, 12 * ms, 30 * ms}, {4 * ms, 2 * ms, 3 * ms}}); err != nil {
		t.Fatal(err)
	}
	want := `
Reading
  median   min   max
    12.0  10.0  30.0  read
    10.0   6.0  27.0  read less start
     3.0   2.0   4.0  start
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}

func TestFailingCommandIsAnError(t *testing.T) {
	c := comparison{commands: []command{{name: "fails", argv: []string{"go", "no-such-command"}}}}
	if _, err := c.measure(t.Context(), 1); err == nil {
		t.Error("got no error")
	}
}
