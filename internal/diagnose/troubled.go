package diagnose

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// troubled are orders that have the same trouble.
type troubled struct{ reason, node, resource string }

// lost reports the devices whose units their nodes have no more, by node and name.
func (d *diagnosis) lost() {
	groups := map[troubled][]*Device{}
	for i := range d.Devices {
		if v := &d.Devices[i]; !v.Lost.IsZero() {
			key := troubled{node: v.Node, resource: v.Resource}
			groups[key] = append(groups[key], v)
		}
	}
	for _, key := range sorted(groups) {
		list := groups[key]
		c := custody{index: d.index, Device: list[0]}
		f := UnitsLost("node/"+key.node, "", somebody(namesOf(list)), key.node, key.resource).Finding
		f.Severity = Warning // no VM waits for them that is not told by itself
		f.Message += c.why()
		f.Hint = "gpuctl diagnose device/" + list[0].Name + " -n " + list[0].Namespace + "; units that return heal them by themselves"
		d.found = append(d.found, f)
	}
}

// waiting reports the orders that have waited for long, by the reason they are told.
func (d *diagnosis) waiting() {
	groups := map[troubled][]*Device{}
	for i := range d.Devices {
		v := &d.Devices[i]
		if v.waits() && v.Deleted.IsZero() && !v.Ordered.IsZero() && d.At.Sub(v.Ordered) > waitsLong {
			reason, _, _ := strings.Cut(v.Said, ": ")
			groups[troubled{reason: reason}] = append(groups[troubled{reason: reason}], v)
		}
	}
	for _, key := range sorted(groups) {
		list := groups[key]
		slices.SortStableFunc(list, func(a, b *Device) int { return a.Ordered.Compare(b.Ordered) })
		oldest, object, verb := list[0], list[0].object(), "waits"
		if len(list) > 1 {
			object, verb = "GPUDevices", "wait"
		}
		d.found = append(d.found, New("GPU0640", object, Values{
			"orders": somebody(namesOf(list)), "verb": verb, "since": stamp(oldest.Ordered), "text": reasonFor(list),
			"device": oldest.Name, "namespace": oldest.Namespace,
		}))
	}
}

// reasonFor is what the orders are told: the same words, or what they have in common.
func reasonFor(list []*Device) string {
	said := list[0].Said
	if !slices.ContainsFunc(list, func(v *Device) bool { return v.Said != said }) {
		return cmp.Or(said, "nothing says why")
	}
	code, _, _ := strings.Cut(said, ": ")
	e, _ := Lookup(code)
	return code + ": " + cmp.Or(e.Title, "each is told why")
}

func sorted(groups map[troubled][]*Device) []troubled {
	return slices.SortedFunc(maps.Keys(groups), func(a, b troubled) int {
		return cmp.Or(cmp.Compare(a.reason, b.reason), cmp.Compare(a.node, b.node), cmp.Compare(a.resource, b.resource))
	})
}

func namesOf(list []*Device) (out []string) {
	for _, v := range list {
		out = append(out, v.Namespace+"/"+v.Name)
	}
	return out
}

// leaderless says why nobody leads; none is false where somebody does, or nothing tells.
func (c *Controller) leaderless() (problem string, none bool) {
	known := c.Known
	for i := range c.Runs {
		switch c.Runs[i].Led {
		case gpu.Present:
			return "", false
		case gpu.Absent:
			known = true
		}
	}
	if !known {
		return "", false
	}
	for i := range c.Runs {
		if f := c.Runs[i].idle(); f != nil {
			_, problem, _ = strings.Cut(f.Message, ": ")
			return f.Object + ": " + problem, true
		}
	}
	return "no controller is installed", true
}
