package diagnose

import (
	"cmp"
	"slices"
	"strings"
)

// refers reports a machine that names devices or templates.
func (v *VM) refers() bool { return len(v.Orders)+len(v.Templates) > 0 || v.BadOrders != "" }

// mine reports a device that is the machine's: taken for its instance, or made from one of
// its templates.
func (v *VM) mine(d *Device) bool {
	return d.Namespace == v.Namespace && (d.VMI == v.Name || d.Made && d.VM == v.Name)
}

// ordered returns the device of the name, nil when it is not there.
func (x *index) ordered(namespace, name string) *Device {
	if x.orders == nil {
		x.orders = map[Ref]*Device{}
		for i := range slices.Backward(x.Devices) {
			x.orders[Ref{Namespace: x.Devices[i].Namespace, Name: x.Devices[i].Name}] = &x.Devices[i]
		}
	}
	return x.orders[Ref{Namespace: namespace, Name: name}]
}

// orders returns what is wrong with the devices that the machine names, and those that
// were made for it: one that cannot be read, is not there, or is not to be had.
func (e *errand) orders() *Finding {
	if e.vm.BadOrders != "" {
		f := New("GPU0630", e.vm.String(), Values{"text": e.vm.BadOrders})
		return &f
	}
	if e.Devices == nil {
		return e.saidAt(LinkOrder)
	}
	for _, name := range e.vm.Orders {
		d := e.ordered(e.vm.Namespace, name)
		if d == nil {
			return &NoDevice(e.vm.String(), e.vm.Namespace, name).Finding
		}
		if f := e.denied(d); f != nil {
			return f
		}
	}
	for _, d := range e.made {
		if f := e.lost(d); f != nil {
			return f
		}
	}
	return nil
}

// denied says why the machine does not get a device that there is. One that it has stays
// its own, whatever is wanted of the device.
func (e *errand) denied(d *Device) *Finding {
	v := e.vm
	other := d.VMI != "" && d.VMI != v.Name && !v.Mould // what a mould makes has names of its own
	switch {
	case !d.Lost.IsZero():
		return e.lost(d)
	case !d.Deleted.IsZero() && !v.Live():
		return &DeviceDeleted(v.String(), d.Namespace, d.Name).Finding
	case d.Made && !v.mine(d):
		return &DeviceOfTemplate(v.String(), d.Namespace, d.Name, cmp.Or(d.VM, d.VMI)).Finding
	case other && d.VMIUID == "" && e.At.Sub(d.Taken) <= startsWithin:
		return &DeviceStarting(v.String(), d.Namespace, d.Name, d.VMI).Finding
	case !other && (d.VMI == "" || v.Live() || v.Mould || d.VMIUID != ""):
		return nil // with an instance that is over the next one takes it over
	}
	c := custody{index: e.index, Device: d}
	if f := c.user(); f != nil {
		f.Object = v.String()
		return f
	}
	if !other {
		return nil
	}
	return &DeviceInUse(v.String(), d.Namespace, d.Name, d.VMI).Finding
}

// lost reports a device whose units are gone.
func (e *errand) lost(d *Device) *Finding {
	if d.Lost.IsZero() {
		return nil
	}
	f := UnitsLost(e.vm.String(), e.vm.Namespace, d.Name, d.Node, d.Resource).Finding
	f.Hint = "gpuctl diagnose device/" + d.Name + " -n " + e.vm.Namespace
	return &f
}

// ordersText lists the devices with their states and what made them, and the templates
// of which none was made yet.
func (e *errand) ordersText() string {
	var out []string
	for _, name := range e.vm.Orders {
		if d := e.ordered(e.vm.Namespace, name); d != nil {
			out = append(out, d.standing())
		} else {
			out = append(out, name+", of which nothing is known")
		}
	}
	for _, d := range e.made {
		out = append(out, d.standing()+", made from a template of the VM")
	}
	for _, t := range e.lacks {
		out = append(out, t.String()+" from a template, ordered when it starts")
	}
	if e.vm.Renamed {
		out = append(out, "the VM names others by now, which it gets at its next start")
	}
	return strings.Join(out, "; ")
}

// standing says what a device has: "train-a has 4 x h200 on worker-1 (Held)".
func (v *Device) standing() string {
	what := Template{v.Class, v.Count}.String()
	if v.Node == "" {
		return v.Name + " waits for " + what
	}
	text := v.Name + " has " + what + " on " + v.Node
	if v.State != "" {
		text += " (" + v.State + ")"
	}
	return text
}
