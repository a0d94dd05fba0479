package tenant

import (
	"cmp"
	"iter"
	"slices"
	"strings"
)

// Level is one namespace of a tree. It never changes.
type Level struct {
	namespace, uid string
	missing        bool // no such namespace: others name it as their parent
	tenant         bool
	tangled        bool     // the way up is in doubt or leads back
	parents        []*Level // none, one, or all that it may be
	limits         []Limit  // by key
	entitlements   []string // sorted
	refusal        *Refusal
}

// Namespace returns the level's name.
func (l *Level) Namespace() string { return l.namespace }

// UID returns the UID of the level's namespace.
func (l *Level) UID() string { return l.uid }

// Limits returns what the level limits, by key, each key once. A level without
// a key does not limit it.
func (l *Level) Limits() []Limit { return slices.Clone(l.limits) }

// Limit is one budget of a level.
type Limit struct {
	Key    Key
	Units  int64  // what the level and all below it may have together
	Source string // "ResourceQuota tenant-acme/gpus"
	fault  *Fault
}

// Fault says why a limit cannot be read: whoever asks for its key is refused.
// Only limits under another vendor's name have one; others refuse their level.
func (l Limit) Fault() (Fault, bool) {
	if l.fault == nil {
		return Fault{}, false
	}
	return *l.fault, true
}

// Chain is a tenant's levels, itself first, its root last.
type Chain struct{ first *Level }

// Levels yields the levels from the tenant up to its root.
func (c Chain) Levels() iter.Seq[*Level] {
	return func(yield func(*Level) bool) {
		for l := c.first; l != nil; l = l.up() {
			if !yield(l) {
				return
			}
		}
	}
}

// Entitled returns the nearest level with the entitlement. The empty name, of
// a class that needs none, is everybody's.
func (c Chain) Entitled(name string) (level string, ok bool) {
	for l := range c.Levels() {
		if _, found := slices.BinarySearch(l.entitlements, name); found || name == "" {
			return l.namespace, true
		}
	}
	return "", false
}

func (l *Level) up() *Level {
	if len(l.parents) == 0 {
		return nil
	}
	return l.parents[0]
}

// entitlements returns the names that the labels entitle to, sorted.
func entitlements(labels map[string]string) []string {
	var out []string
	for key, value := range labels {
		if name, ok := strings.CutPrefix(key, EntitlementPrefix); ok && name != "" && value == "true" {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// readLimits reads the declarations of a level: the smallest of a key counts,
// and one that cannot be read makes its key unreadable. The fault, if any,
// refuses the level: a key that is about GPUs cannot be read. Under another
// vendor's name it may be about something else: the limit keeps its fault.
func readLimits(declared []Declaration) ([]Limit, *Fault) {
	var limits []Limit
	var broken []Limit
	for _, d := range declared {
		key, ours, err := ParseKey(d.Key)
		if !ours {
			continue
		}
		limit := Limit{Key: key, Source: d.Source}
		if err != nil {
			limit.fault = &Fault{Reason: BudgetUnreadable, Detail: err.Error()}
		} else {
			limit.Units, limit.fault = readUnits(d.Text)
		}
		if limit.fault != nil {
			limit.fault.Detail = d.Source + ": " + d.Key + ": " + limit.fault.Detail
		}
		if limit.fault != nil && (err != nil || key.own()) {
			broken = append(broken, limit)
			continue
		}
		limits = append(limits, limit)
	}
	if len(broken) > 0 {
		return nil, slices.MinFunc(broken, func(a, b Limit) int { return cmp.Compare(a.fault.Detail, b.fault.Detail) }).fault
	}
	slices.SortFunc(limits, func(a, b Limit) int {
		return cmp.Or(a.Key.Compare(b.Key), compareLimits(a, b))
	})
	return slices.CompactFunc(limits, func(a, b Limit) bool { return a.Key == b.Key }), nil
}

// compareLimits puts the limit first that counts for a key.
func compareLimits(a, b Limit) int {
	switch {
	case a.fault != nil && b.fault != nil:
		return cmp.Compare(a.fault.Detail, b.fault.Detail)
	case a.fault != nil:
		return -1
	case b.fault != nil:
		return 1
	}
	return cmp.Or(cmp.Compare(a.Units, b.Units), cmp.Compare(a.Source, b.Source))
}
