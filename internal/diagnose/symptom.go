package diagnose

import (
	"regexp"
	"strings"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// symptom is what one message says, as far as gpuctl knows its words.
type symptom struct {
	code    Code
	message *Message
	name    gpu.ResourceName // that the message names
	group   string           // IOMMU group that it names
	address string           // PCI address that it names, "0000:0e:00.0"
	text    string           // the message in one line, shortened
	told    bool             // gpuctl's own webhooks say it, the text is theirs
}

// pattern tells a symptom by its words. Named parts are the name and the group.
type pattern struct {
	code   Code
	re     *regexp.Regexp
	unless *regexp.Regexp // nil when nothing speaks against it
}

func (p *pattern) find(text string) []string {
	if p.unless != nil && p.unless.MatchString(text) {
		return nil
	}
	return p.re.FindStringSubmatch(text)
}

var addressPattern = regexp.MustCompile(`(?i)\b[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\b`)

var groupPattern = regexp.MustCompile(`\bgroup (\d+)\b`)

// read returns the symptoms of a message, none when it says nothing that gpuctl
// knows.
func read(m *Message) []symptom {
	if strings.HasSuffix(m.Source, "LiveMigratable") {
		return nil // machines with host devices never are, and nothing is wrong
	}
	text := oneLine(m.Text)
	if s, ok := ownWords(m, text); ok {
		return []symptom{s}
	}
	var out []symptom
	for _, p := range refusals() {
		if found := p.find(text); found != nil {
			out = append(out, p.symptom(m, text, found))
		}
	}
	if len(out) > 0 {
		return out
	}
	for _, p := range patterns() {
		found := p.find(text)
		if found != nil || p.code == "GPU0508" && m.Reason == "UnexpectedAdmissionError" {
			return []symptom{p.symptom(m, text, found)}
		}
	}
	return nil
}

func (p *pattern) symptom(m *Message, text string, found []string) symptom {
	s := symptom{code: p.code, message: m, address: strings.ToLower(addressPattern.FindString(text)), text: shorten(text)}
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
	head := longest / 3 // what went wrong comes last in the words of libvirt and QEMU
	return strings.ToValidUTF8(text[:head], "") + "…" + strings.ToValidUTF8(text[len(text)-longest+head:], "")
}

// aboutDevice reports a symptom that has to do with a passed device for certain.
func (s *symptom) aboutDevice() bool { return onPassthrough().MatchString(s.message.Text) }

// onDomain reports a symptom of QEMU or the launcher, which has the device.
func (s *symptom) onDomain() bool {
	f := Finding{Code: s.code}
	return f.link() == LinkDomain || f.link() == LinkLauncher
}
