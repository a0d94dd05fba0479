package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gpuctl/gpuctl/test/bench/process"
	"github.com/gpuctl/gpuctl/test/cluster"
)

// report is what was seen of the replicas.
type report struct {
	lasted    time.Duration
	requests  []cluster.Request // User is the replica's name
	consumers []consumer
}

type consumer struct {
	name string
	used process.Usage
}

// kind says what a request is to an idle cluster.
type kind int

const (
	read   kind = iota
	lease       // a write to a Lease
	dryRun      // which stores nothing
	other       // a write that there is no reason for
)

// kindOf tells writes apart. One that was refused is one: it will be tried again.
func kindOf(r cluster.Request) kind {
	switch {
	case !r.IsWrite():
		return read
	case r.DryRun:
		return dryRun
	case r.Group == coordinationv1.GroupName && r.Resource == "leases":
		return lease
	}
	return other
}

// line is what is counted together.
type line struct{ user, what string }

// print prints all tables. Writes but those of Leases are an error.
func (r *report) print(out io.Writer) error {
	counts := map[kind]map[line]int{}
	others := 0
	for _, q := range r.requests {
		k := kindOf(q)
		if counts[k] == nil {
			counts[k] = map[line]int{}
		}
		if k == other {
			others++
		}
		counts[k][line{q.User, describe(q)}]++
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, section := range []struct {
		kind  kind
		title string
	}{
		{lease, "writes to Leases"}, {other, "other writes"}, {dryRun, "dry runs"}, {read, "reads"},
	} {
		fmt.Fprintf(w, "\n%s\n", section.title)
		r.printCounts(w, counts[section.kind])
	}
	fmt.Fprintf(w, "\nprocesses\nRSS MiB\tpeak MiB\tCPU s\t\n")
	for _, p := range r.consumers {
		fmt.Fprintf(w, "%.0f\t%.0f\t%.2f\t  %s\n", float64(p.used.Resident)/1024, float64(p.used.Peak)/1024, p.used.CPU.Seconds(), p.name)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if others > 0 {
		return fmt.Errorf("%d writes but those of Leases, want none", others)
	}
	return nil
}

// most is how many lines a table has: a loop may write ever new objects.
const most = 40

// printCounts prints the requests of one kind, the most frequent first.
func (r *report) printCounts(w io.Writer, counts map[line]int) {
	lines := slices.SortedFunc(maps.Keys(counts), func(a, b line) int {
		return cmp.Or(cmp.Compare(a.user, b.user), cmp.Compare(counts[b], counts[a]), cmp.Compare(a.what, b.what))
	})
	if len(lines) == 0 {
		fmt.Fprintf(w, "none\n")
		return
	}
	fmt.Fprintf(w, "all\ta minute\t\n")
	for i, l := range lines {
		if i == most {
			fmt.Fprintf(w, "and %d lines more\n", len(lines)-most)
			return
		}
		fmt.Fprintf(w, "%d\t%.1f\t  %s  %s\n", counts[l], float64(counts[l])/r.lasted.Minutes(), l.user, l.what)
	}
}

// describe says what was asked for: "patch gpuwirings.gpuctl.dev/status cluster", and
// the code of a response that is none of success. Reads are by kind, not by object.
func describe(r cluster.Request) string {
	what := schema.GroupResource{Group: r.Group, Resource: cmp.Or(r.Resource, "discovery and the like")}.String()
	if r.Subresource != "" {
		what += "/" + r.Subresource
	}
	if name := r.Name; r.IsWrite() {
		if r.Namespace != "" {
			name = r.Namespace + "/" + name
		}
		what += " " + name
	}
	if r.Code >= 400 {
		what += fmt.Sprintf(" (%d)", r.Code)
	}
	return r.Verb + " " + what
}
