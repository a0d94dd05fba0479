package diagnose

import (
	"maps"
	"slices"
	"strconv"
	"strings"

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
	if x, bad := j.driver(f); bad {
		return append(out, x)
	}
	out = append(out, j.blockers(f)...)
	if shared, ok := j.shared(f); ok {
		out = append(out, shared)
	}
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

// driver reports a GPU that is on no vfio driver; VMs cannot use it, whatever
// else may be wrong.
func (j *judge) driver(f *gpu.Function) (Finding, bool) {
	switch {
	case f.DriverUnknown:
		return j.about("GPU0203", f, nil), true
	case f.Driver == "":
		return j.about("GPU0202", f, nil), true
	case !f.Driver.IsVFIO():
		return j.about("GPU0201", f, Values{"driver": string(f.Driver)}), true
	}
	return Finding{}, false
}

// blocks reports a function whose driver makes its whole IOMMU group unusable:
// the rule of the kernel's vfio_dev_viable. Bridges, pci-stub and functions
// without a driver do not.
func blocks(f *gpu.Function) bool {
	return f.Driver != "" && !f.Driver.IsVFIO() && f.Driver != "pci-stub" && f.Driver != "pcieport" && !f.Class.IsBridge()
}

// blockers returns the functions that keep the GPU's group from being viable.
// Without known groups, the other functions of the card are likely ones.
func (j *judge) blockers(f *gpu.Function) []Finding {
	var out []Finding
	report := func(code Code, other *gpu.Function, group string) {
		out = append(out, New(code, objectOf(j.host, f), Values{
			"address": other.Address.String(), "device": j.describe(other),
			"driver": string(other.Driver), "group": group, "gpu": f.Address.String(),
		}))
	}
	if id, ok := f.Group.ID(); ok {
		for _, other := range j.groups[id] {
			if other != f && blocks(other) {
				report("GPU0204", other, f.Group.String())
			}
		}
		return out
	}
	if f.Group.None() {
		return nil
	}
	for i := range j.host.Functions {
		if other := &j.host.Functions[i]; other.Address != f.Address && other.Address.SameCard(f.Address) && blocks(other) {
			report("GPU0205", other, "")
		}
	}
	return out
}

// shared reports GPUs that sit in one group.
func (j *judge) shared(f *gpu.Function) (Finding, bool) {
	id, ok := f.Group.ID()
	if !ok {
		return Finding{}, false
	}
	var cards []*gpu.Function
	for _, other := range j.groups[id] {
		if other.IsGPU() {
			cards = append(cards, other)
		}
	}
	if len(cards) < 2 {
		return Finding{}, false
	}
	return New("GPU0207", nodeObject(j.host.Node), Values{
		"group": f.Group.String(), "count": strconv.Itoa(len(cards)), "addresses": addresses(cards),
	}), true
}

// collision reports a GPU whose name another id of the host shares: which of the
// two the node offers is a race.
func (j *judge) collision(f *gpu.Function) (Finding, bool) {
	name := j.name(f.ID.Device).name
	if !j.sharedNames[name] {
		return Finding{}, false
	}
	for _, g := range j.registrations() {
		if g.Name == name && g.Collides() && slices.Contains(g.Functions(), f) {
			return j.collides(g), true
		}
	}
	return Finding{}, false
}

func (j *judge) collides(g gpu.Registration) Finding {
	var ids []gpu.ID
	for _, d := range g.DeviceIDs() {
		ids = append(ids, gpu.NVIDIA(d))
	}
	return New("GPU0406", nodeObject(j.host.Node), Values{
		"node": nodeName(j.host.Node), "ids": JoinIDs(ids), "release": j.release.String(), "name": string(g.Name),
	})
}

// registrations returns what the plugin makes of the host; it is asked for only
// where something hangs on it, since most hosts are plain.
func (j *judge) registrations() []gpu.Registration {
	if j.registered == nil {
		j.registered = j.release.Registrations(j.host)
	}
	return j.registered
}

// hidden reports a GPU that is ready but that the plugin's release does not
// offer under its own name.
func (j *judge) hidden(f *gpu.Function) (Finding, bool) {
	if f.Group.None() {
		return Finding{}, false
	}
	if !j.release.CountsDriver(f.Driver) {
		return j.about("GPU0413", f, Values{
			"driver": string(f.Driver), "release": j.release.String(),
			"why": "it does not know the driver", "hint": "use device plugin v1.5.0 or newer with driver nvgrace_gpu_vfio_pci",
		}), true
	}
	if j.release.Compare(gpu.Release{Major: 1, Minor: 5}) >= 0 {
		return Finding{}, false // every function is offered by its own address
	}
	if j.offered == nil {
		j.offered = offered(j.registrations())
	}
	if by := j.offered[f.Address]; by == "" || by == j.name(f.ID.Device).name {
		return Finding{}, false
	}
	return j.about("GPU0413", f, Values{
		"driver": string(f.Driver), "release": j.release.String(),
		"why":  "its IOMMU group is offered as " + string(j.offered[f.Address]),
		"hint": "use device plugin v1.5.0 or newer, or put the cards into groups of their own",
	}), true
}

// offered returns the name under which each function is offered: its own, or
// that of the function that stands for its whole group.
func offered(registrations []gpu.Registration) map[gpu.Address]gpu.ResourceName {
	out := map[gpu.Address]gpu.ResourceName{}
	for _, g := range registrations {
		for _, u := range g.Units {
			for _, f := range u.Group {
				if _, own := out[f.Address]; !own {
					out[f.Address] = g.Name
				}
			}
		}
		for _, u := range g.Units {
			if u.Function != nil {
				out[u.Function.Address] = g.Name
			}
		}
	}
	return out
}

func (j *judge) missingNodeEffect() string {
	if j.host.IOMMUFD == gpu.Present {
		return "from v1.4.0 the device plugin still lists it as healthy, and every allocation fails"
	}
	return "the device plugin lists it as unhealthy, so allocatable drops while capacity stays"
}

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
