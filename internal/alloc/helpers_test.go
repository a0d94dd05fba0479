package alloc

import (
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

const (
	h200 gpu.ResourceName = "nvidia.com/GH100_H200_SXM_141GB"
	l40s gpu.ResourceName = "nvidia.com/AD102GL_L40S"
)

var names = []gpu.ResourceName{h200, l40s}

// serves is a node with H200s, and L40Ss where a second number is given.
func serves(name string, units ...int64) Node {
	n := Node{Name: name, Serves: []Served{{Resource: h200, Units: units[0]}}}
	if len(units) > 1 {
		n.Serves = append(n.Serves, Served{Resource: l40s, Units: units[1]})
	}
	return n
}

func closed(n Node) Node { n.Closed = true; return n }

func numa(n Node, units ...int64) Node { n.Serves[0].NUMA = units; return n }

// holds is a device of H200s. The later the letter, the younger it is.
func holds(uid, node string, units int64, state State) Device {
	return Device{UID: uid, Resource: h200, Units: units, Node: node, State: state, Ordered: time.Unix(int64(uid[0]), 0)}
}

func lost(d Device) Device { d.Lost = true; return d }

// runs is a device of which the launcher has so many units.
func runs(d Device, units int64) Device { d.Running = units; return d }

func doubted(n Node) Node { n.Doubted = true; return n }

// raw is a node where pods have so many H200s without a device.
func raw(n Node, units int64) Node { n.Serves[0].Raw = units; return n }

func set(units ...int64) []Member {
	var out []Member
	for _, n := range units {
		out = append(out, Member{Resource: h200, Units: n})
	}
	return out
}

// cluster is a small made-up cluster and what is asked of it.
type cluster struct {
	nodes   []Node
	devices []Device
	request Request
}

func (c cluster) snapshot() *Snapshot { return New(c.nodes, c.devices) }

// draw makes a cluster of numbers below n that the function gives: of a seeded
// source for the oracle, of rapid for properties.
func draw(below func(n int) int, over bool) cluster {
	var c cluster
	free := map[[2]string]int64{}
	for i := range 1 + below(4) {
		n := Node{Name: string(rune('a' + i)), Closed: below(10) == 0, Doubted: below(10) == 0}
		for j, name := range names[:1+below(2)] {
			units := int64(below(9 - 4*j))
			s := Served{Resource: name, Units: units}
			if below(8) == 0 {
				s.Raw = int64(below(4))
			}
			if half := units / 2; below(3) == 0 {
				s.NUMA = []int64{half, units - half}
			}
			n.Serves = append(n.Serves, s)
			free[[2]string{n.Name, string(name)}] = max(0, units-s.Raw)
		}
		c.nodes = append(c.nodes, n)
	}
	for i := range below(8) {
		d := Device{
			UID: fmt.Sprint("d", i), Node: c.nodes[below(len(c.nodes))].Name, Resource: names[below(8)/7], Units: int64(1 + below(4)),
			State: [...]State{Held, Held, Held, Attached, Bound}[below(5)], Ordered: time.Unix(int64(below(3)), 0),
		}
		at := [2]string{d.Node, string(d.Resource)}
		if free[at] -= d.Units; free[at] < 0 && !over {
			free[at] += d.Units
			continue
		}
		if over && below(4) == 0 {
			d.Lost = true
			free[at] += d.Units
			if d.State == Attached {
				d.Running = int64(below(int(d.Units) + 1))
			}
		}
		c.devices = append(c.devices, d)
	}
	for range 1 + below(2) {
		m := Member{Resource: names[below(6)/5], Units: int64(1 + below(5))}
		if len(c.devices) > 0 && below(4) == 0 {
			d := c.devices[below(len(c.devices))]
			m = Member{UID: d.UID, Resource: d.Resource, Units: d.Units}
		}
		if m.UID == "" || !slices.ContainsFunc(c.request.Set, func(o Member) bool { return o.UID == m.UID }) {
			c.request.Set = append(c.request.Set, m)
		}
	}
	if below(3) == 0 {
		bad := string(rune('a' + below(4)))
		c.request.Fits = func(node string) Verdict {
			if node == bad {
				return "untolerated taint"
			}
			return ""
		}
	}
	return c
}

func clusters(over bool) *rapid.Generator[cluster] {
	return rapid.Custom(func(t *rapid.T) cluster {
		return draw(func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "n") }, over)
	})
}
