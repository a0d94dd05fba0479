package tenant

import (
	"fmt"
	"slices"
)

// Quota is a ResourceQuota: its spec.hard, quantities as text. A scoped one
// counts like any other; several in one namespace all hold, so that the
// smallest of a key counts.
type Quota struct {
	Namespace, Name string
	Hard            map[string]string
}

// Labels returns the provider that reads the tree from the label
// gpuctl.dev/parent and budgets from ResourceQuotas. With hnc, which says that
// the hierarchical namespace controller is installed, its tree labels count as
// well; without, anybody might have written them. A namespace that HNC puts
// below none may still have a parent by label; where both name one, they agree
// or the namespace is refused. The ResourceQuotas that HNC itself derives from
// a HierarchicalResourceQuota repeat an ancestor's limit and take nothing away.
func Labels(quotas []Quota, hnc bool) Provider {
	p := labels{hnc: hnc, quotas: map[string][]Quota{}}
	for _, q := range quotas {
		p.quotas[q.Namespace] = append(p.quotas[q.Namespace], q)
	}
	return p
}

type labels struct {
	hnc    bool
	quotas map[string][]Quota
}

// Parents implements Provider.
func (p labels) Parents(name string, all Namespaces) ([]string, *Fault) {
	ns := all[name]
	var parents []string
	var fault *Fault
	if p.hnc {
		parents, fault = hncParents(ns, all)
	}
	parent, labelled := ns.Labels[ParentLabel]
	if parent != "" && !slices.Contains(parents, parent) {
		parents = append(parents, parent)
	}
	switch {
	case fault != nil:
		return parents, fault
	case labelled && parent == "":
		return parents, &Fault{Reason: TreeUnreadable, Detail: fmt.Sprintf("the label %s of namespace %q is empty", ParentLabel, name)}
	case len(parents) > 1:
		return parents, &Fault{
			Reason: Contradiction,
			Detail: fmt.Sprintf("HNC puts namespace %q below %q, the label %s below %q", name, parents[0], ParentLabel, parent),
		}
	}
	return parents, nil
}

// Budgets implements Provider.
func (p labels) Budgets(name string) ([]Declaration, *Fault) {
	var out []Declaration
	for _, q := range p.quotas[name] {
		source := "ResourceQuota " + q.Namespace + "/" + q.Name
		out = slices.Grow(out, len(q.Hard))
		for key, text := range q.Hard {
			out = append(out, Declaration{Source: source, Key: key, Text: text})
		}
	}
	return out, nil
}
