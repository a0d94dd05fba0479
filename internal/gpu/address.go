package gpu

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// Address is the PCI address of one function. The domain may exceed 16 bits:
// Intel VMD controllers number theirs from 0x10000.
type Address struct {
	Domain                uint32
	Bus, Device, Function uint8
}

// ParseAddress reads "18:00.0" (domain 0), "0000:18:00.0" or "10000:18:00.0".
func ParseAddress(s string) (Address, error) {
	bad := func() (Address, error) {
		return Address{}, fmt.Errorf("parse PCI address %q: want [domain:]bus:device.function in hex", s)
	}
	rest, fn, ok := strings.Cut(s, ".")
	if !ok || len(fn) != 1 {
		return bad()
	}
	parts := strings.Split(rest, ":")
	if len(parts) == 2 {
		parts = append([]string{"0000"}, parts...)
	}
	if len(parts) != 3 || len(parts[0]) < 4 || len(parts[0]) > 8 || len(parts[1]) != 2 || len(parts[2]) != 2 {
		return bad()
	}
	domain, err1 := parseHex(parts[0], 32)
	bus, err2 := parseHex(parts[1], 8)
	dev, err3 := parseHex(parts[2], 8)
	function, err4 := parseHex(fn, 8)
	if err1 != nil || err2 != nil || err3 != nil || err4 != nil || dev > 0x1f || function > 7 {
		return bad()
	}
	return Address{Domain: uint32(domain), Bus: uint8(bus), Device: uint8(dev), Function: uint8(function)}, nil
}

// String returns the address as sysfs writes it, "0000:18:00.0".
func (a Address) String() string {
	if a.Domain > 0xffff {
		return fmt.Sprintf("%x:%02x:%02x.%x", a.Domain, a.Bus, a.Device, a.Function)
	}
	d := hex4(uint16(a.Domain))
	return d + string([]byte{
		':', hexDigits[a.Bus>>4], hexDigits[a.Bus&15], ':', hexDigits[a.Device>>4], hexDigits[a.Device&15], '.', hexDigits[a.Function&15],
	})
}

// Compare orders addresses by domain, bus, device and function.
func (a Address) Compare(b Address) int {
	return cmp.Or(
		cmp.Compare(a.Domain, b.Domain),
		cmp.Compare(a.Bus, b.Bus),
		cmp.Compare(a.Device, b.Device),
		cmp.Compare(a.Function, b.Function),
	)
}

// SameCard reports whether two functions sit in one slot, and so on one card.
func (a Address) SameCard(b Address) bool {
	a.Function, b.Function = 0, 0
	return a == b
}

// parseHex accepts plain hex digits only: no sign, no prefix, no underscore.
func parseHex(s string, bits int) (uint64, error) {
	for _, r := range s {
		if !strings.ContainsRune("0123456789abcdefABCDEF", r) {
			return 0, fmt.Errorf("parse hex %q: unexpected %q", s, r)
		}
	}
	return strconv.ParseUint(s, 16, bits)
}
