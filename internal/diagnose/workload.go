package diagnose

import (
	"maps"
	"slices"
	"strings"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// Workloads reports device names that KubeVirt or the scheduler will refuse:
// t is the table as it will be, permit suggests a flag for a name.
func Workloads(t gpu.Table, nodes []gpu.Node, workloads []gpu.Workload, permit func(gpu.ResourceName) string) []Finding {
	c := workloadCheck{table: t, nodes: nodes, served: Served(nodes), permit: permit}
	var out []Finding
	for _, w := range workloads {
		for _, name := range w.Names() {
			if x, bad := c.name(w, name); bad {
				out = append(out, x)
			}
		}
	}
	return out
}

type workloadCheck struct {
	table  gpu.Table
	nodes  []gpu.Node
	served map[gpu.ResourceName]int64
	permit func(gpu.ResourceName) string
}

// name judges one device name of a workload. The order matters: the first
// thing that is wrong explains the rest.
func (c *workloadCheck) name(w gpu.Workload, name gpu.ResourceName) (Finding, bool) {
	if f, bad := c.impossible(w, name); bad {
		return f, true
	}
	object, values := w.Ref(), Values{"user": w.Ref(), "name": shown(name)}
	switch {
	case c.served[name] == 0 && len(c.nodes) > 0: // without nodes it is not known
		values["near"], values["hint"] = c.alternatives(name)
		return New("GPU0501", object, values), true
	case c.table.Set && !c.table.Permits(name):
		values["nodes"], values["permit"] = c.server(name), c.permit(name)
		return New("GPU0504", object, values), true
	}
	return Finding{}, false
}

// impossible judges a name that can never lead to a GPU, whatever nodes serve.
func (c *workloadCheck) impossible(w gpu.Workload, name gpu.ResourceName) (Finding, bool) {
	object, values := w.Ref(), Values{"user": w.Ref(), "name": string(name)}
	switch {
	case !strings.Contains(string(name), "/"):
		values["example"], values["owner"] = c.example(), ""
		if w.Owner != "" {
			values["owner"] = "; change it in " + w.Owner + ", which writes the object"
		}
		return New("GPU0502", object, values), true
	case name.IsContainer():
		values["example"] = ""
		if served := c.passthroughNames(); len(served) > 0 {
			values["example"] = ": " + strings.Join(served, ", ")
		}
		return New("GPU0503", object, values), true
	}
	return Finding{}, false
}

// alternatives names what the workload could ask for instead.
func (c *workloadCheck) alternatives(name gpu.ResourceName) (near, hint string) {
	if other, ok := nearMiss(name, c.served); ok {
		near = "; nodes serve " + string(other) + ", and names are compared letter by letter"
		if shown(name) != string(name) {
			near += ", blanks included"
		}
		return near, "write " + string(other)
	}
	var served []string
	for _, name := range c.passthroughNames() {
		served = append(served, units(c.served[gpu.ResourceName(name)], gpu.ResourceName(name)))
	}
	if other, ok := meant(name, c.passthroughNames()); ok {
		return "; it is close to " + other, "write " + other + " if that is meant; served now: " + strings.Join(served, ", ")
	}
	if len(served) == 0 {
		return "", "no node serves an NVIDIA GPU for VMs yet; see the findings about the nodes"
	}
	return "", "served now: " + strings.Join(served, ", ")
}

// passthroughNames lists what nodes serve to VMs under nvidia.com/.
func (c *workloadCheck) passthroughNames() []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(c.served)) {
		if name.IsNVIDIA() && !name.IsContainer() {
			out = append(out, string(name))
		}
	}
	return out
}

func (c *workloadCheck) example() string {
	if names := c.passthroughNames(); len(names) > 0 {
		return names[0]
	}
	return "nvidia.com/AD102GL_L40S"
}

// server says that a node serves the name; "" where none is known to.
func (c *workloadCheck) server(name gpu.ResourceName) string {
	for i := range c.nodes {
		if c.nodes[i].Allocatable[name] > 0 {
			return " although node " + c.nodes[i].Name + " serves it"
		}
	}
	return ""
}
