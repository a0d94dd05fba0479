package tenant

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// The labels and keys that this package reads. Who may label a namespace must
// not be able to move it in the tree or to entitle it: a policy guards the
// labels under gpuctl.dev and under every domain below it.
const (
	// ParentLabel on a namespace names the namespace above it.
	ParentLabel = domain + "/parent"
	// EntitlementPrefix and a name are a label on a namespace; with the value
	// "true" the namespace and all below it have the entitlement.
	EntitlementPrefix = domain + "/entitlement."
	// TotalKey is the budget for the GPUs of all names together.
	TotalKey = domain + "/gpus"
	// ClassPrefix and the name of a class are the budget for that class.
	ClassPrefix = "class." + domain + "/"

	domain         = "gpuctl.dev"
	requestsPrefix = "requests."
)

// className is what the API server takes as the name of a GPUClass: a DNS label.
var className = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// Kind says what a budget key counts.
type Kind uint8

// The kinds, in the order in which a level's budgets are looked at.
const (
	Resource Kind = iota // the units of one resource name
	Class                // the units ordered of one class
	Total                // the units of all names together
)

// Key is a budget key. Name is the resource name or the class; "" for Total.
type Key struct {
	Kind Kind
	Name string
}

// String returns the key as a budget is written, without "requests.":
// "nvidia.com/GH100_H200_SXM_141GB", "class.gpuctl.dev/h200", "gpuctl.dev/gpus".
func (k Key) String() string {
	switch k.Kind {
	case Class:
		return ClassPrefix + k.Name
	case Total:
		return TotalKey
	default:
		return k.Name
	}
}

// Compare orders keys by kind, then by name.
func (k Key) Compare(other Key) int {
	return cmp.Or(cmp.Compare(k.Kind, other.Kind), cmp.Compare(k.Name, other.Name))
}

// own reports a key that is about GPUs whatever the cluster serves. A key under
// another vendor's domain may be about anything.
func (k Key) own() bool { return k.Kind != Resource || gpu.ResourceName(k.Name).IsNVIDIA() }

// ParseKey reads a key of a budget. ok is false for a key that limits something
// else, like "requests.cpu". "requests." may stand before each key, and is what
// a ResourceQuota needs before a resource name; Cozystack's values have none. A
// key under gpuctl.dev or nvidia.com that cannot be read is an error, since
// whoever wrote it meant to limit GPUs; so is that of a class which none can be
// called.
func ParseKey(text string) (k Key, ok bool, err error) {
	bare := strings.TrimPrefix(text, requestsPrefix)
	before, name, found := strings.Cut(bare, "/")
	if !found {
		return Key{}, false, nil
	}
	where := strings.ToLower(strings.TrimSpace(before))
	ours := where == domain || strings.HasSuffix(where, "."+domain)
	if err := gpu.ResourceName(bare).Check(); err != nil {
		if ours || where == gpu.Domain {
			return Key{}, true, fmt.Errorf("parse budget key %q: %w", text, err)
		}
		return Key{}, false, nil // no resource name: it limits something else
	}
	switch {
	case !strings.Contains(before, "."):
		return Key{}, false, nil
	case bare == TotalKey:
		return Key{Kind: Total}, true, nil
	case strings.HasPrefix(bare, ClassPrefix):
		if !className.MatchString(name) {
			return Key{}, true, fmt.Errorf("parse budget key %q: no GPUClass can be called %q", text, name)
		}
		return Key{Kind: Class, Name: name}, true, nil
	case ours:
		return Key{}, true, fmt.Errorf("parse budget key %q: want %s or %s<class>", text, TotalKey, ClassPrefix)
	}
	return Key{Kind: Resource, Name: bare}, true, nil
}
