package gpu

import (
	"fmt"
	"strings"
)

// Vendor ids that gpuctl tells apart.
const (
	VendorNVIDIA VendorID = 0x10de
)

// VendorID is a PCI vendor id.
type VendorID uint16

// DeviceID is a PCI device id; it means something only together with a vendor.
type DeviceID uint16

// ParseDeviceID reads four hex digits of either case, without 0x.
func ParseDeviceID(s string) (DeviceID, error) {
	if len(s) != 4 {
		return 0, fmt.Errorf("parse PCI device id %q: want four hex digits", s)
	}
	v, err := parseHex(s, 16)
	if err != nil {
		return 0, fmt.Errorf("parse PCI device id %q: want four hex digits", s)
	}
	return DeviceID(v), nil
}

// String returns four lower-case hex digits.
func (d DeviceID) String() string { return hex4(uint16(d)) }

// String returns four lower-case hex digits.
func (v VendorID) String() string { return hex4(uint16(v)) }

const hexDigits = "0123456789abcdef"

func hex4(v uint16) string {
	return string([]byte{hexDigits[v>>12], hexDigits[v>>8&15], hexDigits[v>>4&15], hexDigits[v&15]})
}

// ID is a PCI vendor and device id. The zero ID is "unknown": a clipped line
// of lspci leaves a function without one.
type ID struct {
	Vendor VendorID
	Device DeviceID
}

// NVIDIA returns the id of one of NVIDIA's devices.
func NVIDIA(d DeviceID) ID { return ID{Vendor: VendorNVIDIA, Device: d} }

// ParseID reads "10de:2335" in either case. KubeVirt compares a selector with
// exactly one vendor:device pair, so lists and wildcards are errors here.
func ParseID(s string) (ID, error) {
	v, d, ok := strings.Cut(s, ":")
	if !ok || len(v) != 4 || len(d) != 4 {
		return ID{}, fmt.Errorf("parse PCI id %q: want vendor:device, four hex digits each", s)
	}
	vendor, err1 := parseHex(v, 16)
	device, err2 := parseHex(d, 16)
	if err1 != nil || err2 != nil {
		return ID{}, fmt.Errorf("parse PCI id %q: want vendor:device, four hex digits each", s)
	}
	return ID{Vendor: VendorID(vendor), Device: DeviceID(device)}, nil
}

// Known reports whether the id was read at all.
func (i ID) Known() bool { return i != ID{} }

// IsNVIDIA reports whether the vendor is NVIDIA.
func (i ID) IsNVIDIA() bool { return i.Vendor == VendorNVIDIA }

// String returns the id as lspci -n writes it, "10de:2335".
func (i ID) String() string { return i.Vendor.String() + ":" + i.Device.String() }

// Selector returns the id as gpuctl writes it into a host device table,
// "10DE:2335". KubeVirt before 0.38 matched upper case only.
func (i ID) Selector() string { return strings.ToUpper(i.String()) }
