package cli

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/internal/render"
)

// discoverView is what discover prints as JSON and YAML. Keys are added over
// time and never change their meaning.
type discoverView struct {
	Nodes    []nodeView         `json:"nodes"`
	Findings []diagnose.Finding `json:"findings"` // what is on stderr in the other formats
}

type nodeView struct {
	Name    string       `json:"name"`
	Devices []deviceView `json:"devices"`
	Mdevs   []mdevView   `json:"mdevs,omitempty"`
	Plugin  pluginView   `json:"plugin"`
}

// deviceView is one function of vendor 10de.
type deviceView struct {
	Address      string       `json:"address"`
	VendorID     string       `json:"vendorID"`
	DeviceID     string       `json:"deviceID"`
	Class        string       `json:"class"`
	Driver       string       `json:"driver"` // "" unbound, or unknown as driverKnown says
	DriverKnown  bool         `json:"driverKnown"`
	IOMMUGroup   *int         `json:"iommuGroup"` // null: none, or unknown as iommuGroupKnown says
	GroupKnown   bool         `json:"iommuGroupKnown"`
	GroupMembers []string     `json:"iommuGroupMembers,omitempty"`
	NUMANode     *int         `json:"numaNode"`
	Role         gpu.Role     `json:"role"`
	ResourceName string       `json:"resourceName"` // as the device plugin of the node's plugin.version names it
	Usable       bool         `json:"usable"`
	Reasons      []reasonView `json:"reasons"`

	PhysFn      string         `json:"physfn,omitempty"`
	VFGuessed   bool           `json:"vfGuessed,omitempty"`
	TotalVFs    int            `json:"totalVFs,omitempty"`
	NumVFs      int            `json:"numVFs,omitempty"`
	MdevTypes   []mdevTypeView `json:"mdevTypes,omitempty"`
	VGPUTypes   []string       `json:"creatableVGPUTypes,omitempty"`
	CurrentVGPU string         `json:"currentVGPUType,omitempty"`
	Override    string         `json:"driverOverride,omitempty"`
	PowerState  string         `json:"powerState,omitempty"`
	LinkSpeed   string         `json:"linkSpeed,omitempty"`
	LinkWidth   int            `json:"linkWidth,omitempty"`
	OffBus      bool           `json:"offBus,omitempty"`
}

type reasonView struct {
	Code    diagnose.Code `json:"code"`
	Message string        `json:"message"`
}

type mdevTypeView struct {
	ID           string           `json:"id"`
	Name         string           `json:"name"`
	Available    int              `json:"available"`
	ResourceName gpu.ResourceName `json:"resourceName"`
}

type mdevView struct {
	UUID   string `json:"uuid"`
	Type   string `json:"type"`
	Parent string `json:"parent"`
}

// pluginView predicts what the device plugin of a release registers with
// kubelet when it starts on the host as it is.
type pluginView struct {
	Version   string         `json:"version"`
	PCIIDs    string         `json:"pciIDs"` // date of the pci.ids that this release bundles
	Resources []resourceView `json:"resources"`
}

type resourceView struct {
	Name        gpu.ResourceName `json:"name"`
	Count       int              `json:"count"`     // units sent to kubelet
	DeviceIDs   []string         `json:"deviceIDs"` // the units' ids: groups before v1.5.0, addresses after, UUIDs for vGPUs
	Capacity    *int64           `json:"capacity"`  // null: the name is refused, or it depends on a race
	Allocatable *int64           `json:"allocatable"`
	Refused     string           `json:"refused,omitempty"` // why kubelet turns the name down
	Collides    bool             `json:"collides,omitempty"`
}

func viewNode(h *gpu.Host, r gpu.Release) nodeView {
	v := nodeView{Name: h.Node, Devices: []deviceView{}, Plugin: viewPlugin(h, r)}
	groups := h.Groups()
	for _, verdict := range diagnose.Judge(h, r) {
		v.Devices = append(v.Devices, viewDevice(verdict, groups, r))
	}
	for _, m := range h.Mdevs {
		v.Mdevs = append(v.Mdevs, mdevView{m.UUID, cmp.Or(m.TypeName, m.TypeID), m.Parent.String()})
	}
	return v
}

func viewDevice(verdict diagnose.Verdict, groups map[int][]*gpu.Function, r gpu.Release) deviceView {
	f := verdict.Function
	v := deviceView{
		Address: f.Address.String(), VendorID: f.ID.Vendor.String(), DeviceID: f.ID.Device.String(),
		Class: f.Class.String(), Driver: string(f.Driver), DriverKnown: !f.DriverUnknown,
		GroupKnown: f.Group.Known(), NUMANode: f.NUMA, Role: f.Role(),
		ResourceName: string(r.Name(f.ID.Device)), Usable: verdict.Usable, Reasons: []reasonView{},
		VFGuessed: f.VFGuessed, TotalVFs: f.TotalVFs, NumVFs: f.NumVFs, CurrentVGPU: f.CurrentVGPU,
		Override: f.DriverForced, PowerState: f.PowerState, LinkSpeed: f.LinkSpeed, LinkWidth: f.LinkWidth, OffBus: f.OffBus,
	}
	if id, ok := f.Group.ID(); ok {
		v.IOMMUGroup = &id
		for _, member := range groups[id] {
			v.GroupMembers = append(v.GroupMembers, member.Address.String())
		}
	}
	if f.PhysFn != nil {
		v.PhysFn = f.PhysFn.String()
	}
	for _, t := range f.MdevTypes {
		v.MdevTypes = append(v.MdevTypes, mdevTypeView{t.ID, t.Name, t.Available, gpu.MdevResource(t.Name)})
	}
	for _, t := range f.VGPUTypes {
		v.VGPUTypes = append(v.VGPUTypes, t.Name)
	}
	for _, x := range verdict.Reasons {
		v.Reasons = append(v.Reasons, reasonView{x.Code, x.Message})
	}
	return v
}

func viewPlugin(h *gpu.Host, r gpu.Release) pluginView {
	v := pluginView{Version: r.String(), PCIIDs: r.PCIIDs(), Resources: []resourceView{}}
	registrations := r.Registrations(h)
	for i := range registrations {
		g := &registrations[i]
		view := resourceView{Name: g.Name, Count: len(g.Units), DeviceIDs: g.UnitIDs(), Collides: g.Collides()}
		if g.Refused != nil {
			view.Refused = g.Refused.Error()
		}
		if shown := g.Shown(); len(shown) == 1 {
			view.Capacity, view.Allocatable = &shown[0].Capacity, &shown[0].Allocatable
		}
		v.Resources = append(v.Resources, view)
	}
	return v
}

func (v discoverView) print(p *render.Printer, wide bool) error {
	header := []string{"ADDRESS", "ID", "ROLE", "DRIVER", "GROUP", "NUMA", "RESOURCE NAME", "STATE"}
	if wide {
		header = []string{"ADDRESS", "ID", "CLASS", "ROLE", "DRIVER", "GROUP", "NUMA", "LINK", "VFS", "RESOURCE NAME", "STATE"}
	}
	if len(v.Nodes) > 1 {
		header = append([]string{"NODE"}, header...)
	}
	var rows [][]render.Cell
	for _, n := range v.Nodes {
		for _, d := range n.Devices {
			row := d.row(wide)
			if len(v.Nodes) > 1 {
				row = append(render.Text(cmp.Or(n.Name, "-")), row...)
			}
			rows = append(rows, row)
		}
	}
	if len(rows) == 0 {
		return p.Note("no NVIDIA function found")
	}
	return p.Table(header, rows)
}

func (d deviceView) row(wide bool) []render.Cell {
	driver := cmp.Or(d.Driver, "none")
	if !d.DriverKnown {
		driver = "?"
	}
	group := "none"
	switch {
	case d.IOMMUGroup != nil:
		group = strconv.Itoa(*d.IOMMUGroup)
	case !d.GroupKnown:
		group = "?"
	}
	numa := "-"
	if d.NUMANode != nil {
		numa = strconv.Itoa(*d.NUMANode)
	}
	cells := render.Text(d.Address, d.VendorID+":"+d.DeviceID)
	if wide {
		cells = append(cells, render.Text(d.Class)...)
	}
	cells = append(cells, render.Text(string(d.Role), driver, group, numa)...)
	if wide {
		cells = append(cells, render.Text(d.link(), d.virtual())...)
	}
	return append(append(cells, render.Text(d.ResourceName)...), d.state())
}

func (d deviceView) link() string {
	if d.LinkSpeed == "" && d.LinkWidth == 0 {
		return "-"
	}
	return strings.TrimSuffix(d.LinkSpeed, " PCIe") + " x" + strconv.Itoa(d.LinkWidth)
}

func (d deviceView) virtual() string {
	if d.TotalVFs == 0 {
		return "-"
	}
	return strconv.Itoa(d.NumVFs) + "/" + strconv.Itoa(d.TotalVFs)
}

// state is "usable", the codes of what is wrong, or "-" for what is no GPU.
func (d deviceView) state() render.Cell {
	var codes []string
	for _, r := range d.Reasons {
		if code := string(r.Code); !slices.Contains(codes, code) {
			codes = append(codes, code)
		}
	}
	switch {
	case d.Usable && len(codes) > 0:
		return render.Cell{Text: "usable (" + strings.Join(codes, " ") + ")", Tone: render.Good}
	case d.Usable:
		return render.Cell{Text: "usable", Tone: render.Good}
	case len(codes) == 0:
		return render.Cell{Text: "-", Tone: render.Dim}
	case d.Role == gpu.RoleGPU:
		return render.Cell{Text: strings.Join(codes, " "), Tone: render.Bad}
	default:
		return render.Cell{Text: strings.Join(codes, " "), Tone: render.Dim}
	}
}
