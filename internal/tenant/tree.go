package tenant

import (
	"fmt"
	"maps"
	"slices"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// Tree is where every namespace of a cluster stands.
type Tree struct {
	levels map[string]*Level
	base   func(gpu.ResourceName) gpu.ResourceName // nil: each name stands for itself
}

// WithBase returns the tree for uses that count the units of a name under another
// one, as those of a DeviceClass's own name are counted under its extended resource
// name: limits, amounts and asks may have either name, and are about the same units.
// The base of a base is itself. A Use keeps the names that it was made with.
func (t *Tree) WithBase(base func(gpu.ResourceName) gpu.ResourceName) *Tree {
	return &Tree{levels: t.levels, base: base}
}

// counted returns the key under which the units of a key are counted.
func (t *Tree) counted(k Key) Key {
	if k.Kind == Resource && t.base != nil {
		k.Name = string(t.base(gpu.ResourceName(k.Name)))
	}
	return k
}

// counts reports whether the amount counts under the key.
func (t *Tree) counts(k Key, a gpu.Amount) bool {
	switch k.Kind {
	case Class:
		return a.Class == k.Name
	case Total:
		return true
	default:
		return t.counted(k) == t.counted(Key{Resource, string(a.Resource)})
	}
}

// Build reads the tree of the namespaces, whose names are unique. isTenant says
// which are tenants; a namespace above a tenant is a level whether or not it is
// one itself. Build never fails: what cannot be read refuses when it is asked
// for. The order of the input does not matter.
func Build(namespaces []Namespace, p Provider, isTenant func(Namespace) bool) *Tree {
	b := builder{
		tree: &Tree{levels: make(map[string]*Level, len(namespaces))}, provider: p,
		all: make(Namespaces, len(namespaces)), state: map[*Level]visit{},
	}
	twice := map[string]bool{}
	for _, ns := range namespaces {
		_, listed := b.all[ns.Name]
		twice[ns.Name] = listed || twice[ns.Name]
		b.all[ns.Name] = ns
	}
	for name := range b.all {
		l := b.level(name)
		l.tenant = isTenant(b.all[name])
		if twice[name] {
			l.refuse(Fault{Reason: Contradiction, Detail: fmt.Sprintf("namespace %q is listed twice", name)})
		}
	}
	names := slices.Sorted(maps.Keys(b.tree.levels)) // so that a cycle is told alike for all
	for _, name := range names {
		b.resolve(b.tree.levels[name])
	}
	return b.tree
}

// Chain returns the levels of a tenant. The error is ErrNotTenant or a *Refusal.
func (t *Tree) Chain(namespace string) (Chain, error) {
	l := t.levels[namespace]
	switch {
	case l == nil || l.missing:
		return Chain{}, &Refusal{
			Namespace: namespace, Level: namespace,
			Fault: Fault{Reason: UnknownNamespace, Detail: "the namespace is not known"},
		}
	case !l.tenant:
		return Chain{}, fmt.Errorf("namespace %q: %w", namespace, ErrNotTenant)
	case l.refusal != nil:
		return Chain{}, l.refusal
	}
	return Chain{first: l}, nil
}

// Tenants returns the names of the tenants, refused ones too, sorted.
func (t *Tree) Tenants() []string {
	var out []string
	for name, l := range t.levels {
		if l.tenant {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

type builder struct {
	tree     *Tree
	provider Provider
	all      Namespaces
	state    map[*Level]visit
}

type visit uint8

const (
	unseen visit = iota
	onPath
	done
)

// level returns the named level with its parents and its own fault, if any:
// first what is wrong with its place, then with itself, then with its budget.
func (b *builder) level(name string) *Level {
	if l := b.tree.levels[name]; l != nil {
		return l
	}
	ns, found := b.all[name]
	l := &Level{namespace: name, uid: ns.UID, missing: !found, entitlements: entitlements(ns.Labels)}
	b.tree.levels[name] = l
	parents, fault := b.provider.Parents(name, b.all)
	slices.Sort(parents)
	for _, parent := range slices.Compact(parents) {
		l.parents = append(l.parents, b.level(parent))
	}
	l.tangled = fault != nil
	if l.missing {
		l.refuse(Fault{Reason: MissingParent, Detail: fmt.Sprintf("there is no namespace %q", name)})
		return l
	}
	if fault != nil {
		l.refuse(*fault)
	}
	if ns.Terminating {
		l.refuse(Fault{Reason: Terminating, Detail: fmt.Sprintf("namespace %q is being deleted, and its budget with it", name)})
	}
	declared, fault := b.provider.Budgets(name)
	if fault == nil {
		l.limits, fault = readLimits(declared)
	}
	if fault != nil {
		l.refuse(*fault)
	}
	return l
}

// refuse keeps the first fault.
func (l *Level) refuse(f Fault) {
	if l.refusal == nil {
		l.refusal = &Refusal{Namespace: l.namespace, Level: l.namespace, Fault: f}
	}
}

// resolve hands refusals down and finds cycles. It walks up from a level to one
// that is done, and back down. A level whose place is in doubt is refused
// already and ends the walk: what leads back to it may be no cycle.
func (b *builder) resolve(l *Level) {
	var path []*Level
	for l != nil && b.state[l] == unseen {
		b.state[l] = onPath
		path = append(path, l)
		if l.tangled {
			break
		}
		l = l.up()
	}
	if l != nil && b.state[l] == onPath && !l.tangled {
		markCycle(path[slices.Index(path, l):])
	}
	for _, l := range slices.Backward(path) {
		b.state[l] = done
		up := l.up()
		if up == nil || l.tangled {
			continue
		}
		l.tangled = up.tangled
		if up.refusal != nil && l.refusal == nil {
			l.refusal = &Refusal{Namespace: l.namespace, Level: up.refusal.Level, Fault: up.refusal.Fault}
		}
	}
}

// markCycle refuses the members of a cycle, all with the same words.
func markCycle(members []*Level) {
	names := make([]string, len(members))
	for i, l := range members {
		names[i] = l.namespace
	}
	fault := Fault{Reason: Cycle, Detail: fmt.Sprintf("each of the namespaces %s is below the next, and the last below the first", quoted(names))}
	for _, l := range members {
		l.tangled = true
		l.refusal = &Refusal{Namespace: l.namespace, Level: l.namespace, Fault: fault}
	}
}
