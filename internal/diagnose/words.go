package diagnose

import (
	"regexp"
	"sync"
)

// words are the source of a pattern: what a message has to say, and what it must not
// say.
type words struct {
	code   Code
	re     string
	unless string
}

// refusals are KubeVirt's words for what it does not let pass. One message can have
// several.
var refusals = compiled(
	words{code: "GPU0301", re: `host ?devices? feature gate is not enabled`},
	words{code: "GPU0302", re: `(?:GPU|host ?device) (?P<name>\S+) is not permitted in (?:permittedHostDevices|kubevirt-host-device-plugin-config)`},
	words{code: "GPU0315", re: `\bGPU feature gate is not enabled in kubevirt-config`},
)

// patterns are the words of KubeVirt, the scheduler, kubelet, libvirt, QEMU and the
// kernel for what goes wrong with host devices, the most telling first: the first
// that matches counts. A message about a domain that none of them fits is GPU0528.
var patterns = compiled(
	words{code: "GPU0508", re: `UnexpectedAdmissionError|Allocate failed due to|requested number of devices unavailable|no healthy devices present|devices are no longer healthy|(?:cannot|can't) allocate (?:unregistered|unhealthy) device|GetPreferredAllocation rpc failed|invalid allocation request|could not determine iommufd device`},
	words{code: "GPU0506", re: `\d+/\d+ nodes are available.*Insufficient (?P<name>nvidia\.com/[\w.-]+)`},
	words{code: "GPU0506", re: `\d+/\d+ nodes are available.*Insufficient (?P<name>[a-z0-9.-]+/[\w.-]+)`, unless: `Insufficient [a-z0-9.-]*kubevirt\.io/`},
	words{code: "GPU0507", re: `\d+/\d+ nodes are available`},
	words{code: "GPU0524", re: `number of (?:\S+ )*(?:GPU/s|host ?devices?|vGPUs?)\S* do(?:es)? not match|no more addresses to allocate for resource|resource "?(?P<name>[a-z0-9.-]+/[\w.-]+)"? does not exist|has no mdevUUID or pciBusID in metadata|fail\w* to crea[dt]e (?:DRA )?GPU host-devices`},
	words{code: "GPU0520", re: `group (?P<group>\d+) is not viable`},
	words{code: "GPU0530", re: `no iommu_group found|No available IOMMU models|failed to set (?:iommu for|group) container|allow_unsafe_interrupts|host doesn't support passthrough of host PCI devices|requested this device have a 1:1 IOMMU mapping`},
	words{code: "GPU0523", re: `/dev/vfio\S*\W+Device or resource busy|vfio.*Device or resource busy|(?:iommufd|error getting device).*Device or resource busy|BAR \d+\W+can't reserve|PCI device \S+ is (?:already )?in use|device \S+ is (?:already )?in use by (?:driver|domain)|hostdev\S*.* (?:already )?in use`, unless: `SET_IRQS`},
	words{code: "GPU0525", re: `(?:failed to open|could not open|cannot open|unable to open|cannot access|failed to stat|no such file|lstat)\W*(?:'|")?/dev/(?:vfio|iommu)|/dev/(?:vfio|iommu)\S*\W+(?:no such file|permission denied|operation not permitted|no such device)|must be manually detached from the host|failed to open config space|error bind device fd=`},
	words{code: "GPU0521", re: `VFIO_MAP_DMA\b.*(?:Cannot allocate memory|-12)|vfio_(?:container_)?dma_map\(.*(?:Cannot allocate memory|= -12)|IOMMU_IOAS_MAP failed: Cannot allocate|cannot limit locked memory|\blocked[- ]memory\b|\b(?:RLIMIT_)?memlock\b|cannot set (?:up )?guest memory|\bmlock`},
	words{code: "GPU0526", re: `(?:failed|unable|cannot|could not) (?:to )?reset (?:the )?(?:PCI|vfio|host|device|function|bus)|vfio\b.*(?:failed|unable|cannot|could not) (?:to )?reset|no reset mechanism|available reset mechanism|not ready \d+ms after .*giving up|reset timed out|not responding after reset`},
	words{code: "GPU0527", re: `\b(?:mdev|mediated device|vgpu)\b.*(?:fail|error|not |no |unable|cannot)|(?:fail|error|unable|cannot)\w* .*\b(?:mdev|mediated device|vgpu)\b|vfio (?:\[hidden\]|[0-9a-f]{8}-[0-9a-f-]{27}): error getting device`},
	words{code: "GPU0522", re: `error getting device|Unknown PCI header type|no such host device|(?:vfio|PCI|hostdev|/sys/bus/pci)\b.*no such device|failed to (?:read|get) (?:device|PCI) (?:config|info)|(?:host|PCI) device \S+ (?:does not exist|not found)|device (?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7] (?:does not exist|not found)|could not access /sys/bus/pci|fallen off the bus|stuck in D3`},
	words{code: "GPU0529", re: `failed to prepare dynamic resources|NodePrepareResources|unable to get device spec for`},
	words{code: "GPU0513", re: `exceeded quota|admission webhook .* denied|failed to render launch manifest|error creating (?:pod|virtual machine instance)|is forbidden|needs a privileged namespace|the request is invalid|contains (?:both )?DRA |must specify all claims used`},
	words{
		code: "GPU0528", re: `SyncVMI failed|Synchronizing with the Domain failed|Synchronizing the VirtualMachineInstance failed|failed to generate libvirt domain|failed to sync vmi\b|LibvirtError|virError|unexpectedly closed the monitor|server error\. command|vfio_(?:container_)?dma_map\(|VFIO_MAP_DMA`,
		unless: `Domain not found: no domain with matching|guest agent`,
	},
)

// onPassthrough are words of messages about passed devices. What is said about a
// machine that is not known to have one counts only with them.
var onPassthrough = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)vfio|iommu|\bmdev|mediated device|host-?dev|\bv?GPU|nvidia|PCI device|PCI header|\b[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\b`)
})

func compiled(all ...words) func() []pattern {
	return sync.OnceValue(func() []pattern {
		var out []pattern
		for _, w := range all {
			p := pattern{code: w.code, re: regexp.MustCompile(`(?is)` + w.re)}
			if w.unless != "" {
				p.unless = regexp.MustCompile(`(?is)` + w.unless)
			}
			out = append(out, p)
		}
		return out
	})
}
