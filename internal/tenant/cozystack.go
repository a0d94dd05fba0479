package tenant

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Release is a HelmRelease. Values is its spec.values as decoded from JSON or
// YAML; of them only resourceQuotas is read.
type Release struct {
	Namespace, Name string
	Values          map[string]any
}

const (
	cozyPrefix = "tenant-"
	cozyRoot   = "tenant-root"
	cozyQuotas = "resourceQuotas"
)

// Cozystack returns the provider that reads the tree and the budgets from
// Cozystack's tenant releases; others may be among them. A namespace that no
// release made is refused: without its release its budget is unknown.
//
// Cozystack's chart (packages/apps/tenant, tenant.name) makes namespace
// tenant-foo of release tenant-foo in tenant-root, and tenant-foo-bar of release
// tenant-bar in tenant-foo; tenant-root is made by a release of that name in
// itself. The chart refuses further dashes in a release's name, but does so
// where the release is already there: so the releases decide whose child
// tenant-foo-bar is, and two that claim it are a fault.
func Cozystack(releases []Release) Provider {
	p := cozystack{}
	for _, r := range releases {
		if made := cozyNamespace(r); made != "" {
			p[made] = append(p[made], r)
		}
	}
	return p
}

// cozystack has the releases by the namespace that they make.
type cozystack map[string][]Release

// cozyNamespace returns the namespace that a release makes, "" for none.
func cozyNamespace(r Release) string {
	name, ok := strings.CutPrefix(r.Name, cozyPrefix)
	switch {
	case !ok || name == "" || !strings.HasPrefix(r.Namespace, cozyPrefix):
		return ""
	case r.Namespace == cozyRoot:
		return r.Name
	}
	return r.Namespace + "-" + name
}

// Parents implements Provider.
func (p cozystack) Parents(name string, _ Namespaces) ([]string, *Fault) {
	made := p[name]
	var parents, claims []string
	for _, r := range made {
		if r.Namespace != name {
			parents = append(parents, r.Namespace)
		}
		claims = append(claims, r.Namespace+"/"+r.Name)
	}
	slices.Sort(claims)
	switch {
	case len(made) == 1:
		return parents, nil
	case len(made) > 1:
		return parents, &Fault{Reason: Contradiction, Detail: fmt.Sprintf("HelmReleases %s claim to make namespace %q", quoted(claims), name)}
	}
	return cozyParents(name), &Fault{Reason: NoRelease, Detail: fmt.Sprintf("no HelmRelease of a Cozystack tenant makes namespace %q", name)}
}

// cozyParents is where the use of a namespace without a release counts: the
// parent that Cozystack itself derives from the name.
func cozyParents(name string) []string {
	i := strings.LastIndexByte(name, '-')
	switch {
	case name == cozyRoot || !strings.HasPrefix(name, cozyPrefix):
		return nil
	case i < len(cozyPrefix):
		return []string{cozyRoot}
	}
	return []string{name[:i]}
}

// Budgets implements Provider.
func (p cozystack) Budgets(name string) ([]Declaration, *Fault) {
	var out []Declaration
	for _, r := range p[name] {
		source := "HelmRelease " + r.Namespace + "/" + r.Name
		fault := func(what string) *Fault {
			return &Fault{Reason: BudgetUnreadable, Detail: fmt.Sprintf("%s: %s", source, what)}
		}
		raw, found := r.Values[cozyQuotas]
		if !found || raw == nil {
			continue
		}
		quotas, ok := raw.(map[string]any)
		if !ok {
			return nil, fault(cozyQuotas + " is no map")
		}
		for _, key := range slices.Sorted(maps.Keys(quotas)) {
			text, scalar := scalarText(quotas[key])
			if !scalar { // whatever the key: a limit may be inside
				return nil, fault(fmt.Sprintf("%s has no quantity under %q", cozyQuotas, key))
			}
			out = append(out, Declaration{Source: source, Key: key, Text: text})
		}
	}
	return out, nil
}

// scalarText returns a decoded value as it would be written; ok is false for
// what is neither a text nor a number.
func scalarText(v any) (text string, ok bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case json.Number:
		return v.String(), true
	case int:
		return strconv.Itoa(v), true
	case int64:
		return strconv.FormatInt(v, 10), true
	case uint64:
		return strconv.FormatUint(v, 10), true
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64), true
	}
	return "", false
}
