package diagnose

import "strings"

// Legacy is a ConfigMap from which old KubeVirt releases took their configuration.
type Legacy struct {
	Ref  string   // "kubevirt/kubevirt-config"
	Keys []string // the keys that shadow the KubeVirt CR, sorted
}

// Finding says what the ConfigMap does.
func (l Legacy) Finding() Finding {
	return New("GPU0315", "ConfigMap "+l.Ref, Values{"name": l.Ref, "keys": strings.Join(l.Keys, " and ")})
}
