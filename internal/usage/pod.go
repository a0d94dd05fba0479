package usage

import (
	"strings"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// Requests are what a container or a pod requests, in units. Of an extended
// resource Kubernetes takes whole units only, and limits are requests.
type Requests map[gpu.ResourceName]int64

// Init is an init container.
type Init struct {
	Requests Requests
	Sidecar  bool // restartPolicy Always: it runs beside the containers
}

// Pod is what is known of one pod.
type Pod struct {
	UID, Namespace, Name string
	Node                 string // "" until it is scheduled
	Done                 bool   // Succeeded or Failed: kubelet has its devices back
	Init                 []Init // in order
	Containers           []Requests
	Level                Requests // the pod's own, spec.resources
}

// Request returns how much the pod requests, as the scheduler counts: the
// containers and sidecars together, or more where an init container asks for more
// beside the sidecars that were started before it (KEP-753; component-helpers,
// resource.AggregateContainerRequests). What the pod requests at its own level
// replaces that for cpu, memory and huge pages (KEP-2837) and is nothing for any
// other resource. A request below 0, which the API server refuses, counts as 0.
func (p *Pod) Request(name gpu.ResourceName) int64 {
	if level, ok := p.Level[name]; ok && hasLevel(name) {
		return max(0, level)
	}
	var together, sidecars, peak int64
	for _, c := range p.Containers {
		together = gpu.AddUnits(together, c.of(name))
	}
	for _, c := range p.Init {
		at := gpu.AddUnits(sidecars, c.Requests.of(name))
		if c.Sidecar {
			sidecars = at
			together = gpu.AddUnits(together, c.Requests.of(name))
		}
		peak = max(peak, at)
	}
	return max(together, peak)
}

func (r Requests) of(name gpu.ResourceName) int64 { return max(0, r[name]) }

// hasLevel reports a resource that a pod can request as a whole
// (component-helpers, resource.IsSupportedPodLevelResource).
func hasLevel(name gpu.ResourceName) bool {
	return name == "cpu" || name == "memory" || strings.HasPrefix(string(name), "hugepages-")
}

// gpus returns what the pod requests of effective names, by their base, and no more than
// gpu.MaxUnits of each. One that is done requests nothing.
func (p *Pod) gpus(n Names) Requests {
	if p.Done {
		return nil
	}
	seen := map[gpu.ResourceName]bool{}
	out := Requests{}
	count := func(r Requests) {
		for name := range r {
			if seen[name] || !n.Has(name) {
				continue
			}
			seen[name] = true
			if units := min(p.Request(name), gpu.MaxUnits); units > 0 {
				out[n.Base(name)] = gpu.AddUnits(out[n.Base(name)], units)
			}
		}
	}
	count(p.Level)
	for _, c := range p.Containers {
		count(c)
	}
	for _, c := range p.Init {
		count(c.Requests)
	}
	return out
}
