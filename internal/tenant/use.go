package tenant

import (
	"maps"
	"math"
	"math/bits"
	"slices"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// Use is what each level of a tree and all below it have together. An
// ancestor's budget caps its whole subtree, so a unit counts at every level
// from its namespace up to the root.
type Use struct {
	tree *Tree
	at   map[*Level]map[Key]sum
}

// sum is a whole number of 128 bits: pods that nobody can place may ask for all that
// an int64 can say, and when they are gone there has to be what was there before.
type sum struct {
	high int64
	low  uint64
}

func (s sum) plus(units int64) sum {
	low, carry := bits.Add64(s.low, uint64(units), 0)
	return sum{s.high + units>>63 + int64(carry), low}
}

// units returns the sum, and where that is no number of units the nearest one: 0 or
// the largest int64.
func (s sum) units() int64 {
	switch {
	case s.high < 0:
		return 0
	case s.high > 0 || s.low > math.MaxInt64:
		return math.MaxInt64
	}
	return int64(s.low)
}

// Sum adds up the use of all namespaces. It also returns the namespaces, sorted,
// that the tree does not know: what they have counts nowhere.
func (t *Tree) Sum(use map[string][]gpu.Amount) (u *Use, unknown []string) {
	u = &Use{tree: t, at: map[*Level]map[Key]sum{}}
	for _, namespace := range slices.Sorted(maps.Keys(use)) {
		for _, a := range use[namespace] {
			if !u.Add(namespace, a) {
				unknown = append(unknown, namespace)
				break
			}
		}
	}
	return u, unknown
}

// Add counts the amount at the namespace and at every level above it; negative
// units are taken away again, and leave what there was before they were added,
// however many they are and whatever came between. It reports false, and counts nothing, where the
// tree does not know the namespace. What is refused counts as well: where the
// parent is in doubt, at each that it may be.
func (u *Use) Add(namespace string, a gpu.Amount) bool {
	l := u.tree.levels[namespace]
	if l == nil || l.missing {
		return false
	}
	if l.tangled {
		u.addTangled(l, a)
		return true
	}
	for ; l != nil; l = l.up() {
		u.add(l, a)
	}
	return true
}

// addTangled counts the amount once at each level that may be above l.
func (u *Use) addTangled(l *Level, a gpu.Amount) {
	seen := map[*Level]bool{}
	for queue := []*Level{l}; len(queue) > 0; queue = queue[1:] {
		if next := queue[0]; !seen[next] {
			seen[next] = true
			u.add(next, a)
			queue = append(queue, next.parents...)
		}
	}
}

func (u *Use) add(l *Level, a gpu.Amount) {
	m := u.at[l]
	if m == nil {
		m = map[Key]sum{}
		u.at[l] = m
	}
	for _, k := range []Key{{Resource, string(a.Resource)}, {Class, a.Class}, {Kind: Total}} {
		if k.Name != "" || k.Kind == Total {
			k = u.tree.counted(k)
			m[k] = m[k].plus(a.Units)
		}
	}
}

// Of returns the units under the key at a level and all below it; never less
// than 0.
func (u *Use) Of(level string, k Key) int64 { return u.of(u.tree.levels[level], k) }

func (u *Use) of(l *Level, k Key) int64 { return u.at[l][u.tree.counted(k)].units() }
