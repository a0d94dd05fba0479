package diagnose

import (
	"strings"
	"time"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// Agent is the agent of one node, as seen from the cluster.
type Agent struct {
	Node    string
	Pod     string        // "namespace/name"
	Problem string        // why its pod does not run, "" when it does
	Reports bool          // its Lease is valid
	Silent  time.Duration // since its Lease was renewed last, zero when it never was
}

// Agents reports the agents that do not report.
func Agents(agents []Agent) []Finding {
	var out []Finding
	for _, a := range agents {
		if !a.Reports {
			out = append(out, New("GPU0105", nodeObject(a.Node), Values{"node": a.Node, "why": a.why(), "pod": a.podArgs()}))
		}
	}
	return out
}

// podArgs returns the pod as kubectl's arguments.
func (a Agent) podArgs() string {
	namespace, name, _ := strings.Cut(a.Pod, "/")
	return "-n " + namespace + " " + name
}

func (a Agent) why() string {
	why := "it has reported nothing yet"
	if a.Silent > 0 {
		why = "nothing was heard of it for " + a.Silent.Round(time.Second).String()
	}
	if a.Problem != "" {
		why += "; " + a.Problem
	}
	return why
}

// AnyGPU reports whether a node is meant for GPUs, serves one, or has one.
func AnyGPU(nodes []gpu.Node, hosts []gpu.Host) bool {
	for i := range nodes {
		if _, meant := Unserved(&nodes[i], nil); meant || len(nodes[i].Positive()) > 0 {
			return true
		}
	}
	for i := range hosts {
		if len(hosts[i].GPUs()) > 0 {
			return true
		}
	}
	return false
}
