package alloc

import "cmp"

// order is how the items of a tree are sorted. Items that compare as 0 are one.
type order[T any] interface {
	compare(a, b T) int
	// seed is what the shape of the tree is drawn from: a name that differs
	// between the items of a tree.
	seed(T) string
}

// tree is a sorted set that never changes: put and remove return another one,
// which shares all but the path to the item. It is a treap whose ranks are
// hashes: its shape depends on what is in it and not on how it got there. The
// zero tree is empty.
type tree[T any, O order[T]] struct{ root *branch[T] }

type branch[T any] struct {
	item        T
	left, right *branch[T]
	rank        uint32 // no lower than those below
	size        int32
}

func (b *branch[T]) count() int32 {
	if b == nil {
		return 0
	}
	return b.size
}

func (b *branch[T]) recount() { b.size = b.left.count() + b.right.count() + 1 }

func (t tree[T, O]) len() int { return int(t.root.count()) }

// above reports that a is nearer to the root than b.
func (t tree[T, O]) above(a, b *branch[T]) bool {
	var o O
	return cmp.Or(cmp.Compare(b.rank, a.rank), o.compare(a.item, b.item)) < 0
}

// put adds the item, or replaces its equal.
func (t tree[T, O]) put(item T) tree[T, O] { return tree[T, O]{t.insert(t.root, item)} }

func (t tree[T, O]) insert(b *branch[T], item T) *branch[T] {
	var o O
	if b == nil {
		return &branch[T]{item: item, rank: hash(o.seed(item)), size: 1}
	}
	n := *b
	c := o.compare(item, b.item)
	switch {
	case c == 0:
		n.item = item
		return &n
	case c < 0:
		n.left = t.insert(b.left, item)
		if l := n.left; t.above(l, &n) {
			n.left, l.right = l.right, &n
			n.recount()
			l.recount()
			return l
		}
	default:
		n.right = t.insert(b.right, item)
		if r := n.right; t.above(r, &n) {
			n.right, r.left = r.left, &n
			n.recount()
			r.recount()
			return r
		}
	}
	n.recount()
	return &n
}

// remove takes the item's equal away. It must be there.
func (t tree[T, O]) remove(item T) tree[T, O] { return tree[T, O]{t.without(t.root, item)} }

func (t tree[T, O]) without(b *branch[T], item T) *branch[T] {
	var o O
	c := o.compare(item, b.item)
	if c == 0 {
		return t.merge(b.left, b.right)
	}
	n := *b
	if c < 0 {
		n.left = t.without(b.left, item)
	} else {
		n.right = t.without(b.right, item)
	}
	n.size--
	return &n
}

// merge joins two branches, all of a before all of b.
func (t tree[T, O]) merge(a, b *branch[T]) *branch[T] {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	case t.above(a, b):
		n := *a
		n.right = t.merge(a.right, b)
		n.recount()
		return &n
	}
	n := *b
	n.left = t.merge(a, b.left)
	n.recount()
	return &n
}

// before returns the last item that is before the probe.
func (t tree[T, O]) before(probe T) (item T, ok bool) {
	var o O
	for b := t.root; b != nil; {
		if o.compare(b.item, probe) < 0 {
			item, ok, b = b.item, true, b.right
		} else {
			b = b.left
		}
	}
	return item, ok
}

// countFrom returns how many items are not before the probe.
func (t tree[T, O]) countFrom(probe T) (n int) {
	var o O
	for b := t.root; b != nil; {
		if o.compare(b.item, probe) >= 0 {
			n += int(b.right.count()) + 1
			b = b.left
		} else {
			b = b.right
		}
	}
	return n
}

// all yields the items in order, and reports that it was not stopped.
func (t tree[T, O]) all(yield func(T) bool) { t.root.each(yield) }

func collect[T any, O order[T]](t tree[T, O]) []T {
	out := make([]T, 0, t.len())
	t.all(func(item T) bool { out = append(out, item); return true })
	return out
}

func (b *branch[T]) each(yield func(T) bool) bool {
	return b == nil || b.left.each(yield) && yield(b.item) && b.right.each(yield)
}

// since yields the items that are not before the probe, in order.
func (t tree[T, O]) since(probe T, yield func(T) bool) bool {
	return t.sinceBranch(t.root, probe, yield)
}

func (t tree[T, O]) sinceBranch(b *branch[T], probe T, yield func(T) bool) bool {
	var o O
	if b == nil {
		return true
	}
	if o.compare(b.item, probe) < 0 {
		return t.sinceBranch(b.right, probe, yield)
	}
	return t.sinceBranch(b.left, probe, yield) && yield(b.item) && b.right.each(yield)
}

// hash is FNV-1a with a last mix, since names differ in their last bytes.
func hash(s string) uint32 {
	h := uint32(2166136261)
	for i := range len(s) {
		h = (h ^ uint32(s[i])) * 16777619
	}
	h = (h ^ h>>16) * 0x85ebca6b
	h = (h ^ h>>13) * 0xc2b2ae35
	return h ^ h>>16
}
