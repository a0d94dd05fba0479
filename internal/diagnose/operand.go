package diagnose

import "slices"

// gathered returns the findings of the evidence with those about the parts that
// serve GPUs on the nodes.
func gathered(e *Evidence) []Finding {
	out := slices.Concat(e.Findings, Operands(e.Pods), Agents(e.Agents))
	hosts := newIndex(&Evidence{Hosts: e.Hosts}).hosts
	for i := range e.Nodes {
		n := &e.Nodes[i]
		if why, missing := Unserved(n, hosts[n.Name]); missing {
			out = append(out, New("GPU0102", nodeObject(n.Name), Values{"node": n.Name, "why": why}))
		}
	}
	return out
}

// Operands reports the pods of gpu-operator that do not run on their nodes.
func Operands(pods []Pod) []Finding {
	codes := map[Operand]Code{VFIOManager: "GPU0216", DevicePlugin: "GPU0416"}
	var out []Finding
	for i := range pods {
		p := &pods[i]
		if code, ok := codes[p.Operand]; ok && p.Problem != "" && p.Node != "" {
			out = append(out, New(code, nodeObject(p.Node), Values{
				"node": p.Node, "problem": p.Problem, "namespace": p.Namespace, "pod": p.Name,
			}))
		}
	}
	return out
}
