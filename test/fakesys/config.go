package fakesys

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// revision is what NVIDIA's boards of the last decade report, "rev a1".
const revision = 0xa1

// configSize is the configuration space of a conventional device. Without
// privileges the kernel shows its first 64 bytes only.
const configSize = 256

// subsystem is the board id of a function. NVIDIA repeats its vendor id.
func subsystem(f *gpu.Function) gpu.ID {
	return gpu.ID{Vendor: f.ID.Vendor, Device: 0x1234}
}

// modalias renders the 53 characters by which udev finds modules.
func modalias(f *gpu.Function) string {
	sub, class := subsystem(f), uint32(f.Class)
	return fmt.Sprintf("pci:v%08Xd%08Xsv%08Xsd%08Xbc%02Xsc%02Xi%02X",
		uint16(f.ID.Vendor), uint16(f.ID.Device), uint16(sub.Vendor), uint16(sub.Device),
		class>>16, class>>8&0xff, class&0xff)
}

// config renders the configuration space: the standard header, no
// capabilities. A function off the bus answers every read with ones.
func config(h *gpu.Host, f *gpu.Function) []byte {
	if f.OffBus {
		return bytes.Repeat([]byte{0xff}, configSize)
	}
	c := make([]byte, configSize)
	le := binary.LittleEndian
	vendor, device := uint16(f.ID.Vendor), uint16(f.ID.Device)
	if f.VF {
		vendor, device = 0xffff, 0xffff // the standard has VFs hide their ids here
	}
	le.PutUint16(c[0x00:], vendor)
	le.PutUint16(c[0x02:], device)
	le.PutUint16(c[0x04:], 0x0006) // memory and bus master enabled
	c[0x08] = revision
	c[0x09], c[0x0a], c[0x0b] = byte(f.Class), byte(f.Class>>8), byte(f.Class>>16)
	if f.Class>>8 == 0x0604 {
		c[0x0e] = 0x01 // header of a PCI-to-PCI bridge
	}
	if isMultiFunction(h, f) {
		c[0x0e] |= 0x80
	}
	sub := subsystem(f)
	if c[0x0e]&0x7f == 0 {
		le.PutUint16(c[0x2c:], uint16(sub.Vendor))
		le.PutUint16(c[0x2e:], uint16(sub.Device))
	}
	return c
}
