package diagnose

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// pluginTrouble are the words of device plugins, NVIDIA's and virt-handler's, for what
// they cannot do; the first ones nobody else says.
var (
	pluginOwn = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?i)the ResourceName "\S*" is invalid|skipping \S+ driver \S+ is not a supported VFIO driver|could not get (?:driver|IOMMU group|vGPU type identifier) for device|IommuGroup has changed on the system|invalid allocation request|could not determine iommufd device|could not find device name for device id|error opening pci ids file|error starting .* device plugin|error registering with device plugin manager|unable to restart server|marking .*unhealthy|failed to read (?:iommu_group|driver) link|monitored device /dev/vfio\S* disappeared|IOMMUFD not supported on this node`)
	})
	pluginTrouble = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?i)could not (?:start|register)|failed to (?:start|register|dial|create)|unable to (?:open|read|get)|error (?:accessing|reading|opening)|no such file or directory|requested device`)
	})
)

// noMdevs is what NVIDIA's plugin says on each node without mediated devices.
var noMdevs = regexp.MustCompile(`/sys/(?:bus|class)/mdev`)

// managerTrouble are the words of gpu-operator's vfio-manager, of its init container
// k8s-driver-manager, and of the validator behind them.
var managerTrouble = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)driver is pre-installed on host|could not unload NVIDIA driver kernel modules|failed to bind (?:device|graphics auxiliary device|\S+ to)|failed to unbind \S+ from|failed to find directory for vfio driver|failed to load "?\S*vfio\S* driver|device not bound to '?\S*vfio`)
})

// notSet is virt-launcher's warning that a variable with a device's addresses is
// missing. One of the two variables always is.
var notSet = regexp.MustCompile(`\b((?:MDEV_)?PCI_RESOURCE_\S+) not set for resource ([\w./-]*\w)`)

// logs reads pasted logs. What a launcher says belongs to the only machine of the
// evidence, what a plugin says to the only node.
func (d *diagnosis) logs(subject Subject) {
	if subject.Kind == "node" && len(d.Nodes) > 1 {
		return
	}
	for i := range d.Logs {
		log := &d.Logs[i]
		launcher := d.launcherLog(log)
		for number, line := range log.Lines {
			code := Code("GPU0417")
			switch {
			case noMdevs.MatchString(line):
				continue
			case pluginOwn().MatchString(line):
			case managerTrouble().MatchString(line):
				code = "GPU0218"
			case launcher(line) || !pluginTrouble().MatchString(line):
				continue
			}
			if !d.saysMore(line) {
				d.found = append(d.found, New(code, "log "+log.Name, Values{
					"where": fmt.Sprintf("%s:%d", log.Name, number+1), "text": shorten(oneLine(spoken(line))),
				}))
			}
		}
	}
}

// saysMore reports that a finding about the same name says what the line says.
func (d *diagnosis) saysMore(line string) bool {
	return slices.ContainsFunc(d.Findings, func(f Finding) bool {
		if f.Code != "GPU0405" {
			return false
		}
		name := nameIn(f.Message)
		return name != "" && strings.Contains(line, gpu.ResourceName(name).Short())
	})
}

func nameIn(text string) string {
	for word := range strings.FieldsSeq(text) {
		if word = strings.Trim(word, ".,;:\""); strings.HasPrefix(word, "nvidia.com/") {
			return word
		}
	}
	return ""
}

// launcherLog returns a reader of a launcher's lines; it says of each whether it
// was one.
func (d *diagnosis) launcherLog(log *Log) func(line string) bool {
	missing := map[string]string{} // resource → the variable that is not set
	reported := map[Code]bool{}
	return func(line string) bool {
		about := d.machineOf(Ref{})
		if about == nil {
			about = &VM{Ref: Ref{Kind: "log", Name: log.Name}}
		}
		if m := notSet.FindStringSubmatch(line); m != nil {
			if other, ok := missing[m[2]]; ok && other != m[1] && !reported["GPU0524"] {
				reported["GPU0524"] = true
				d.found = append(d.found, New("GPU0524", about.String(), Values{
					"user": about.String(), "text": "neither " + other + " nor " + m[1] + " is set",
					"hint": "see which device plugin serves " + m[2] + ": kubectl get pods -A | grep device-plugin",
				}))
			}
			missing[m[2]] = m[1]
			return true
		}
		said := read(&Message{Text: spoken(line)})
		if len(said) == 0 || !said[0].onDomain() {
			return false
		}
		s := said[0]
		if !reported[s.code] && !d.said(about.Ref, s.code) {
			reported[s.code] = true
			d.found = append(d.found, *d.symptomFinding(about, &s))
		}
		return true
	}
}

// spoken returns the words of a line that KubeVirt wrote as JSON, else the line.
func spoken(line string) string {
	var said struct{ Msg, Reason string }
	if json.Unmarshal([]byte(line), &said) != nil || said.Msg == "" {
		return line
	}
	if said.Reason == "" {
		return said.Msg
	}
	return said.Msg + ": " + said.Reason
}

// said reports whether a message about the machine has said the same.
func (d *diagnosis) said(about Ref, code Code) bool {
	return slices.ContainsFunc(d.symptoms[about], func(s symptom) bool { return s.code == code })
}

// Telling reports whether a line of a log says anything that a diagnosis goes by.
func Telling(line string) bool {
	if notSet.MatchString(line) || pluginOwn().MatchString(line) || managerTrouble().MatchString(line) || pluginTrouble().MatchString(line) {
		return true
	}
	said := read(&Message{Text: spoken(line)})
	return len(said) > 0 && said[0].onDomain()
}
