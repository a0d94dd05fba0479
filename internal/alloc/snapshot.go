package alloc

import (
	"cmp"
	"iter"
	"slices"
	"strings"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// Snapshot is what nodes serve and devices hold. It never changes and is safe
// for concurrent use. The zero Snapshot is empty. Two snapshots of the same
// nodes and devices are deeply equal, however they were made.
type Snapshot struct {
	nodes   tree[*node, byName]
	devices tree[*Device, byUID]
	lost    tree[*Device, byUID] // of the devices
	short   tree[*pool, byPlace] // where more is held than served
	names   []*index             // by resource name
}

// New makes a snapshot of nodes and devices; what has no name is left out. Of two nodes of one name or devices
// of one UID the later counts. A device counts on the node that it names even
// where that is none of the nodes.
func New(nodes []Node, devices []Device) *Snapshot {
	s := &Snapshot{}
	for i := range devices {
		s.device(&devices[i])
	}
	for i := range nodes {
		s.node(nodes[i].Name, &nodes[i])
	}
	return s
}

// Change is one step from a snapshot to the next.
type Change interface{ apply(s *Snapshot) }

// PutNode adds a node, or replaces what it serves. What devices hold there stays.
type PutNode Node

// DropNode takes a node away. What devices hold there stays, and is more than is
// served: see Settle.
type DropNode string

// PutDevice adds a device or replaces it. It may take more than the node serves.
// One without a node or units is taken away.
type PutDevice Device

// DropDevice takes a device away, by its UID.
type DropDevice string

func (c PutNode) apply(s *Snapshot)    { s.node(c.Name, (*Node)(&c)) }
func (c DropNode) apply(s *Snapshot)   { s.node(string(c), nil) }
func (c PutDevice) apply(s *Snapshot)  { s.device((*Device)(&c)) }
func (c DropDevice) apply(s *Snapshot) { s.drop(string(c)) }

// With returns the snapshot after the changes. It costs some microseconds a
// change, whatever the number of devices.
func (s *Snapshot) With(changes ...Change) *Snapshot {
	next := *s
	next.names = slices.Clone(s.names)
	for _, c := range changes {
		c.apply(&next)
	}
	return &next
}

// Device returns the device with the UID.
func (s *Snapshot) Device(uid string) (Device, bool) {
	if d := s.find(uid); d != nil {
		return *d, true
	}
	return Device{}, false
}

// Devices yields all devices, by UID.
func (s *Snapshot) Devices() iter.Seq[Device] {
	return func(yield func(Device) bool) {
		s.devices.all(func(d *Device) bool { return yield(*d) })
	}
}

// Lost yields the devices that are lost, by UID.
func (s *Snapshot) Lost() iter.Seq[Device] {
	return func(yield func(Device) bool) {
		s.lost.all(func(d *Device) bool { return yield(*d) })
	}
}

// Units returns what a node serves of a resource name and what of it is held.
func (s *Snapshot) Units(node string, r gpu.ResourceName) (served, held int64) {
	if p := s.pool(node, r); p != nil {
		return p.served, p.held
	}
	return 0, 0
}

// Free returns how many units of a resource name nobody has taken on a node.
func (s *Snapshot) Free(node string, r gpu.ResourceName) int64 {
	if p := s.pool(node, r); p != nil {
		return max(0, p.free())
	}
	return 0
}

func (s *Snapshot) pool(name string, r gpu.ResourceName) *pool {
	if n := s.at(name); n != nil {
		return n.pool(r)
	}
	return nil
}

// at returns the node, or nil. It is a tree's search without a probe, which
// would be allocated.
func (s *Snapshot) at(name string) *node {
	for b := s.nodes.root; b != nil; {
		switch c := strings.Compare(name, b.item.name); {
		case c == 0:
			return b.item
		case c < 0:
			b = b.left
		default:
			b = b.right
		}
	}
	return nil
}

// find returns the device, or nil; as at does. A new order has no UID.
func (s *Snapshot) find(uid string) *Device {
	if uid == "" {
		return nil
	}
	for b := s.devices.root; b != nil; {
		switch c := strings.Compare(uid, b.item.UID); {
		case c == 0:
			return b.item
		case c < 0:
			b = b.left
		default:
			b = b.right
		}
	}
	return nil
}

func (s *Snapshot) index(r gpu.ResourceName) *index {
	if i, ok := s.name(r); ok {
		return s.names[i]
	}
	return nil
}

func (s *Snapshot) name(r gpu.ResourceName) (int, bool) {
	return slices.BinarySearchFunc(s.names, r, func(x *index, r gpu.ResourceName) int { return cmp.Compare(x.resource, r) })
}

// The methods below change a snapshot that nobody else has yet.

func (s *Snapshot) node(name string, told *Node) {
	if name == "" {
		return
	}
	old := s.at(name)
	was := old
	if was == nil {
		was = &node{name: name}
	}
	s.swap(old, was.serving(told))
}

func (s *Snapshot) device(d *Device) {
	if d.UID == "" {
		return
	}
	d = d.normal()
	old := s.find(d.UID)
	nowhere := d.Node == "" || d.Units == 0
	if old != nil && (nowhere || old.Node != d.Node) {
		s.drop(d.UID)
		old = nil
	}
	if nowhere {
		return
	}
	was := s.at(d.Node)
	n := was
	if n == nil {
		n = &node{name: d.Node}
	}
	s.swap(was, n.edit(old, d))
	s.remember(old, d)
}

func (s *Snapshot) drop(uid string) {
	old := s.find(uid)
	if old == nil {
		return
	}
	if n := s.at(old.Node); n != nil {
		s.swap(n, n.edit(old, nil))
	}
	s.remember(old, nil)
}

// remember replaces a device in the lists of all; either may be nil.
func (s *Snapshot) remember(old, now *Device) {
	switch {
	case now != nil:
		s.devices = s.devices.put(now)
	case old != nil:
		s.devices = s.devices.remove(old)
	}
	switch {
	case now != nil && now.Lost:
		s.lost = s.lost.put(now)
	case old != nil && old.Lost:
		s.lost = s.lost.remove(old)
	}
}

// swap replaces a node and whatever of it is in an index. old may be nil. A node
// that opens or closes has other pools: serving makes all of them anew.
func (s *Snapshot) swap(old, now *node) {
	if old != nil {
		for _, p := range old.pools {
			if now.pool(p.resource) != p {
				s.unlink(old, p)
			}
		}
	}
	for _, p := range now.pools {
		if old == nil || old.pool(p.resource) != p {
			s.link(now, p)
		}
	}
	switch {
	case now.known || len(now.pools) > 0:
		s.nodes = s.nodes.put(now)
	case old != nil:
		s.nodes = s.nodes.remove(old)
	}
}

func (s *Snapshot) link(n *node, p *pool) {
	i, ok := s.name(p.resource)
	if !ok {
		s.names = slices.Insert(s.names, i, &index{resource: p.resource})
	}
	x := *s.names[i]
	x.link(n, p)
	s.names[i] = &x
	if p.over() > 0 {
		s.short = s.short.put(p)
	}
}

func (s *Snapshot) unlink(n *node, p *pool) {
	i, _ := s.name(p.resource)
	x := *s.names[i]
	x.unlink(n, p)
	s.names[i] = &x
	if x.pools == 0 {
		s.names = slices.Delete(s.names, i, i+1)
	}
	if len(s.names) == 0 {
		s.names = nil
	}
	if p.over() > 0 {
		s.short = s.short.remove(p)
	}
}
