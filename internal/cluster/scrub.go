package cluster

import (
	"net/netip"
	"regexp"
	"sync"
)

// hidden stands for what was taken out of a text.
const hidden = "[hidden]"

// secrets are the shapes that must not leave a cluster in a message: credentials,
// addresses of networks and machines, and what identifies hardware.
var secrets = sync.OnceValue(func() []*regexp.Regexp {
	var out []*regexp.Regexp
	for _, p := range []string{
		`-----BEGIN [^-]+-----[\s\S]*?(?:-----END [^-]+-----|$)`,
		`\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?`,                                                                    // JWT
		`(?i)\b(?:bearer|basic)\s+[A-Za-z0-9+/_.=-]{8,}`,                                                                                    // Authorization
		`(?i)[\w.-]*(?:passw(?:or)?d|passphrase|secret|token|api[_-]?key|private[_-]?key|credential)[\w.-]*["']?\s*[:=]\s*["']?[^\s"',;}]+`, // key=value
		`(?i)\b(?:serial(?:[ _-]?(?:no|number))?|uuid)["']?\s*[:=]\s*["']?[^\s"',;}]+`,
		`[a-z][a-z0-9+.-]*://[^\s/@"']+:[^\s/@"']+@`,                            // user:password@
		`\b(?:ghp|gho|ghs|glpat|xox[abp]|sk|AKIA|ASIA)[-_]?[A-Za-z0-9_-]{16,}`,  // well-known tokens
		`(?i)\b[0-9a-f]{2}(?:[:-][0-9a-f]{2}){5,7}\b`,                           // MAC, InfiniBand GUID, device serial
		`\b(?:25[0-5]|2[0-4]\d|1?\d?\d)(?:\.(?:25[0-5]|2[0-4]\d|1?\d?\d)){3}\b`, // IPv4
		`(?i)\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b`,  // UUID
		`\b[A-Za-z0-9+/]{48,}={0,2}`,                                            // base64
	} {
		out = append(out, regexp.MustCompile(p))
	}
	return out
})

// colons matches what may be an IPv6 address.
var colons = regexp.MustCompile(`[0-9A-Fa-f]*:[0-9A-Fa-f:]+(?:\.\d+){0,3}`)

// Scrub takes secrets and addresses out of a text of the cluster: what gpuctl
// prints and packs is pasted into public reports.
func Scrub(text string) string {
	for _, re := range secrets() {
		text = re.ReplaceAllString(text, hidden)
	}
	return colons.ReplaceAllStringFunc(text, func(s string) string {
		if _, err := netip.ParseAddr(s); err != nil { // a PCI address, a time
			return s
		}
		return hidden
	})
}
