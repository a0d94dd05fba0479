package cluster

import (
	"net/netip"
	"regexp"
	"strings"
	"sync"
	"unicode"
)

// hidden stands for what was taken out of a text.
const hidden = "[hidden]"

const (
	// start is where a word begins, also behind a line break that is written as \n.
	start = `(\\[nrt]|\b)`
	// secretKey is the name of a value that nobody else is to see.
	secretKey = `(?:passw(?:or)?d|passphrase|secret|token|api[_-]?key|private[_-]?key|access[_-]?key|credential|(?:user|network)_?data_?base64)`
	// assigned stands between a key and its value, of JSON, YAML, flags or shell.
	assigned = `\\?["']?[ \t]*[:=](?:[ \t]*(?:[|>][+-]?[ \t]*)?\n[ \t]+|[ \t]*)`
	// value is one in quotes, or a word.
	value = `(?:\\"[^"]*\\"|"(?:[^"\\]|\\.)*"?|'[^']*'?|[^\s"']+)`
)

// secret is a shape of text that must not leave a cluster in a message. What the first
// group of re matches stays.
type secret struct {
	needs string // what is in every such text; a cheap look before the dear one
	re    *regexp.Regexp
}

// secrets are credentials, addresses of networks and machines, and what identifies
// hardware.
var secrets = sync.OnceValue(func() []secret {
	var out []secret
	for _, p := range []struct{ needs, re string }{
		{"-----BEGIN", `-----BEGIN [^-]+-----[\s\S]*?(?:-----END [^-]+-----|$)`},
		{"-----END", `(?:[A-Za-z0-9+/=]+(?:\s|\\n)+)*-----END [^-]+-----`},                                      // its head is cut off
		{"eyJ", start + `eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?`},                         // JWT
		{"@", `(?i)([a-z][a-z0-9+.-]*://)[^\s/@"':]+(?::[^\s"']*)?@`},                                           // user:password@
		{"", `(?i)(\bbearer\s+)[A-Za-z0-9+/_.~=-]{8,}`},                                                         // Authorization
		{"asic", `(\b[Bb]asic\s+)(?:[A-Za-z0-9+/]*[A-Z0-9][A-Za-z0-9+/]*={0,2})`},                               // the same
		{"", `(?i)([\w.-]*` + secretKey + `[\w.-]*` + assigned + `)` + value},                                   // key=value
		{"-", `(?i)(--?[\w-]*` + secretKey + `[\w-]*[ \t]+)[^\s-]\S*`},                                          // --key value
		{"", `(?i)(\b(?:serial(?:[ _-]?(?:no|number))?|uuid)` + assigned + `)` + value},                         // of hardware
		{"erial", `(\b[Ss]erial(?: [Nn]o\.?| [Nn]umber)? +)\d{8,}\b`},                                           // the same
		{"", start + `(?:ghp|gho|ghs|ghu|github_pat|glpat|xox[abp]|nvapi|sk|AKIA|ASIA)[-_]?[A-Za-z0-9_-]{16,}`}, // well-known tokens
		{"sha256~", start + `sha256~[A-Za-z0-9_-]{8,}`},                                                         // OpenShift's
		{"AAAA", start + `AAAA[A-Z][A-Za-z0-9+/]{12,}={0,2}`},                                                   // SSH key
		{"$", `\$(?:1|2[aby]?|5|6|7|y|gy)\$[^\s"':]+`},                                                          // crypt(3)
		{"", `(?i)` + start + `[0-9a-f]{2}(?:[:-][0-9a-f]{2}){5,7}\b`},                                          // MAC, InfiniBand GUID, device serial
		{".", `(?i)` + start + `[0-9a-f]{4}\.[0-9a-f]{4}\.[0-9a-f]{4}\b`},                                       // MAC as switches write it
		{".", start + `(?:25[0-5]|2[0-4]\d|1?\d?\d)(?:\.(?:25[0-5]|2[0-4]\d|1?\d?\d)){3}\b`},                    // IPv4
		{"-", `(?i)` + start + `[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b`},                // UUID
		{"I2Nsb3", `I2Nsb3VkLWNvbmZpZ[A-Za-z0-9+/_-]*={0,2}`},                                                   // "#cloud-config" in base64
		{"@", start + `[A-Za-z0-9._%+-]+@(?:[A-Za-z0-9-]+\.)+[A-Za-z]{2,}\b`},                                   // mail
	} {
		out = append(out, secret{p.needs, regexp.MustCompile(p.re)})
	}
	return out
})

var (
	// mayBeIPv6 is what an IPv6 address is among; PCI addresses and times are, too.
	mayBeIPv6 = regexp.MustCompile(`[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*`)
	// mayBeBase64 is what encoded data is among; paths and long names are, too.
	mayBeBase64 = regexp.MustCompile(`[A-Za-z0-9+/_-]{48,}={0,2}`)
)

// Scrub takes secrets and addresses out of a text of the cluster: what gpuctl
// prints and packs is pasted into public reports.
func Scrub(text string) string {
	for _, s := range secrets() {
		if strings.Contains(text, s.needs) {
			text = s.re.ReplaceAllString(text, "${1}"+hidden)
		}
	}
	text = mayBeBase64.ReplaceAllStringFunc(text, func(s string) string {
		if isEncoded(s) {
			return hidden
		}
		return s
	})
	return hideIPv6(text)
}

// isEncoded tells encoded data from a path or a name: somewhere it goes on for long
// without a separator.
func isEncoded(s string) bool {
	for part := range strings.FieldsFuncSeq(s, func(r rune) bool { return strings.ContainsRune("+/_-=", r) }) {
		mixed := strings.ContainsFunc(part, unicode.IsUpper) && strings.ContainsFunc(part, unicode.IsLower) && strings.ContainsFunc(part, unicode.IsDigit)
		if len(part) >= 32 || len(part) >= 12 && mixed {
			return true
		}
	}
	return false
}

// hideIPv6 hides what can be read as an IPv6 address, unless it is a part of a word.
func hideIPv6(text string) string {
	var out strings.Builder
	rest := 0
	for _, at := range mayBeIPv6.FindAllStringIndex(text, -1) {
		from, to := at[0], at[1]
		for to > from && (text[to-1] == '.' || text[to-1] == ':' && !strings.HasSuffix(text[from:to], "::")) {
			to--
		}
		if from < to && text[from] == ':' && !strings.HasPrefix(text[from:to], "::") {
			from++
		}
		if a, err := netip.ParseAddr(text[from:to]); err != nil || !a.Is6() || inWord(text, from) || to < len(text) && isWord(text[to]) {
			continue
		}
		out.WriteString(text[rest:from] + hidden)
		rest = to
	}
	return out.String() + text[rest:]
}

// inWord reports a place that is preceded by a word; the n of a written \n is none.
func inWord(text string, at int) bool {
	return at > 0 && isWord(text[at-1]) && (at < 2 || text[at-2] != '\\')
}

func isWord(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}
