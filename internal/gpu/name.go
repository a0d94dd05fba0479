package gpu

import (
	"fmt"
	"strings"
)

// Domain is the prefix of every resource name that NVIDIA's plugins register.
const Domain = "nvidia.com"

// ResourceName is the name of an extended resource, "nvidia.com/AD102GL_L40S".
// Names are case-sensitive everywhere.
type ResourceName string

// Short returns the part behind the slash, or the whole name when there is none.
func (n ResourceName) Short() string {
	if _, short, ok := strings.Cut(string(n), "/"); ok {
		return short
	}
	return string(n)
}

// IsNVIDIA reports a name under nvidia.com/.
func (n ResourceName) IsNVIDIA() bool { return strings.HasPrefix(string(n), Domain+"/") }

// IsContainer reports a resource of NVIDIA's container device plugin: whole GPUs,
// time-sliced ones (the suffix .shared) and MIG slices. A container resource can never be handed to a VM.
func (n ResourceName) IsContainer() bool {
	if !n.IsNVIDIA() {
		return false
	}
	short := n.Short()
	return short == "gpu" || strings.HasSuffix(short, ".shared") || strings.HasPrefix(short, "mig-")
}

// Check says why Kubernetes would refuse the name as an extended resource, or
// returns nil. The rules are those of a qualified name with a mandatory domain
// (k8s.io/apimachinery, IsQualifiedName; kubelet checks them on Register).
func (n ResourceName) Check() error {
	domain, short, ok := strings.Cut(string(n), "/")
	switch {
	case strings.ContainsAny(string(n), " \t\r\n"):
		return fmt.Errorf("resource name %q contains white space", string(n))
	case !ok || domain == "":
		return fmt.Errorf("resource name %q has no domain: an extended resource is written domain/name", string(n))
	case len(domain) > 253 || !validDomain(domain):
		return fmt.Errorf("resource name %q: %q is not a valid domain", string(n), domain)
	case len(short) > 63:
		return fmt.Errorf("resource name %q: the part behind the slash has %d characters, 63 are allowed", string(n), len(short))
	case !validShort(short):
		return fmt.Errorf("resource name %q: the part behind the slash must start and end with a letter or digit", string(n))
	}
	return nil
}

// validDomain reports a DNS subdomain: labels of lower-case letters, digits and
// inner dashes. Byte loops, since every name of every node comes through here.
func validDomain(s string) bool {
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for i := range len(label) {
			if c := label[i]; !isDigit(c) && !isLower(c) && c != '-' {
				return false
			}
		}
	}
	return true
}

// validShort reports letters, digits, and inner dashes, underscores and dots.
func validShort(s string) bool {
	for i := range len(s) {
		c := s[i]
		if isDigit(c) || isLower(c) || 'A' <= c && c <= 'Z' {
			continue
		}
		if i == 0 || i == len(s)-1 || c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return s != ""
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
func isLower(c byte) bool { return 'a' <= c && c <= 'z' }
