package cluster

import (
	"maps"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

const (
	mebi = 1 << 20
	// launcherStorage is the ephemeral storage that every launcher requests, in bytes.
	launcherStorage = 50_000_000
	// usualRatio is how many virtual CPUs are one of a node, and usualCPU what KubeVirt's
	// cpuRequest is, where its configuration says nothing else.
	usualRatio = 10
	usualCPU   = "100m"
)

// requestsOf returns what the launcher of a VMI requests, NVIDIA's resources aside: its
// compute container, as services/renderresources.go has it. Left out are the containers
// beside it (container disks, consoles, virtiofs, hooks), the resources of networks,
// confidential computing and persistent reservation.
func requestsOf(vmi *kubevirtv1.VirtualMachineInstance, config *kubevirtv1.KubeVirtConfiguration) corev1.ResourceList {
	domain := &vmi.Spec.Domain
	out := corev1.ResourceList{}
	for name, n := range devicesOf(vmi, config) {
		out[name] = *resource.NewQuantity(n, resource.DecimalSI)
	}
	maps.Copy(out, domain.Resources.Limits)
	maps.Copy(out, domain.Resources.Requests)
	storage := domain.Resources.Requests[corev1.ResourceEphemeralStorage]
	storage.Add(*resource.NewQuantity(launcherStorage, resource.DecimalSI))
	out[corev1.ResourceEphemeralStorage] = storage
	c := cpuOf(vmi, config)
	out[corev1.ResourceCPU] = c.request
	memory, hugepages := memoryOf(vmi, config)
	memory.Add(overheadOf(vmi, config, c.virtual))
	out[corev1.ResourceMemory] = memory
	if m := domain.Memory; m != nil && m.Hugepages != nil {
		out[corev1.ResourceName(corev1.ResourceHugePagesPrefix+m.Hugepages.PageSize)] = hugepages
	}
	for name, q := range out {
		if strings.HasPrefix(string(name), gpu.Domain+"/") || q.Sign() <= 0 {
			delete(out, name)
		}
	}
	return out
}

// devicesOf returns the device plugins' units that a launcher has, GPUs aside
// (getRequiredResources, WithHostDevicesDevicePlugins).
func devicesOf(vmi *kubevirtv1.VirtualMachineInstance, config *kubevirtv1.KubeVirtConfiguration) map[corev1.ResourceName]int64 {
	out := map[corev1.ResourceName]int64{}
	d := &vmi.Spec.Domain.Devices
	on := func(b *bool, unset bool) bool { return b == nil && unset || b != nil && *b }
	emulates := config.DeveloperConfiguration.UseEmulation
	if len(d.Interfaces) > 0 || on(d.AutoattachPodInterface, true) {
		out["devices.kubevirt.io/tun"] = 1
	}
	for i := range d.Interfaces {
		if m := d.Interfaces[i].Model; !emulates && (m == "" || m == kubevirtv1.VirtIO) {
			out["devices.kubevirt.io/vhost-net"] = 1
		}
	}
	if !emulates && len(config.Hypervisors) == 0 {
		out["devices.kubevirt.io/kvm"] = 1
	}
	if on(d.AutoattachVSOCK, false) {
		out["devices.kubevirt.io/vhost-vsock"] = 1
	}
	for _, h := range d.HostDevices {
		if h.DeviceName != "" && h.ClaimRequest == nil {
			out[corev1.ResourceName(h.DeviceName)]++
		}
	}
	return out
}

// cpu is how many virtual CPUs a VMI has, and what its launcher requests for them.
type cpu struct {
	virtual int64
	request resource.Quantity
}

// cpuOf models WithCPUPinning and WithoutDedicatedCPU, after setDefaultResourceRequests
// and SetDefaultGuestCPUTopology. The even parity of emulator threads is left out.
func cpuOf(vmi *kubevirtv1.VirtualMachineInstance, config *kubevirtv1.KubeVirtConfiguration) cpu {
	domain := &vmi.Spec.Domain
	limit := *domain.Resources.Limits.Cpu()
	request, asked := domain.Resources.Requests[corev1.ResourceCPU]
	switch {
	case request.IsZero() && !limit.IsZero():
		request, asked = limit, true
	case !asked && config.CPURequest != nil && !config.CPURequest.Equal(resource.MustParse(usualCPU)) && !vmi.IsCPUDedicated():
		request, asked = *config.CPURequest, true
	}
	c := cpu{virtual: virtualCPUs(domain.CPU), request: request}
	if c.virtual == 0 {
		c.virtual = max(1, request.Value())
		if !limit.IsZero() {
			c.virtual = limit.Value()
		}
	}
	all := c.virtual
	if t := domain.IOThreads; t != nil && t.SupplementalPoolThreadCount != nil {
		all += int64(*t.SupplementalPoolThreadCount)
	}
	switch {
	case vmi.IsCPUDedicated():
		if domain.CPU.IsolateEmulatorThread {
			all++
		}
		c.request = *resource.NewQuantity(all, resource.DecimalSI)
	case !asked:
		ratio := int64(config.DeveloperConfiguration.CPUAllocationRatio)
		if ratio <= 0 {
			ratio = usualRatio
		}
		c.request = *resource.NewMilliQuantity(all*1000/ratio, resource.DecimalSI)
	}
	return c
}

// virtualCPUs is hardware.GetNumberOfVCPUs: what is not given counts as one, and all
// three as none.
func virtualCPUs(c *kubevirtv1.CPU) int64 {
	if c == nil || c.Cores == 0 && c.Sockets == 0 && c.Threads == 0 {
		return 0
	}
	return int64(max(c.Cores, 1)) * int64(max(c.Sockets, 1)) * int64(max(c.Threads, 1))
}

// memoryOf returns the guest's memory as the launcher requests it: with huge pages these,
// and what is asked for beyond the guest's (WithMemoryRequests, WithHugePages, after
// setGuestMemory).
func memoryOf(vmi *kubevirtv1.VirtualMachineInstance, config *kubevirtv1.KubeVirtConfiguration) (memory, hugepages resource.Quantity) {
	domain := &vmi.Spec.Domain
	limit := *domain.Resources.Limits.Memory()
	memory, asked := domain.Resources.Requests[corev1.ResourceMemory]
	guest := guestOf(domain)
	switch {
	case memory.IsZero() && !limit.IsZero():
		memory = limit
	case !asked:
		memory = overcommitted(guest, config)
	}
	if domain.Memory == nil || domain.Memory.Hugepages == nil {
		return memory, hugepages
	}
	if memory.Cmp(guest) <= 0 {
		return resource.Quantity{Format: resource.BinarySI}, memory
	}
	memory.Sub(guest)
	return memory, guest
}

// guestOf is the memory of the guest: its own, what is asked for it, or one huge page.
func guestOf(domain *kubevirtv1.DomainSpec) resource.Quantity {
	m, r := domain.Memory, &domain.Resources
	switch {
	case m != nil && m.Guest != nil:
		return *m.Guest
	case !r.Requests.Memory().IsZero():
		return *r.Requests.Memory()
	case !r.Limits.Memory().IsZero():
		return *r.Limits.Memory()
	case m != nil && m.Hugepages != nil:
		if page, err := resource.ParseQuantity(m.Hugepages.PageSize); err == nil {
			return page
		}
	}
	return resource.Quantity{Format: resource.BinarySI}
}

func overcommitted(guest resource.Quantity, config *kubevirtv1.KubeVirtConfiguration) resource.Quantity {
	percent := int64(config.DeveloperConfiguration.MemoryOvercommit)
	if percent <= 0 || percent == 100 {
		return guest
	}
	return *resource.NewQuantity(guest.Value()*100/percent, resource.BinarySI)
}

// overheadOf returns the memory that KubeVirt adds for itself
// (hypervisor/kvm/hypervisorbackend.go, GetMemoryOverhead), with the 1 GiB for VFIO: who
// asks for GPUs has them. Left out is what probes, a TPM, downward metrics, confidential
// computing, reserved overhead and network bindings add.
func overheadOf(vmi *kubevirtv1.VirtualMachineInstance, config *kubevirtv1.KubeVirtConfiguration, virtual int64) resource.Quantity {
	domain := &vmi.Spec.Domain
	paged := domain.Memory != nil && domain.Memory.Hugepages != nil
	if domain.Resources.OvercommitGuestOverhead && !paged {
		return resource.Quantity{Format: resource.BinarySI}
	}
	bytes := domain.Resources.Requests.Memory().Value()/512 + 1024*mebi
	bytes += (25+100+25+40+30)*mebi + (virtual+1)*8*mebi // its processes; virtual CPUs and the I/O thread
	if g := domain.Devices.AutoattachGraphicsDevice; g == nil || *g {
		bytes += 32 * mebi
	}
	if vmi.Spec.Architecture == "arm64" {
		bytes += 128 * mebi
	}
	if vmi.IsCPUDedicated() || vmi.WantsToHaveQOSGuaranteed() {
		bytes += 100 * mebi
	}
	if r := config.AdditionalGuestMemoryOverheadRatio; r != nil {
		if ratio, err := strconv.ParseFloat(*r, 64); err == nil && ratio > 0 {
			bytes += int64(float64((bytes+999)/1000)*(ratio-1)) * 1000 // MultiplyMemory counts kilobytes
		}
	}
	return *resource.NewQuantity(bytes, resource.BinarySI)
}
