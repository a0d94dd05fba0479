package books

import (
	"maps"
	"reflect"
	"slices"

	"github.com/gpuctl/gpuctl/internal/alloc"
	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/internal/usage"
)

// settle works out what is stale.
func (b *Books) settle() {
	if b.stale.names || b.stale.all {
		names := b.effective()
		b.stale.all = b.stale.all || !reflect.DeepEqual(names, b.names)
		b.names, b.stale.names = names, false
	}
	switch {
	case b.stale.all:
		b.anew()
	case b.stale.use:
		b.sumUp()
	}
	b.stale.use = false
	for _, namespace := range slices.Sorted(maps.Keys(b.stale.accounts)) {
		b.refresh(namespace)
	}
	clear(b.stale.accounts)
	if b.stale.supplies {
		b.markNodes()
	}
	for _, name := range slices.Sorted(maps.Keys(b.stale.nodes)) {
		b.serve(name)
	}
	clear(b.stale.nodes)
	b.stale.supplies = false
}

// anew starts over from the facts; accounts and nodes are stale afterwards.
func (b *Books) anew() {
	b.stale = stale{nodes: set{}, accounts: set{}}
	b.taken = map[string]map[gpu.ResourceName]usage.Taken{}
	var devices []alloc.Device
	for namespace, a := range b.accounts {
		a.raw, a.taken, a.running = nil, nil, nil
		for _, d := range a.devices {
			if d.Node != "" {
				devices = append(devices, b.placedAs(d))
			}
		}
		b.stale.accounts.add(namespace)
	}
	b.sumUp()
	b.snapshot = alloc.New(nil, devices)
	b.markNodes()
}

func (b *Books) markNodes() {
	for name := range b.nodes {
		b.stale.nodes.add(name)
	}
}

// sumUp adds up what all have.
func (b *Books) sumUp() {
	tree := b.tree.WithBase(b.names.Base)
	b.ordered, _ = tree.Sum(nil)
	b.placed, _ = tree.Sum(nil)
	for namespace, a := range b.accounts {
		for _, d := range a.devices {
			b.charge(d, 1)
		}
		for _, amount := range a.raw {
			b.spend(namespace, amount)
		}
	}
}

// effective collects the names that count.
func (b *Books) effective() usage.Names {
	f := usage.NameFacts{Listed: b.listed, Table: b.table, DeviceClasses: b.claimable}
	for _, c := range b.classes {
		f.Offered = append(f.Offered, c.Resource)
	}
	for name := range b.placedUnder {
		f.Devices = append(f.Devices, usage.Device{Resource: name, Node: "any"})
	}
	for _, n := range b.nodes {
		f.Nodes = append(f.Nodes, n)
	}
	return usage.EffectiveNames(f)
}

// serve puts a node as it is now into the snapshot.
func (b *Books) serve(name string) {
	n, known := b.nodes[name]
	if !known {
		b.snapshot = b.snapshot.With(alloc.DropNode(name))
		return
	}
	supply := usage.Served(&n, b.table)
	maps.DeleteFunc(supply.Units, func(r gpu.ResourceName, _ int64) bool { return !b.names.Has(r) })
	b.snapshot = b.snapshot.With(alloc.PutNode(alloc.NodeOf(supply, b.taken[name])))
}
