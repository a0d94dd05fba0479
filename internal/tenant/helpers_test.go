package tenant

import (
	"errors"
	"fmt"
	"strings"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

const h200 gpu.ResourceName = "nvidia.com/GH100_H200_SXM_141GB"

func everyone(Namespace) bool { return true }

// below returns namespaces from "child<parent" and "root".
func below(pairs ...string) []Namespace {
	var out []Namespace
	for _, pair := range pairs {
		name, parent, ok := strings.Cut(pair, "<")
		ns := Namespace{Name: name, UID: "uid-" + name}
		if ok {
			ns.Labels = map[string]string{ParentLabel: parent}
		}
		out = append(out, ns)
	}
	return out
}

// quota returns a ResourceQuota from its namespace and "key=text".
func quota(namespace string, hard ...string) Quota {
	q := Quota{Namespace: namespace, Name: "gpus", Hard: map[string]string{}}
	for _, h := range hard {
		key, text, _ := strings.Cut(h, "=")
		q.Hard[key] = text
	}
	return q
}

// shown returns a namespace's chain and budgets in one line, or who refuses it
// and why.
func shown(t *Tree, namespace string) string {
	chain, err := t.Chain(namespace)
	var refusal *Refusal
	switch {
	case errors.As(err, &refusal):
		return fmt.Sprintf("refused by %s: %s", refusal.Level, refusal.Reason)
	case errors.Is(err, ErrNotTenant):
		return "no tenant"
	}
	var levels []string
	for l := range chain.Levels() {
		text := l.Namespace()
		for _, limit := range l.Limits() {
			text += fmt.Sprintf(" %s=%d", limit.Key, limit.Units)
			if _, bad := limit.Fault(); bad {
				text += "?"
			}
		}
		levels = append(levels, text)
	}
	return strings.Join(levels, " < ")
}

// shownAll returns what shown tells of every tenant.
func shownAll(t *Tree) map[string]string {
	out := map[string]string{}
	for _, name := range t.Tenants() {
		out[name] = shown(t, name)
	}
	return out
}
