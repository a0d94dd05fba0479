package discover

import (
	"strconv"
	"strings"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// Details that lspci prints below a device and that are read here.
const (
	keyDriver = "Kernel driver in use"
	keyFlags  = "Flags"
	keyNUMA   = "NUMA node"
	keyGroup  = "IOMMU group"
	// keyOffBus stands below a function whose configuration space is all ones.
	keyOffBus = "!!! Unknown header type 7f"
)

// isDetail reports a line that belongs to the device above it. Some trackers
// strip the indentation, so the lines of lspci -nnk count by their words too.
func isDetail(line string) bool {
	if line[0] == ' ' || line[0] == '\t' {
		return true
	}
	switch key, _, _ := strings.Cut(line, ":"); key {
	case keyDriver, keyFlags, keyNUMA, keyGroup, keyOffBus, "Kernel modules", "Subsystem", "DeviceName":
		return true
	}
	return false
}

// parseDeviceLine reads "18:00.0 3D controller [0302]: NVIDIA Corporation …
// [10de:2335] (rev a1)", or with -n "18:00.0 0302: 10de:2335 (rev a1)". ok is
// false when the line starts with no address, or with nothing behind it.
func parseDeviceLine(line string) (f gpu.Function, ok bool) {
	word, rest := cutBlank(line)
	addr, err := gpu.ParseAddress(word)
	if err != nil || rest == "" {
		return gpu.Function{}, false
	}
	f.Address = addr
	if class, numbers, ok := strings.Cut(rest, ": "); ok && len(class) == 4 {
		f.Class, _ = gpu.ParseClass(class)
		id, _ := cutBlank(numbers)
		f.ID, _ = gpu.ParseID(id)
	} else {
		f.Class = firstClass(rest)
		f.ID = lastID(rest)
	}
	if f.Class != 0 {
		f.Class |= gpu.Class(hexAfter(rest, "(prog-if "))
	}
	// A revision of ff is read from a configuration space that is all ones.
	f.OffBus = f.IsNVIDIA() && strings.Contains(rest, "(rev ff)")
	return f, true
}

// firstClass finds the class, "[0302]:", in a device line.
func firstClass(s string) gpu.Class {
	for {
		_, body, ok := strings.Cut(s, "[")
		if !ok {
			return 0
		}
		if len(body) >= 5 && body[4] == ']' && (len(body) == 5 || body[5] == ':') {
			if class, err := gpu.ParseClass(body[:4]); err == nil {
				return class
			}
		}
		s = body
	}
}

const idLen = len("10de:2335")

// lastID finds the last "[10de:2335]" of a device line: names in brackets stand
// before it. The closing bracket may be clipped, a digit may not.
func lastID(s string) gpu.ID {
	for i := strings.LastIndexByte(s, '['); i >= 0; i = strings.LastIndexByte(s[:i], '[') {
		body := s[i+1:]
		if len(body) < idLen || len(body) > idLen && body[idLen] != ']' {
			continue
		}
		if id, err := gpu.ParseID(body[:idLen]); err == nil {
			return id
		}
	}
	return gpu.ID{}
}

// hexAfter reads the two hex digits behind a mark, 0 without it.
func hexAfter(s, mark string) uint8 {
	_, digits, ok := strings.Cut(s, mark)
	if !ok || len(digits) < 2 {
		return 0
	}
	v, err := strconv.ParseUint(digits[:2], 16, 8)
	if err != nil {
		return 0
	}
	return uint8(v)
}

// apply takes over one detail; length is that of the whole line.
func (b *block) apply(key, value string, length int) {
	switch key {
	case keyDriver:
		driver, _ := cutBlank(value)
		b.Driver = gpu.Driver(driver)
		b.severed = b.severed || driver == ""
	case keyNUMA:
		b.numa(value)
	case keyGroup:
		b.group(value)
	case keyOffBus:
		b.OffBus = b.IsNVIDIA()
	case keyFlags:
		b.flags = length
		for flag := range strings.SplitSeq(value, ", ") {
			if node, ok := strings.CutPrefix(flag, keyNUMA+" "); ok {
				b.numa(node)
			}
			if group, ok := strings.CutPrefix(flag, keyGroup+" "); ok {
				b.group(group)
			}
		}
	}
}

func (b *block) numa(s string) {
	if node, err := strconv.ParseUint(s, 10, 31); err == nil {
		n := int(node)
		b.NUMA = &n
	}
}

func (b *block) group(s string) {
	if id, err := strconv.ParseUint(s, 10, 31); err == nil {
		b.Group = gpu.InGroup(int(id))
	}
}

// distrustTail forgets the number that ends a clipped line: of "IOMMU group 33"
// the terminal may have left "IOMMU group 3".
func (b *block) distrustTail() {
	if b.Group.Known() {
		b.Group = gpu.Group{}
		return
	}
	b.NUMA = nil
}
