package books

import (
	"cmp"
	"maps"
	"slices"

	"github.com/gpuctl/gpuctl/internal/alloc"
	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/internal/usage"
)

// account is what one namespace has. Which pods are covered by which devices does
// not hang on other namespaces.
type account struct {
	devices map[string]*Device // by UID
	vmis    map[string]usage.VMI
	pods    map[string]usage.Pod

	// What was worked out last.
	raw     []gpu.Amount
	taken   map[string]map[gpu.ResourceName]usage.Taken // Raw and Under only
	running map[string]int64                            // by device
}

func (b *Books) account(namespace string) *account {
	a := b.accounts[namespace]
	if a == nil {
		a = &account{devices: map[string]*Device{}, vmis: map[string]usage.VMI{}, pods: map[string]usage.Pod{}}
		b.accounts[namespace] = a
	}
	return a
}

// PutDevice adds a device.
func (b *Books) PutDevice(d Device) {
	b.DropDevice(d.UID)
	b.home[d.UID] = d.Namespace
	b.account(d.Namespace).devices[d.UID] = &d
	b.count(&d, 1)
	b.touch(&d)
	if !b.stale.all && d.Node != "" {
		b.snapshot = b.snapshot.With(alloc.PutDevice(b.placedAs(&d)))
	}
}

// DropDevice takes a device away.
func (b *Books) DropDevice(uid string) {
	a := b.accounts[b.home[uid]]
	if a == nil || a.devices[uid] == nil {
		return
	}
	d := a.devices[uid]
	delete(a.devices, uid)
	delete(b.home, uid)
	if len(a.devices) == 0 {
		b.stale.accounts.add(d.Namespace) // it may be empty
	}
	b.count(d, -1)
	b.touch(d)
	if !b.stale.all && d.Node != "" {
		b.snapshot = b.snapshot.With(alloc.DropDevice(uid))
	}
}

// Device returns the device with the UID.
func (b *Books) Device(uid string) (Device, bool) {
	a := b.accounts[b.home[uid]]
	if a == nil || a.devices[uid] == nil {
		return Device{}, false
	}
	return *a.devices[uid], true
}

// touch marks what a device bears on beside its own units: pods, if a VMI has it.
func (b *Books) touch(d *Device) {
	if d.Attached() {
		b.stale.accounts.add(d.Namespace)
	}
}

// count adds a device's units to the use of its namespace, or takes them away.
func (b *Books) count(d *Device, sign int64) {
	if d.Node != "" {
		was := b.placedUnder[d.Resource]
		b.placedUnder[d.Resource] = was + int(sign)
		if b.placedUnder[d.Resource] == 0 {
			delete(b.placedUnder, d.Resource)
		}
		b.stale.names = b.stale.names || was == 0 || was+int(sign) == 0
	}
	if !b.stale.all && !b.stale.use {
		b.charge(d, sign)
	}
}

func (b *Books) charge(d *Device, sign int64) {
	amount := b.amount(d)
	amount.Units *= sign
	b.ordered.Add(d.Namespace, amount)
	if d.Node != "" {
		b.placed.Add(d.Namespace, amount)
	}
}

// amount is what a device counts for in budgets.
func (b *Books) amount(d *Device) gpu.Amount {
	return gpu.Amount{Resource: b.names.Base(b.resource(d)), Class: d.Class, Units: max(0, d.Units)}
}

// resource is that of the placement, or of the class where there is none.
func (b *Books) resource(d *Device) gpu.ResourceName {
	return cmp.Or(d.Resource, b.classes[d.Class].Resource)
}

func (b *Books) placedAs(d *Device) alloc.Device {
	return alloc.Device{
		UID: d.UID, Resource: b.names.Base(d.Resource), Units: d.Units, Node: d.Node, State: d.State, Lost: d.Lost,
		Running: b.accounts[d.Namespace].running[d.UID], Ordered: d.Ordered,
	}
}

// usage is the account as accounting takes it.
func (a *account) usage(names usage.Names) *usage.Snapshot {
	s := &usage.Snapshot{Names: names}
	for _, uid := range slices.Sorted(maps.Keys(a.devices)) {
		s.Devices = append(s.Devices, a.devices[uid].Device)
	}
	for _, v := range a.vmis {
		s.VMIs = append(s.VMIs, v)
	}
	for _, p := range a.pods {
		s.Pods = append(s.Pods, p)
	}
	return s
}

// refresh works out what pods take without a device, and puts it in place of what
// they took before. Nodes where that changed are stale.
func (b *Books) refresh(namespace string) {
	a := b.accounts[namespace]
	if a == nil {
		return
	}
	now := a.usage(b.names)
	var raw []gpu.Amount
	for _, r := range now.BudgetRaw() {
		raw = append(raw, gpu.Amount{Resource: r.Resource, Units: r.Units})
	}
	for _, amount := range a.raw {
		amount.Units = -amount.Units
		b.spend(namespace, amount)
	}
	for _, amount := range raw {
		b.spend(namespace, amount)
	}
	taken := rawOf(now.CapacityUse())
	b.takeOver(a.taken, -1)
	b.takeOver(taken, 1)
	ran := a.running
	a.raw, a.taken, a.running = raw, taken, now.Running()
	for uid, d := range a.devices {
		if d.Node != "" && a.running[uid] != ran[uid] {
			b.snapshot = b.snapshot.With(alloc.PutDevice(b.placedAs(d)))
		}
	}
	if len(a.devices)+len(a.vmis)+len(a.pods) == 0 {
		delete(b.accounts, namespace)
	}
}

func (b *Books) spend(namespace string, a gpu.Amount) {
	b.ordered.Add(namespace, a)
	b.placed.Add(namespace, a)
}

// rawOf leaves out what devices hold: the snapshot has that.
func rawOf(use map[string]map[gpu.ResourceName]usage.Taken) map[string]map[gpu.ResourceName]usage.Taken {
	for _, taken := range use {
		for name, t := range taken {
			t.Held = 0
			taken[name] = t
			if t == (usage.Taken{}) {
				delete(taken, name)
			}
		}
	}
	maps.DeleteFunc(use, func(_ string, taken map[gpu.ResourceName]usage.Taken) bool { return len(taken) == 0 })
	return use
}

// takeOver adds what an account takes of nodes to what all take, or takes it away.
func (b *Books) takeOver(taken map[string]map[gpu.ResourceName]usage.Taken, sign int64) {
	for node, names := range taken {
		if b.taken[node] == nil {
			b.taken[node] = map[gpu.ResourceName]usage.Taken{}
		}
		for name, t := range names {
			sum := b.taken[node][name]
			sum.Raw = gpu.AddUnits(sum.Raw, sign*t.Raw)
			sum.Under = gpu.AddUnits(sum.Under, sign*t.Under)
			b.taken[node][name] = sum
		}
		b.stale.nodes.add(node)
	}
}
