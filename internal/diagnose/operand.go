package diagnose

import (
	"slices"
	"strings"
)

// gathered returns the findings of the evidence with those about the parts that
// serve GPUs on the nodes.
func gathered(e *Evidence) []Finding {
	out := slices.Concat(e.Findings, Operands(e.Pods), Agents(e.Agents))
	validators := map[string]*Pod{}
	for i := range e.Pods {
		if p := &e.Pods[i]; p.Operand == Validator && p.Problem != "" {
			validators[p.Node] = p
		}
	}
	for _, f := range UnservedNodes(e.Nodes, e.Hosts) {
		out = append(out, f)
		if p := validators[strings.TrimPrefix(f.Object, "node/")]; p != nil { // where the plugin runs already, nothing waits for it
			out = append(out, operand("GPU0416", p, "it waits for the sandbox-validator, "+p.Problem))
		}
	}
	return out
}

// Operands reports the pods of gpu-operator that do not run on their nodes.
func Operands(pods []Pod) []Finding {
	codes := map[Operand]Code{VFIOManager: "GPU0216", DevicePlugin: "GPU0416", VGPUManager: "GPU0219", VGPUDeviceManager: "GPU0219"}
	var out []Finding
	for i := range pods {
		p := &pods[i]
		if code, ok := codes[p.Operand]; ok && p.Problem != "" && p.Node != "" {
			out = append(out, operand(code, p, p.Problem))
		}
	}
	return out
}

func operand(code Code, p *Pod, problem string) Finding {
	return New(code, nodeObject(p.Node), Values{"part": string(p.Operand), "node": p.Node, "problem": problem, "namespace": p.Namespace, "pod": p.Name})
}
