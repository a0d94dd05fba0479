package books

import (
	"reflect"
	"time"

	"github.com/gpuctl/gpuctl/internal/alloc"
	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/internal/tenant"
	"github.com/gpuctl/gpuctl/internal/usage"
)

// Class is what books need of a GPUClass.
type Class struct {
	Name         string
	Resource     gpu.ResourceName
	MaxCount     int32  // units that one order may have
	Entitlement  string // "" when everybody may order
	NodeSelector map[string]string
	Deleting     bool
}

// Device is what books need of a GPUDevice.
type Device struct {
	// Device's Resource is that of the placement; "" while there is none.
	usage.Device
	// State says whether the units may be moved.
	State   alloc.State
	Ordered time.Time
}

// Books are one view of a cluster's GPUs. Each Put replaces what was put under the
// same key.
type Books struct {
	listed    []gpu.ResourceName
	claimable []usage.DeviceClass
	table     gpu.Table
	classes   map[string]Class
	tree      *tenant.Tree
	nodes     map[string]usage.Node
	accounts  map[string]*account // by namespace
	home      map[string]string   // namespaces of devices, by UID

	// What follows, and what of it is stale.
	names       usage.Names
	placedUnder map[gpu.ResourceName]int // how many devices are placed under a name
	ordered     *tenant.Use              // of all devices that exist
	placed      *tenant.Use              // of those that have a node
	snapshot    *alloc.Snapshot
	taken       map[string]map[gpu.ResourceName]usage.Taken // by node: of all accounts
	stale       stale
}

type stale struct {
	all      bool // everything that follows
	names    bool
	use      bool // ordered and placed
	supplies bool // what all nodes serve
	nodes    set
	accounts set
}

// set is one of names.
type set map[string]struct{}

func (s set) add(name string) { s[name] = struct{}{} }

// New returns empty books: nobody is a tenant and nothing counts.
func New() *Books {
	return &Books{
		classes: map[string]Class{}, tree: tenant.Build(nil, tenant.Labels(nil, false), nil), nodes: map[string]usage.Node{},
		accounts: map[string]*account{}, home: map[string]string{}, placedUnder: map[gpu.ResourceName]int{}, stale: stale{all: true, nodes: set{}, accounts: set{}},
	}
}

// SetTree says who is a tenant below whom, and what each level may have.
func (b *Books) SetTree(t *tenant.Tree) { b.tree, b.stale.use = t, true }

// SetNames says which resource names the hoster lists, and which DeviceClasses
// there are.
func (b *Books) SetNames(listed []gpu.ResourceName, claimable []usage.DeviceClass) {
	b.listed, b.claimable, b.stale.names = listed, claimable, true
}

// SetTable says what the KubeVirt CR permits.
func (b *Books) SetTable(t gpu.Table) {
	if !reflect.DeepEqual(t, b.table) {
		b.table, b.stale.names, b.stale.supplies = t, true, true
	}
}

// PutClass adds a class.
func (b *Books) PutClass(c Class) {
	if was, ok := b.classes[c.Name]; !ok || was.Resource != c.Resource {
		b.stale.names, b.stale.use = true, true
	}
	b.classes[c.Name] = c
}

// DropClass takes a class away. Devices keep what they hold.
func (b *Books) DropClass(name string) {
	delete(b.classes, name)
	b.stale.names, b.stale.use = true, true
}

// PutNode adds a node.
func (b *Books) PutNode(n usage.Node) {
	was, known := b.nodes[n.Facts.Name]
	b.nodes[n.Facts.Name] = n
	b.stale.names = b.stale.names || !known || !sameNames(&was, &n)
	b.stale.nodes.add(n.Facts.Name)
}

// sameNames reports that a node tells no other names than it did.
func sameNames(was, is *usage.Node) bool {
	if len(was.Facts.Allocatable) != len(is.Facts.Allocatable) {
		return false
	}
	for name := range is.Facts.Allocatable {
		if _, ok := was.Facts.Allocatable[name]; !ok {
			return false
		}
	}
	return was.Facts.Plugin == is.Facts.Plugin && (was.Host == is.Host || reflect.DeepEqual(was.Host, is.Host))
}

// DropNode takes a node away. What devices hold there stays until they are lost.
func (b *Books) DropNode(name string) {
	delete(b.nodes, name)
	b.stale.names = true
	b.stale.nodes.add(name)
}

// PutVMI adds a VMI.
func (b *Books) PutVMI(v usage.VMI) {
	b.account(v.Namespace).vmis[v.UID] = v
	b.stale.accounts.add(v.Namespace)
}

// DropVMI takes a VMI away.
func (b *Books) DropVMI(namespace, uid string) {
	delete(b.account(namespace).vmis, uid)
	b.stale.accounts.add(namespace)
}

// PutPod adds a pod.
func (b *Books) PutPod(p usage.Pod) {
	b.account(p.Namespace).pods[p.UID] = p
	b.stale.accounts.add(p.Namespace)
}

// DropPod takes a pod away.
func (b *Books) DropPod(namespace, uid string) {
	delete(b.account(namespace).pods, uid)
	b.stale.accounts.add(namespace)
}

// Names returns the resource names that count as GPUs.
func (b *Books) Names() usage.Names {
	b.settle()
	return b.names
}

// Snapshot returns what nodes serve and devices hold. It never changes.
func (b *Books) Snapshot() *alloc.Snapshot {
	b.settle()
	return b.snapshot
}

// Table returns what the KubeVirt CR permits.
func (b *Books) Table() gpu.Table { return b.table }

// Class returns the class of the name.
func (b *Books) Class(name string) (Class, bool) {
	c, ok := b.classes[name]
	return c, ok
}
