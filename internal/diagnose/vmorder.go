package diagnose

import (
	"slices"
	"strings"
)

// refers reports a machine that names devices or templates.
func (v *VM) refers() bool { return len(v.Orders)+len(v.Templates) > 0 || v.BadOrders != "" }

// nameless reports a link of the names that a machine asks for, where it has ordered and
// asks for none: they come with its instance.
func (v *VM) nameless(link Link) bool {
	return v.refers() && len(v.Devices) == 0 && link.order() < LinkInstance.order()
}

// begin puts what a machine has ordered before its chain. It reports false where nothing
// else matters, since the order is broken.
func (x *index) begin(w *walker, v *VM) bool {
	f := x.orderOf(v)
	w.check(LinkOrder, f, x.orderText(v))
	if f == nil {
		return true
	}
	for _, link := range Links() {
		w.on(link, Beyond, "")
	}
	return false
}

// orderOf returns what is wrong with the devices that a machine names: one that cannot be
// read, is not there, is lost or has no units.
func (x *index) orderOf(v *VM) *Finding {
	if v.BadOrders != "" {
		f := New("GPU0630", v.String(), Values{"text": v.BadOrders})
		return &f
	}
	if x.Devices == nil {
		return nil
	}
	for _, name := range v.Orders {
		d := x.ordered(v.Namespace, name)
		switch {
		case d == nil:
			return &NoDevice(v.String(), v.Namespace, name).Finding
		case !d.Lost.IsZero():
			f := UnitsLost(v.String(), v.Namespace, name, d.Node, d.Resource).Finding
			f.Hint = "gpuctl diagnose device/" + name + " -n " + v.Namespace
			return &f
		case d.Node == "":
			f := New("GPU0640", v.String(), Values{
				"orders": d.object(), "verb": "waits", "since": stamp(d.Ordered), "text": reasonFor([]*Device{d}), "device": name, "namespace": v.Namespace,
			})
			return &f
		}
	}
	return nil
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

// orderText lists the devices with their states, and the templates.
func (x *index) orderText(v *VM) string {
	var out []string
	for _, name := range v.Orders {
		d := x.ordered(v.Namespace, name)
		if d == nil {
			out = append(out, name)
			continue
		}
		out = append(out, name+" has "+itoa(d.Count)+" x "+d.Class+" on "+d.Node+" ("+d.State+")")
	}
	for _, t := range v.Templates {
		out = append(out, "a template of "+t)
	}
	return strings.Join(out, "; ")
}
