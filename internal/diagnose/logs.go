package diagnose

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// pluginTrouble are the words of NVIDIA's device plugin for what it cannot do.
var pluginTrouble = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)the ResourceName "\S*" is invalid|error starting .* device plugin|could not (?:start|register)|failed to (?:start|register|dial|create)|unable to (?:open|read|get)|error (?:accessing|reading|opening)|marking .*unhealthy|no such file or directory|invalid allocation request|requested device`)
})

// notSet is virt-launcher's warning that a variable with a device's addresses is
// missing. One of the two variables always is.
var notSet = regexp.MustCompile(`\b((?:MDEV_)?PCI_RESOURCE_\S+) not set for resource (\S+?)[".,;]*(?:\s|$)`)

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
			switch found := pluginTrouble().MatchString(line); {
			case launcher(line):
			case found && !d.saysMore(line):
				d.found = append(d.found, New("GPU0417", "log "+log.Name, Values{
					"where": fmt.Sprintf("%s:%d", log.Name, number+1), "text": shorten(oneLine(line)),
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
		said := read(&Message{Text: line})
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

// said reports whether a message about the machine has said the same.
func (d *diagnosis) said(about Ref, code Code) bool {
	return slices.ContainsFunc(d.symptoms[about], func(s symptom) bool { return s.code == code })
}

// Telling reports whether a line of a log says anything that a diagnosis goes by.
func Telling(line string) bool {
	if notSet.MatchString(line) || pluginTrouble().MatchString(line) {
		return true
	}
	said := read(&Message{Text: line})
	return len(said) > 0 && said[0].onDomain()
}
