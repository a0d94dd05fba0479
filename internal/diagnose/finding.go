// Package diagnose turns facts about hosts, nodes, host device tables and
// workloads into findings. Every finding has a stable code from one catalogue,
// whose messages all of gpuctl's outputs share. The package is pure.
package diagnose

import (
	"cmp"
	"slices"
	"strings"
)

// Finding is one thing that an operator should know.
type Finding struct {
	Code     Code     `json:"code"`
	Severity Severity `json:"severity"`
	Object   string   `json:"object"` // "node/gpu-1", "KubeVirt kubevirt/kubevirt"
	Message  string   `json:"message"`
	Hint     string   `json:"hint"`
}

// Values fill the placeholders of a catalogue entry.
type Values map[string]string

// New makes a finding of a catalogue entry. A code that is not in the catalogue,
// and a placeholder without a value, are mistakes of the caller; both show as
// such in the message, and the tests fail on them.
func New(code Code, object string, values Values) Finding {
	e, ok := catalogIndex()[code]
	if !ok {
		return Finding{Code: code, Severity: Error, Object: object, Message: "{no such code}"}
	}
	return Finding{
		Code:     code,
		Severity: e.Severity,
		Object:   object,
		Message:  fill(e.Message, values),
		Hint:     fill(e.Hint, values),
	}
}

func fill(template string, values Values) string {
	var out strings.Builder
	for {
		before, rest, ok := strings.Cut(template, "{")
		out.WriteString(before)
		if !ok {
			return out.String()
		}
		key, after, _ := strings.Cut(rest, "}")
		if v, known := values[key]; known {
			out.WriteString(v)
		} else {
			out.WriteString("{" + key + "}")
		}
		template = after
	}
}

// Sort puts findings into the order in which they are shown: errors first, then
// by code, object and message. Equal findings are merged into one.
func Sort(findings []Finding) []Finding {
	slices.SortFunc(findings, func(a, b Finding) int {
		return cmp.Or(
			cmp.Compare(b.Severity.Level(), a.Severity.Level()),
			cmp.Compare(a.Code, b.Code),
			cmp.Compare(a.Object, b.Object),
			cmp.Compare(a.Message, b.Message),
		)
	})
	return slices.Compact(findings)
}
