package alloc

import (
	"cmp"
	"slices"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// Node is what one node serves.
type Node struct {
	Name string
	// Closed says that nothing new is placed on the node: it is cordoned or not
	// ready. What is there stays.
	Closed bool
	// Doubted says that nothing is concluded from what the node serves: nobody loses
	// units there, and nobody has them again.
	Doubted bool
	// Serves has each resource name once.
	Serves []Served
}

// Served is how many units of a resource name a node serves, those in use
// included. Negative units are none.
type Served struct {
	Resource gpu.ResourceName
	Units    int64
	// Raw is how many pods take that are no device's: they are not free, and take
	// nothing from who holds units, since kubelet may yet refuse such a pod.
	Raw int64
	// NUMA is how many of them are at each NUMA node, if that is known. Which
	// units kubelet gives to whom is not: it is taken to pack well.
	NUMA []int64
}

// node is a node and what is held there.
type node struct {
	name    string
	known   bool // false: it is gone, or not seen yet, and devices name it
	closed  bool
	doubted bool
	pools   []*pool // by resource name
}

func (n *node) open() bool { return n.known && !n.closed }

func (n *node) pool(r gpu.ResourceName) *pool {
	if i, ok := n.find(r); ok {
		return n.pools[i]
	}
	return nil
}

func (n *node) find(r gpu.ResourceName) (int, bool) {
	return slices.BinarySearchFunc(n.pools, r, func(p *pool, r gpu.ResourceName) int { return cmp.Compare(p.resource, r) })
}

// serving returns the node with the same devices, serving what is told; nil
// for a node that is gone.
func (n *node) serving(told *Node) *node {
	next := &node{name: n.name}
	if told != nil {
		next.known, next.closed, next.doubted = true, told.Closed, told.Doubted
		for _, s := range told.Serves {
			if _, twice := next.find(s.Resource); !twice {
				next.set(&pool{
					node: n.name, resource: s.Resource, serves: true,
					served: bounded(s.Units), raw: bounded(s.Raw), numa: slices.Clone(s.NUMA),
				})
			}
		}
	}
	for _, p := range n.pools {
		if len(p.devices) == 0 {
			continue
		}
		now := next.pool(p.resource)
		if now == nil {
			now = &pool{node: n.name, resource: p.resource}
		}
		now.devices = p.devices
		next.set(now)
	}
	for _, p := range next.pools {
		p.count()
	}
	return next
}

func bounded(units int64) int64 { return min(max(0, units), gpu.MaxUnits) }

// edit returns the node with one device less and another one more; either may
// be nil, or hold nothing there.
func (n *node) edit(drop, add *Device) *node {
	next := *n
	next.pools = slices.Clone(n.pools)
	if drop != nil && drop.Node == n.name && drop.takes() > 0 {
		next.change(drop.Resource, func(p *pool) {
			i, _ := p.find(drop.UID)
			p.devices = slices.Concat(p.devices[:i], p.devices[i+1:])
		})
	}
	if add != nil && add.Node == n.name && add.takes() > 0 {
		next.change(add.Resource, func(p *pool) {
			i, _ := p.find(add.UID)
			p.devices = slices.Concat(p.devices[:i], []*Device{add}, p.devices[i:])
		})
	}
	return &next
}

// change replaces a pool of a node that nobody else has yet.
func (n *node) change(r gpu.ResourceName, do func(*pool)) {
	next := &pool{node: n.name, resource: r}
	if old := n.pool(r); old != nil {
		*next = *old
	}
	do(next)
	next.count()
	n.set(next)
}

// set puts the pool into its place, or takes it out where nothing is in it.
func (n *node) set(p *pool) {
	i, found := n.find(p.resource)
	empty := !p.serves && len(p.devices) == 0
	switch {
	case found && empty:
		n.pools = slices.Delete(n.pools, i, i+1)
	case found:
		n.pools[i] = p
	case !empty:
		n.pools = slices.Insert(n.pools, i, p)
	}
	if len(n.pools) == 0 {
		n.pools = nil
	}
}

type byName struct{}

func (byName) compare(a, b *node) int { return cmp.Compare(a.name, b.name) }
func (byName) seed(n *node) string    { return n.name }
