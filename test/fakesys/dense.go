package fakesys

import "github.com/gpuctl/gpuctl/internal/gpu"

// Dense describes a large server: n functions in all, the given number of
// H200s among them, ready for passthrough, the rest bridges, network and
// storage functions. It is what benchmarks run on.
func Dense(n, gpus int) gpu.Host {
	h := gpu.Host{IOMMU: gpu.Present, IOMMUFD: gpu.Absent}
	for i := range n {
		h.Functions = append(h.Functions, filler(i, n))
	}
	for g := range gpus {
		f := &h.Functions[g*n/gpus]
		f.ID, f.Class, f.Driver = gpu.NVIDIA(0x2335), 0x030200, "vfio-pci"
		f.VFIONode, f.PowerState = gpu.Present, "D0"
		f.LinkSpeed, f.LinkWidth = "32.0 GT/s PCIe", 16
	}
	h.Sort()
	return h
}

// filler is function i of n that is no GPU: four functions to a bus, every
// second bus behind a bridge, one half of the machine on each NUMA node.
func filler(i, n int) gpu.Function {
	node := i * 2 / n
	f := gpu.Function{
		Address: gpu.Address{Domain: uint32(i / 1024), Bus: uint8(i / 4 % 256), Device: uint8(i % 4)},
		Group:   gpu.InGroup(i),
		NUMA:    &node,
	}
	switch i % 4 {
	case 0:
		f.ID, f.Class, f.Driver = gpu.ID{Vendor: 0x8086, Device: 0x352a}, 0x060400, "pcieport"
	case 1:
		f.ID, f.Class, f.Driver = gpu.ID{Vendor: 0x15b3, Device: 0x1021}, 0x020000, "mlx5_core"
	case 2:
		f.ID, f.Class, f.Driver = gpu.ID{Vendor: 0x144d, Device: 0xa80a}, 0x010802, "nvme"
	default:
		f.ID, f.Class = gpu.ID{Vendor: 0x8086, Device: 0x3250}, 0x088000
	}
	return f
}

// DenseVFs describes a vGPU server: the given number of A10s, each with 32 VFs
// that offer eight mediated device types.
func DenseVFs(gpus int) gpu.Host {
	h := gpu.Host{IOMMU: gpu.Present}
	for g := range gpus {
		h.Functions = append(h.Functions, card(g)...)
	}
	return h
}

func card(g int) []gpu.Function {
	const vfs = 32
	pf := gpu.Address{Bus: uint8(0x10 + g)}
	base := gpu.Function{
		ID: gpu.NVIDIA(0x2236), Class: 0x030200, Driver: "nvidia",
		PowerState: "D0", LinkSpeed: "16.0 GT/s PCIe", LinkWidth: 16,
	}
	out := make([]gpu.Function, 0, vfs+1)
	first := base
	first.Address, first.TotalVFs, first.NumVFs, first.Group = pf, vfs, vfs, gpu.InGroup(g)
	out = append(out, first)
	for i := range vfs {
		vf := base
		vf.Address = gpu.Address{Bus: pf.Bus, Device: uint8((i + 4) / 8), Function: uint8((i + 4) % 8)}
		vf.VF, vf.PhysFn, vf.Group = true, &pf, gpu.InGroup(100+g*vfs+i)
		vf.LinkSpeed, vf.LinkWidth = "", 0
		vf.MdevTypes = mdevTypes()
		out = append(out, vf)
	}
	return out
}

func mdevTypes() []gpu.MdevType {
	names := []string{"1B", "2B", "1Q", "2Q", "4Q", "8Q", "12Q", "24Q"}
	out := make([]gpu.MdevType, len(names))
	for i, n := range names {
		out[i] = gpu.MdevType{ID: "nvidia-" + string(rune('1'+i)), Name: "NVIDIA A10-" + n, Available: 1}
	}
	return out
}
