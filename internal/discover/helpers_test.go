package discover

import (
	"fmt"
	"strings"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// compareGroups lets cmp look at groups, which hide their fields.
func compareGroups() cmp.Option {
	return cmp.Comparer(func(a, b gpu.Group) bool { return a == b })
}

// summary renders a host as one line a function: what text can tell of it.
func summary(h gpu.Host) []string {
	var out []string
	for _, f := range h.Functions {
		out = append(out, line(f))
	}
	return out
}

func line(f gpu.Function) string {
	driver := string(f.Driver)
	switch {
	case f.DriverUnknown:
		driver = "?"
	case driver == "":
		driver = "-"
	}
	id := "-"
	if f.ID.Known() {
		id = f.ID.String()
	}
	s := fmt.Sprintf("%s %s %s %s group=%s", f.Address, f.Class, id, driver, f.Group)
	if f.NUMA != nil {
		s += fmt.Sprintf(" numa=%d", *f.NUMA)
	}
	if f.PhysFn != nil {
		s += " pf=" + f.PhysFn.String()
	}
	for _, flag := range []struct {
		on   bool
		name string
	}{{f.VF, "vf"}, {f.VFGuessed, "guessed"}, {f.OffBus, "off-bus"}} {
		if flag.on {
			s += " " + flag.name
		}
	}
	return s
}

func text(lines ...string) []byte { return []byte(strings.Join(lines, "\n") + "\n") }

func addr(s string) gpu.Address {
	a, err := gpu.ParseAddress(s)
	if err != nil {
		panic(err)
	}
	return a
}

func fn(address string, id gpu.ID, class gpu.Class, driver gpu.Driver, group gpu.Group) gpu.Function {
	return gpu.Function{Address: addr(address), ID: id, Class: class, Driver: driver, Group: group}
}
