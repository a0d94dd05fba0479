package diagnose

import (
	"regexp"
	"strings"
	"sync"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// symptom is what one message says, as far as gpuctl knows its words.
type symptom struct {
	code    Code
	name    gpu.ResourceName // that the message names
	group   string           // IOMMU group that it names
	address string           // PCI address that it names, "0000:0e:00.0"
	text    string           // the message in one line, shortened
}

// pattern tells a symptom by its words. Named parts are the name and the group.
type pattern struct {
	code Code
	re   *regexp.Regexp
}

// words are the source of a pattern.
type words struct {
	code Code
	re   string
}

// refusals are KubeVirt's words for what it does not let pass. One message can have
// several.
var refusals = compiled(
	words{"GPU0301", `host ?devices? feature gate is not enabled`},
	words{"GPU0302", `(?:GPU|host ?device) (?P<name>\S+) is not permitted in (?:permittedHostDevices|kubevirt-host-device-plugin-config)`},
	words{"GPU0315", `\bGPU feature gate is not enabled in kubevirt-config`},
)

// patterns are the words of KubeVirt, the scheduler, kubelet, libvirt, QEMU and the
// kernel for what goes wrong with host devices, the most telling first: the first
// that matches counts. A message about a domain that none of them fits is GPU0528.
var patterns = compiled(
	words{"GPU0508", `UnexpectedAdmissionError|Allocate failed due to|requested number of devices unavailable|no healthy devices present|invalid allocation request`},
	words{"GPU0506", `\d+/\d+ nodes are available.*Insufficient (?P<name>[a-z0-9.-]+/[\w.-]+)`},
	words{"GPU0507", `\d+/\d+ nodes are available`},
	words{"GPU0524", `number of (?:\S+ )*(?:GPU/s|host ?devices?|vGPUs?)\S* do(?:es)? not match`},
	words{"GPU0520", `group (?P<group>\d+) is not viable`},
	words{"GPU0525", `(?:failed to open|could not open|cannot open|unable to open|cannot access|failed to stat|no such file)\W*(?:'|")?/dev/(?:vfio|iommu)|/dev/(?:vfio|iommu)\S*\W+(?:no such file|permission denied|operation not permitted|no such device)`},
	words{"GPU0521", `VFIO_MAP_DMA\b.*(?:Cannot allocate memory|-12)|vfio_(?:container_)?dma_map\(.*(?:Cannot allocate memory|= -12)|IOMMU_IOAS_MAP failed: Cannot allocate|cannot limit locked memory|locked[- ]memory|memlock|cannot set (?:up )?guest memory|mlock`},
	words{"GPU0523", `/dev/vfio\S*\W+Device or resource busy|vfio.*Device or resource busy|(?:PCI )?device \S+ is (?:already )?in use|already in use by|is in use by driver|in use by domain`},
	words{"GPU0526", `failed to reset|unable to reset|cannot reset|could not reset|no reset mechanism|reset timed out|not responding after reset`},
	words{"GPU0522", `error getting device|Unknown PCI header type|no such device|failed to (?:read|get) (?:device|PCI) (?:config|info)|host device \S+ not found|PCI device \S+ not found|could not access /sys/bus/pci|device \S+ (?:does not exist|not found)|fallen off the bus`},
	words{"GPU0527", `(?:mdev|mediated device|vgpu)\b.*(?:fail|error|not |no |unable|cannot)|(?:fail|error|unable|cannot)\w* .*(?:mdev|mediated device|vgpu)\b`},
	words{"GPU0513", `exceeded quota|admission webhook .* denied|failed to render launch manifest|error creating (?:pod|virtual machine instance)|is forbidden|the request is invalid`},
	words{"GPU0528", `SyncVMI failed|Synchronizing with the Domain failed|LibvirtError|unexpectedly closed the monitor|server error\. command`},
)

func compiled(all ...words) func() []pattern {
	return sync.OnceValue(func() []pattern {
		var out []pattern
		for _, w := range all {
			out = append(out, pattern{w.code, regexp.MustCompile(`(?is)` + w.re)})
		}
		return out
	})
}

var addressPattern = regexp.MustCompile(`(?i)\b[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\b`)

var groupPattern = regexp.MustCompile(`\bgroup (\d+)\b`)

// read returns the symptoms of a message, none when it says nothing that gpuctl
// knows.
func read(m *Message) []symptom {
	text := oneLine(m.Text)
	var out []symptom
	for _, p := range refusals() {
		if found := p.re.FindStringSubmatch(text); found != nil {
			out = append(out, p.symptom(text, found))
		}
	}
	if len(out) > 0 {
		return out
	}
	for _, p := range patterns() {
		found := p.re.FindStringSubmatch(text)
		if found != nil || p.code == "GPU0508" && m.Reason == "UnexpectedAdmissionError" {
			return []symptom{p.symptom(text, found)}
		}
	}
	return nil
}

func (p *pattern) symptom(text string, found []string) symptom {
	s := symptom{code: p.code, address: strings.ToLower(addressPattern.FindString(text)), text: shorten(text)}
	if group := groupPattern.FindStringSubmatch(text); group != nil {
		s.group = group[1]
	}
	if i := p.re.SubexpIndex("name"); i > 0 && i < len(found) {
		s.name = gpu.ResourceName(strings.TrimRight(found[i], ".,;:"))
	}
	return s
}

// oneLine folds white space, also where a message carries it as \n.
func oneLine(text string) string {
	return strings.Join(strings.Fields(strings.ReplaceAll(text, `\n`, " ")), " ")
}

// longest is how much of a foreign message a finding quotes.
const longest = 300

func shorten(text string) string {
	if len(text) <= longest {
		return text
	}
	return strings.ToValidUTF8(text[:longest], "") + "…"
}

// onDomain reports a symptom of QEMU or the launcher, which has the device.
func (s *symptom) onDomain() bool {
	f := Finding{Code: s.code}
	return f.link() == LinkDomain || f.link() == LinkLauncher
}
