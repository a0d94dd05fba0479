package tenant

import (
	"fmt"
	"strconv"
	"strings"
)

// The labels of the hierarchical namespace controller. A namespace has one tree
// label for itself, with depth 0, and one for each ancestor
// (kubernetes-sigs/hierarchical-namespaces, internal/hierarchyconfig/reconciler.go,
// syncLabels).
const (
	hncTreeSuffix = ".tree.hnc.x-k8s.io/depth"
	// hncIncluded is set by HNC's webhook before its reconciler writes the tree.
	hncIncluded = "hnc.x-k8s.io/included-namespace"
)

// hncParents reads the namespace's parent from HNC's tree labels: none for a
// root and for a namespace that HNC leaves alone.
//
// The labels come after the fact, and where HNC finds a parent missing or a
// cycle it writes none above that level. So what looks like a root or another
// branch may be a tree in the making or a halted one: labels of a halted
// namespace, and labels that do not fit the subnamespace annotation or the
// parent's own, are a fault until HNC has caught up. Ancestors of an external namespace that are no namespaces, like
// folders, are missing parents.
func hncParents(ns Namespace, all Namespaces) ([]string, *Fault) {
	var parents []string
	fault := func(r Reason, format string, args ...any) ([]string, *Fault) {
		if ns.SubnamespaceOf != "" {
			parents = append(parents, ns.SubnamespaceOf)
		}
		return parents, &Fault{Reason: r, Detail: fmt.Sprintf(format, args...)}
	}
	tree, err := hncTree(ns)
	if err != nil || len(tree) > 0 && tree[0] != ns.Name {
		parents = hncNames(ns)
	}
	switch {
	case err != nil:
		return fault(TreeUnreadable, "HNC's labels of namespace %q: %v", ns.Name, err)
	case len(tree) == 0 && ns.SubnamespaceOf == "" && ns.Labels[hncIncluded] != "true":
		return nil, nil
	case len(tree) == 0:
		return fault(TreeUnreadable, "HNC has not written the tree of namespace %q yet", ns.Name)
	case ns.HNCHalted:
		return fault(TreeUnreadable, "HNC has halted namespace %q: its parent is missing, or it is in a cycle", ns.Name)
	case tree[0] != ns.Name:
		return fault(TreeUnreadable, "HNC's labels of namespace %q give depth 0 to %q", ns.Name, tree[0])
	}
	if len(tree) > 1 {
		parents = tree[1:2:2]
	}
	if ns.SubnamespaceOf != "" && (len(tree) == 1 || tree[1] != ns.SubnamespaceOf) {
		return fault(Contradiction, "namespace %q is a subnamespace of %q, and HNC's labels do not say so", ns.Name, ns.SubnamespaceOf)
	}
	if len(tree) == 1 {
		return nil, nil
	}
	above, found := all[tree[1]]
	if !found {
		return parents, nil
	}
	if other, err := hncTree(above); err != nil || strings.Join(other, "/") != strings.Join(tree[1:], "/") {
		return fault(TreeUnreadable, "HNC's labels of namespace %q name %s above it, those of %q name %s",
			ns.Name, quoted(tree[1:]), above.Name, quoted(other))
	}
	return parents, nil
}

// hncNames returns all that the tree labels name, in any order, but ns itself.
func hncNames(ns Namespace) (names []string) {
	for key := range ns.Labels {
		if name, ok := strings.CutSuffix(key, hncTreeSuffix); ok && name != "" && name != ns.Name {
			names = append(names, name)
		}
	}
	return names
}

// hncTree returns the names in the tree labels by depth, without a gap.
func hncTree(ns Namespace) ([]string, error) {
	count := 0
	for key := range ns.Labels {
		if strings.HasSuffix(key, hncTreeSuffix) {
			count++
		}
	}
	if count == 0 {
		return nil, nil
	}
	tree := make([]string, count)
	for key, value := range ns.Labels {
		name, ok := strings.CutSuffix(key, hncTreeSuffix)
		if !ok {
			continue
		}
		depth, err := strconv.ParseUint(value, 10, 31)
		if err != nil || depth >= uint64(count) || name == "" || tree[depth] != "" {
			return nil, fmt.Errorf("the depths of %d labels are not 0 to %d", count, count-1)
		}
		tree[depth] = name
	}
	return tree, nil
}
