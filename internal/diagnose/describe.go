package diagnose

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

func (j *judge) virtual(f *gpu.Function, count int) Finding {
	how := ""
	if f.VFGuessed {
		how = " (guessed from their addresses and driver)"
	}
	address := "the card"
	if f.PhysFn != nil {
		address = f.PhysFn.String()
	}
	return New("GPU0208", nodeObject(j.host.Node), Values{
		"count": strconv.Itoa(count), "address": address, "device": j.describe(f), "how": how,
	})
}

func (j *judge) fabric(switches []*gpu.Function) Finding {
	var drivers []string
	for _, s := range switches {
		name := "driver " + string(s.Driver)
		if s.Driver == "" {
			name = "no driver"
		}
		if !slices.Contains(drivers, name) {
			drivers = append(drivers, name)
		}
	}
	return New("GPU0209", nodeObject(j.host.Node), Values{
		"count": strconv.Itoa(len(switches)), "id": switches[0].ID.String(), "drivers": strings.Join(drivers, " and "),
	})
}

// about makes a finding on one function, with address and device filled in.
func (j *judge) about(code Code, f *gpu.Function, more Values) Finding {
	values := Values{"address": f.Address.String(), "device": j.describe(f)}
	maps.Copy(values, more)
	return New(code, objectOf(j.host, f), values)
}

// describe returns "10de:2335 GH100_H200_SXM_141GB", or what is known instead.
func (j *judge) describe(f *gpu.Function) string {
	switch {
	case !f.ID.Known():
		return "id not readable, class " + f.Class.String()
	case f.IsNVIDIA():
		if short := j.name(f.ID.Device).name.Short(); short != f.ID.Device.String() {
			return f.ID.String() + " " + short
		}
	}
	return f.ID.String() + ", class " + f.Class.String()
}

func nodeObject(node string) string {
	if node == "" {
		return "host"
	}
	return "node/" + node
}

func objectOf(h *gpu.Host, f *gpu.Function) string {
	return nodeObject(h.Node) + " " + f.Address.String()
}
