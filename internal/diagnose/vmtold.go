package diagnose

import (
	"regexp"
	"slices"
	"strings"
	"sync"
)

// denied is how the API server passes on what one of gpuctl's webhooks says.
var denied = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`denied the request: (GPU0\d{3}): (.+)$`) })

// ownWords reads a refusal by one of gpuctl's webhooks.
func ownWords(m *Message, text string) (s symptom, ok bool) {
	found := denied().FindStringSubmatch(text)
	if found == nil {
		return s, false
	}
	e, known := Lookup(found[1])
	return symptom{code: e.Code, message: m, text: cut(found[2]), told: true}, known
}

// passOn passes on a refusal, with the catalogue's hint.
func passOn(v *VM, s *symptom) *Finding {
	e, _ := Lookup(string(s.code))
	f := Finding{Code: s.code, Severity: e.Severity, Object: v.String(), Message: s.text, Hint: fill(e.Hint, e.values(v, s.text))}
	if strings.Contains(f.Hint, "{") {
		f.Hint = "gpuctl explain " + string(s.code)
	}
	if s.message.At.IsZero() {
		f.Message += " (a condition says so, which keeps the first refusal: kubectl get events -n " + v.Namespace + " has the last)"
	} else {
		f.Message += " (" + stamp(s.message.At) + ")"
	}
	return named(v, &f)
}

// named puts the machine's name into a hint that leaves it open.
func named(v *VM, f *Finding) *Finding {
	f.Hint = strings.ReplaceAll(f.Hint, "virtctl restart NAME", "virtctl restart "+v.Name+" -n "+v.Namespace)
	return f
}

// values reads out of a refusal's text for tenants what fills the hint.
func (e *Entry) values(v *VM, text string) Values {
	out := Values{"namespace": v.Namespace, "moves": ""}
	if re := e.pattern(); re != nil {
		for i, part := range re.FindStringSubmatch(text) {
			if name := re.SubexpNames()[i]; name != "" {
				out[name] = part
			}
		}
	}
	return out
}

var placeholders = regexp.MustCompile(`\\\{([a-z]+)\\\}`)

// pattern matches the texts that the entry has for tenants; nil where the error has them.
func (e *Entry) pattern() *regexp.Regexp {
	template := e.Tenant
	switch template {
	case textOfError:
		return nil
	case "":
		template = e.Message
	}
	return regexp.MustCompile("^" + placeholders.ReplaceAllString(regexp.QuoteMeta(template), "(?P<$1>.+?)") + "$")
}

// lastWord returns what gpuctl said last of a machine's start, nil when it has said
// nothing: an Event, since a condition keeps the first refusal.
func lastWord(v *VM, said []symptom) *symptom {
	if v.Halted && !v.Live() { // nobody starts it
		return nil
	}
	var of []*symptom
	for i := range said {
		s := &said[i]
		made := v.Live() && v.Kind == "VirtualMachine" && s.message.About.Kind == "VirtualMachine" // it was refused before
		if s.told && !made {
			of = append(of, s)
		}
	}
	if i := slices.IndexFunc(of, func(s *symptom) bool { return !s.message.At.IsZero() }); i >= 0 {
		return of[i] // they come with the newest first
	}
	if len(of) > 0 {
		return of[0]
	}
	return nil
}

// startLink returns the link of a machine that references devices to which a refusal of
// its start belongs.
func startLink(c Code) Link {
	switch c {
	case "GPU0630", "GPU0632", "GPU0633", "GPU0634", "GPU0635", "GPU0636", "GPU0713":
		return LinkOrder
	case "GPU0612", "GPU0620", "GPU0621", "GPU0622", "GPU0623", "GPU0625":
		return LinkClass
	case "GPU0624":
		return LinkTable
	case "GPU0511", "GPU0638", "GPU0639", "GPU0649":
		return LinkSpec
	case "GPU0645", "GPU0646", "GPU0647":
		return LinkLauncher
	}
	switch {
	case c >= "GPU0602" && c <= "GPU0613", c == "GPU0648":
		return LinkBudget
	case strings.HasPrefix(string(c), "GPU07"):
		return LinkPlacement
	}
	return LinkInstance
}
