package diagnose

import (
	"slices"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// Verdict says of one NVIDIA function whether a VM can use it as a passthrough
// GPU, and if not, why.
type Verdict struct {
	Function *gpu.Function
	Usable   bool
	Reasons  []Finding
}

// Judge returns a verdict on every NVIDIA function of the host, in address
// order. Only physical GPUs can be usable; a GPU with any reason of severity
// warning or worse is not.
func Judge(h *gpu.Host, r gpu.Release) []Verdict {
	j := newJudge(h, r)
	var out []Verdict
	for i := range h.Functions {
		f := &h.Functions[i]
		if !f.IsNVIDIA() {
			continue
		}
		v := Verdict{Function: f, Reasons: j.reasons(f)}
		v.Usable = f.IsGPU() && !slices.ContainsFunc(v.Reasons, func(x Finding) bool { return x.Severity.Level() > Info.Level() })
		out = append(out, v)
	}
	return out
}

type judge struct {
	host    *gpu.Host
	release gpu.Release
	groups  map[int][]*gpu.Function
	offered map[gpu.Address]gpu.ResourceName // made when first needed
	names   map[gpu.DeviceID]naming          // what was looked up so far

	registered  []gpu.Registration        // made when first needed
	sharedNames map[gpu.ResourceName]bool // names of more than one of the host's ids
}

// naming is the name that the release gives an id.
type naming struct {
	name    gpu.ResourceName
	illegal bool // kubelet refuses the name
	grace   bool // the board is a Grace Hopper or Grace Blackwell one
}

func newJudge(h *gpu.Host, r gpu.Release) *judge {
	j := &judge{host: h, release: r, groups: h.Groups(), names: map[gpu.DeviceID]naming{}, sharedNames: map[gpu.ResourceName]bool{}}
	first := map[gpu.ResourceName]gpu.DeviceID{}
	for i := range h.Functions {
		f := &h.Functions[i]
		if !f.IsNVIDIA() || !f.Driver.IsVFIO() {
			continue
		}
		name := j.name(f.ID.Device).name
		if d, ok := first[name]; ok && d != f.ID.Device {
			j.sharedNames[name] = true
		}
		first[name] = f.ID.Device
	}
	return j
}

// name looks an id up once a host: hosts carry many cards of few ids.
func (j *judge) name(d gpu.DeviceID) naming {
	n, ok := j.names[d]
	if !ok {
		name := j.release.Name(d)
		n = naming{name: name, illegal: name.Check() != nil, grace: IsGrace(d)}
		j.names[d] = n
	}
	return n
}

func (j *judge) reasons(f *gpu.Function) []Finding {
	switch f.Role() {
	case gpu.RoleGPU:
		return j.gpuReasons(f)
	case gpu.RoleVF:
		return []Finding{j.virtual(f, 1)}
	case gpu.RoleNVSwitch:
		return []Finding{j.fabric([]*gpu.Function{f})}
	default:
		return nil
	}
}

// gpuReasons follows the chain from the bus to the plugin: card, driver, IOMMU
// group, name.
func (j *judge) gpuReasons(f *gpu.Function) []Finding {
	var out []Finding
	if f.OffBus {
		out = append(out, j.about("GPU0210", f, nil))
	}
	if f.Group.None() { // firmware comes first: binding the card would not help
		out = append(out, j.about("GPU0206", f, nil))
	}
	if shared, ok := j.shared(f); ok { // binding it would not change that
		out = append(out, shared)
	}
	if x, bad := j.driver(f); bad {
		return append(out, x)
	}
	out = append(out, j.blockers(f)...)
	if f.VFIONode == gpu.Absent {
		out = append(out, j.about("GPU0214", f, Values{"driver": string(f.Driver), "effect": j.missingNodeEffect()}))
	}
	if x, bad := j.hidden(f); bad {
		out = append(out, x)
	}
	if g, ok := j.collision(f); ok {
		out = append(out, g)
	}
	if n := j.name(f.ID.Device); n.illegal {
		out = append(out, New("GPU0405", objectOf(j.host, f), Values{
			"release": j.release.String(), "id": f.ID.Selector(), "name": string(n.name),
		}))
	}
	return out
}
