package gpu

import "strings"

// IsGPUDevice reports whether NVIDIA's device d is a GPU, as far as the names
// that pci.ids has for it tell; an id that no pci.ids known here has counts as
// one. Use it where the PCI class is not at hand: Function.IsGPU is better.
//
// pci.ids states no class, but it names everything that is not a GPU by its
// function: audio, USB and UCSI parts of a card, NVSwitches and PCIe switches,
// bridges, root complexes, network, storage and memory controllers of chipsets
// and of Tegra, Grace and Vera. So the rule goes by words: a name with one of
// those words is no GPU, and neither is a bare nForce chipset part. GPUs may be
// called almost anything else, "Skinny Joe" included.
func IsGPUDevice(d DeviceID) bool {
	row := tableRow(d)
	for s := latest; s >= 0; s-- {
		if name := nameIn(row, s); name != "" {
			return soundsLikeGPU(name)
		}
	}
	return true
}

// MayBeGPU reports whether n can be a GPU or vGPU that NVIDIA's KubeVirt
// device plugin serves, judged by the name alone: by the id when the name is a
// bare id, by its words otherwise (see IsGPUDevice), and true for a name
// under nvidia.com/ that nothing speaks against. Names of the container device
// plugin are not: such a GPU is never handed to a VM. Releases before v1.2.2
// can give a GPU the name of another vendor's card, which no rule can see.
func (n ResourceName) MayBeGPU() bool {
	if !n.IsNVIDIA() || n.IsContainer() {
		return false
	}
	if id, ok := n.hexID(); ok {
		return IsGPUDevice(id)
	}
	return soundsLikeGPU(n.Short())
}

// soundsLikeGPU judges a derived name, or a name that somebody made up.
func soundsLikeGPU(name string) bool {
	name = strings.ToUpper(name)
	for word := range strings.FieldsFuncSeq(name, func(c rune) bool { return strings.ContainsRune("_-.", c) }) {
		if namesOtherPart(word) {
			return false
		}
	}
	// nForce chipsets have graphics of their own, "NFORCE_220_420_NV1A_GEFORCE2_MX".
	return !strings.HasPrefix(name, "NFORCE") || strings.Contains(name, "GEFORCE")
}

// namesOtherPart reports a word that pci.ids uses for parts that are not GPUs
// and for no GPU at all. CPU is Vera's and the chipsets' host bridge, MCI, PMU
// and SMU are parts of chipsets.
func namesOtherPart(word string) bool {
	switch word {
	case "AUDIO", "MODEM", "USB", "UCSI", // beside the GPU on a card
		"SWITCH", "NVSWITCH", "BRIDGE", "ROOT", "ENDPOINT", "HOST", "CPU", // fabric and hosts
		"CONTROLLER", "COPROCESSOR", "MANAGEMENT", "SMBUS", "SMU", "PMU", "MCI", // chipset
		"ETHERNET", "IDE", "ATA", "SATA", "AHCI", "RAID":
		return true
	}
	return isNetworkWord(word)
}

// isNetworkWord reports a word of NVIDIA's network operator, which puts its own
// devices under nvidia.com/ too, nvidia.com/hostdev by default.
func isNetworkWord(word string) bool {
	switch word {
	case "HOSTDEV", "MLNXNICS", "NIC", "NICS", "RDMA", "CONNECTX", "BLUEFIELD", "DPU":
		return true
	}
	return false
}

// IsNetwork reports a name that NVIDIA's network operator gives to its devices,
// nvidia.com/hostdev or nvidia.com/rdma_shared_device_a. It is a guess by words.
func (n ResourceName) IsNetwork() bool {
	if !n.IsNVIDIA() {
		return false
	}
	split := func(c rune) bool { return strings.ContainsRune("_-.", c) }
	for word := range strings.FieldsFuncSeq(strings.ToUpper(n.Short()), split) {
		if isNetworkWord(word) {
			return true
		}
	}
	return false
}

// IsVGPU reports a name that looks like a vGPU profile: it ends in "-", a
// size, and a series letter (A, B, C or Q), perhaps with a variant behind it:
// GRID_T4-16Q, P100-1B4, NVIDIA_A100-1-5CME. Names from pci.ids never contain
// "-", so none of them looks like one.
func (n ResourceName) IsVGPU() bool {
	short := n.Short()
	dash := strings.LastIndexByte(short, '-')
	if dash <= 0 {
		return false
	}
	profile := short[dash+1:]
	series := strings.TrimLeft(profile, "0123456789")
	if series == profile || series == "" || len(series) > 4 {
		return false
	}
	variant := strings.Trim(series[1:], "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")
	return strings.IndexByte("ABCQ", series[0]) >= 0 && variant == ""
}
