package main

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuctl/gpuctl/test/bench/process"
	"github.com/gpuctl/gpuctl/test/cluster"
)

func TestReport(t *testing.T) {
	renewal := cluster.Request{User: "one", Verb: "update", Group: "coordination.k8s.io", Resource: "leases", Namespace: "gpu-system", Name: "l", Code: 200}
	get := cluster.Request{User: "two", Verb: "get", Resource: "nodes", Name: "n", Code: 404}
	dry := cluster.Request{User: "one", Verb: "create", Resource: "pods", Namespace: "a", Name: "p", Code: 201, DryRun: true}
	refused := cluster.Request{User: "one", Verb: "patch", Group: "gpuctl.dev", Resource: "gpuwirings", Subresource: "status", Name: "cluster", Code: 403}
	for name, tc := range map[string]struct {
		requests  []cluster.Request
		want      string
		wantWrong string
	}{
		"nothing happens": {
			want: "\nwrites to Leases\nnone\n\nother writes\nnone\n\ndry runs\nnone\n\nreads\nnone\n",
		},
		"a Lease is renewed, and something is read and tried": {
			requests: []cluster.Request{renewal, get, dry, renewal, renewal},
			want: `
writes to Leases
  all  a minute
    3       1.5  one  update leases.coordination.k8s.io gpu-system/l

other writes
none

dry runs
  all  a minute
    1       0.5  one  create pods a/p

reads
  all  a minute
    1       0.5  two  get nodes (404)
`,
		},
		"a write that is refused is one": {
			requests: []cluster.Request{refused},
			want: `
writes to Leases
none

other writes
  all  a minute
    1       0.5  one  patch gpuwirings.gpuctl.dev/status cluster (403)

dry runs
none

reads
none
`,
			wantWrong: "1 writes but those of Leases, want none",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := report{lasted: 2 * time.Minute, requests: tc.requests, consumers: []consumer{{"one", process.Usage{Resident: 2048, Peak: 4096, CPU: time.Second}}}}
			var out bytes.Buffer
			err := r.print(&out)
			if got := fmt.Sprint(err); err != nil && got != tc.wantWrong || err == nil && tc.wantWrong != "" {
				t.Errorf("got error %v, want %q", err, tc.wantWrong)
			}
			want := tc.want + "\nprocesses\n  RSS MiB  peak MiB  CPU s\n        2         4   1.00  one\n"
			if diff := cmp.Diff(want, out.String()); diff != "" {
				t.Errorf("report differs (-want +got):\n%s", diff)
			}
		})
	}
}
