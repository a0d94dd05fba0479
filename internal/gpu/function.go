package gpu

import (
	"fmt"
	"strconv"
	"strings"
)

// Class is a PCI class code: base class, subclass and programming interface,
// 0xbbsspp.
type Class uint32

// ParseClass reads "0302", "030200" or "0x030200".
func ParseClass(s string) (Class, error) {
	digits := strings.TrimPrefix(s, "0x")
	v, err := parseHex(digits, 24)
	switch {
	case err != nil:
	case len(digits) == 4:
		return Class(v << 8), nil
	case len(digits) == 6:
		return Class(v), nil
	}
	return 0, fmt.Errorf("parse PCI class %q: want 4 or 6 hex digits", s)
}

// String returns base class and subclass as lspci -nn shows them, "0302".
func (c Class) String() string { return hex4(uint16(c >> 8)) }

// IsGPU reports a VGA (0300) or 3D (0302) controller.
func (c Class) IsGPU() bool { return c>>8 == 0x0300 || c>>8 == 0x0302 }

// IsBridge reports a host or PCI-to-PCI bridge (0600, 0604). Bridges stay on
// their own driver and never block an IOMMU group.
func (c Class) IsBridge() bool { return c>>8 == 0x0600 || c>>8 == 0x0604 }

// IsOtherBridge reports class 0680, which NVIDIA's NVSwitches carry.
func (c Class) IsOtherBridge() bool { return c>>8 == 0x0680 }

// Driver is the name of the kernel driver bound to a function, "" when none is.
type Driver string

// IsVFIO reports a driver through which a function can be handed to a VM.
// NVIDIA's variant for Grace is spelt in three ways in the field.
func (d Driver) IsVFIO() bool {
	return d == "vfio-pci" || d.IsGraceVFIO()
}

// IsGraceVFIO reports NVIDIA's vfio variant driver for Grace systems.
func (d Driver) IsGraceVFIO() bool {
	switch d {
	case "nvgrace_gpu_vfio_pci", "nvgrace-gpu-vfio-pci", "nvgrace_vfio_pci":
		return true
	}
	return false
}

// Group is the IOMMU group of a function: unknown (the zero value), none, or a
// number. Group 0 is an ordinary group.
type Group struct {
	state groupState
	id    int
}

type groupState uint8

const (
	groupUnknown groupState = iota
	groupNone
	groupNumbered
)

// NoGroup is the group of a function that belongs to none: no IOMMU guards it.
func NoGroup() Group { return Group{state: groupNone} }

// InGroup is the group with number id.
func InGroup(id int) Group { return Group{state: groupNumbered, id: id} }

// ParseGroup reads a number, "none", or "unknown".
func ParseGroup(s string) (Group, error) {
	switch s {
	case "none":
		return NoGroup(), nil
	case "unknown":
		return Group{}, nil
	}
	id, err := strconv.Atoi(s)
	if err != nil || id < 0 || strings.HasPrefix(s, "+") {
		return Group{}, fmt.Errorf("parse IOMMU group %q: want a number, \"none\" or \"unknown\"", s)
	}
	return InGroup(id), nil
}

// ID returns the number; ok is false when there is no group or none is known.
func (g Group) ID() (id int, ok bool) { return g.id, g.state == groupNumbered }

// None reports that the function is known to be in no group.
func (g Group) None() bool { return g.state == groupNone }

// Known reports whether anything is known about the group.
func (g Group) Known() bool { return g.state != groupUnknown }

// String returns the number, "none" or "unknown".
func (g Group) String() string {
	switch g.state {
	case groupNone:
		return "none"
	case groupNumbered:
		return strconv.Itoa(g.id)
	default:
		return "unknown"
	}
}

// Role says what one of NVIDIA's functions is to gpuctl.
type Role string

// The roles, as they appear in gpuctl's output.
const (
	RoleGPU      Role = "gpu"      // a physical display or 3D controller
	RoleVF       Role = "vf"       // an SR-IOV virtual function of a GPU
	RoleNVSwitch Role = "nvswitch" // a fabric switch, never handed out by itself
	RoleSibling  Role = "sibling"  // audio, USB, UCSI and whatever else sits on a card
)

// Function is one PCI function of a host.
type Function struct {
	Address Address
	ID      ID
	Class   Class
	Driver  Driver
	// DriverUnknown is set when the source does not say which driver is bound
	// (lspci without -k), as opposed to none being bound.
	DriverUnknown bool
	Group         Group
	NUMA          *int // nil: unknown, or the firmware names none

	VF           bool     // SR-IOV virtual function
	VFGuessed    bool     // VF was concluded from address and driver, not read
	PhysFn       *Address // the physical function of a VF, where known
	TotalVFs     int      // sriov_totalvfs of a physical function
	NumVFs       int      // sriov_numvfs of a physical function
	MdevTypes    []MdevType
	VGPUTypes    []VGPUType // vendor-VFIO vGPU types that could be created on this VF
	CurrentVGPU  string     // vendor-VFIO vGPU type set on this VF, "" when none
	OffBus       bool       // config space reads all ones: the device fell off the bus
	DriverForced string     // driver_override, "" when none
	PowerState   string     // "D0", "D3hot", …; "" unknown
	LinkSpeed    string     // as sysfs prints it, "32.0 GT/s PCIe"; "" unknown
	LinkWidth    int        // lanes; 0 unknown
	// VFIONode says whether the character device that a VM would open exists:
	// /dev/vfio/<group>, or with iommufd /dev/vfio/devices/vfioN.
	VFIONode Presence
}

// Presence is what a source says about a thing that may exist.
type Presence uint8

// The zero Presence is PresenceUnknown.
const (
	PresenceUnknown Presence = iota
	Present
	Absent
)

// MdevType is one mediated device type that a parent offers.
type MdevType struct {
	ID        string // "nvidia-592"
	Name      string // "NVIDIA A10-12Q"
	Available int    // instances that could still be created
}

// VGPUType is one vendor-VFIO vGPU type that a VF could carry.
type VGPUType struct {
	ID   int
	Name string
}

// Mdev is one existing mediated device.
type Mdev struct {
	UUID     string
	TypeID   string // "nvidia-592"
	TypeName string // "NVIDIA A10-12Q"; "" when the parent does not say
	Parent   Address
	Group    Group
	NUMA     *int
}

// IsNVIDIA reports whether the function is one of NVIDIA's.
func (f *Function) IsNVIDIA() bool { return f.ID.IsNVIDIA() }

// Role classifies one of NVIDIA's functions.
func (f *Function) Role() Role {
	switch {
	case f.VF:
		return RoleVF
	case f.Class.IsGPU():
		return RoleGPU
	case f.Class.IsOtherBridge():
		return RoleNVSwitch
	default:
		return RoleSibling
	}
}

// IsGPU reports a physical GPU of NVIDIA's: class 0300 or 0302 and no VF.
func (f *Function) IsGPU() bool { return f.IsNVIDIA() && f.Role() == RoleGPU }
