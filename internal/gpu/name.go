package gpu

import (
	"fmt"
	"regexp"
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

// IsContainer reports a resource of NVIDIA's container device plugin: whole or
// shared GPUs and MIG slices. A container resource can never be handed to a VM.
func (n ResourceName) IsContainer() bool {
	if !n.IsNVIDIA() {
		return false
	}
	short := n.Short()
	return short == "gpu" || short == "gpu.shared" || strings.HasPrefix(short, "mig-")
}

var (
	domainPart = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
	shortPart  = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`)
)

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
	case len(domain) > 253 || !domainPart.MatchString(domain):
		return fmt.Errorf("resource name %q: %q is not a valid domain", string(n), domain)
	case len(short) > 63:
		return fmt.Errorf("resource name %q: the part behind the slash has %d characters, 63 are allowed", string(n), len(short))
	case !shortPart.MatchString(short):
		return fmt.Errorf("resource name %q: the part behind the slash must start and end with a letter or digit", string(n))
	}
	return nil
}
