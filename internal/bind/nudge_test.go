package bind

import (
	"testing"
	"time"

	"github.com/gpuctl/gpuctl/internal/books"
	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/internal/tenant"
	"github.com/gpuctl/gpuctl/internal/usage"
)

// What a VM was nudged for is kept from others until it has got it.
func TestNudgerKeeps(t *testing.T) {
	now := time.Unix(1000, 0)
	for name, tc := range map[string]struct {
		got  bool
		want bool // another one finds room
	}{
		"a set that got it":      {true, true},
		"a set that was refused": {false, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := books.New()
			b.SetTree(tenant.Build([]tenant.Namespace{{Name: "acme"}}, tenant.Labels(nil, false), func(tenant.Namespace) bool { return true }))
			b.PutClass(books.Class{Name: "h200", Resource: "x/y", MaxCount: 8})
			b.PutNode(usage.Node{Facts: gpu.Node{Name: "n1", Allocatable: map[gpu.ResourceName]int64{"x/y": 8}}})
			b.PutDevice(books.Device{Device: usage.Device{UID: "other", Namespace: "acme", Name: "other", Class: "h200", Units: 4}, Ordered: now})
			n := nudger{"vm": {room: books.Room{Node: "n1", Units: map[gpu.ResourceName]int64{"x/y": 5}}, kept: now.Add(keptFor)}}

			round := b.Begin()
			n.keep(round, now)
			n.let(round, "vm", now)(tc.got)
			round.Close()

			round = b.Begin()
			defer round.Close()
			n.keep(round, now.Add(time.Second))
			if _, err := round.Place("other"); (err == nil) != tc.want {
				t.Errorf("another one is answered with %v", err)
			}
		})
	}
}
