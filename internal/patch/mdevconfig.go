package patch

import (
	"slices"
	"strings"

	"github.com/gpuctl/gpuctl/internal/manifest"
)

// mdevsOff is KubeVirt's old gate that keeps virt-handler from making and removing
// mediated devices; HyperConverged v1beta1 has a switch of nearly the same name.
const mdevsOff = "DisableMDEVConfiguration"

// spell returns the name of a mediated device type as KubeVirt compares it, a
// selector's and a device's: blanks are underscores (virt-handler's
// removeSelectorSpaces and getMdevTypeName). Case counts.
func spell(typeName string) string {
	return strings.TrimSpace(strings.ReplaceAll(typeName, " ", "_"))
}

// mdevConfig returns where a kind keeps KubeVirt's mediatedDevicesConfiguration. It
// is read and never written.
func (s schema) mdevConfig() manifest.Path {
	return join(s.table[:len(s.table)-1], "mediatedDevicesConfiguration")
}

// madeByKubeVirt returns the mediated device types that virt-handler makes by
// itself, as the configuration names them: by id ("nvidia-592") or by name with
// underscores. Whatever the nodes are that it names: a device that is there already
// shows where.
func (p *planner) madeByKubeVirt() map[string]bool {
	targets := []*Target{&p.in.Target}
	if p.in.Target.Managed != nil { // HyperConverged's copy, which virt-handler reads
		targets = append(targets, &Target{Document: *p.in.Target.Managed})
	}
	made := map[string]bool{}
	for _, t := range targets {
		s := schemaOf(t)
		v, _ := manifest.Lookup(t.Object, s.mdevConfig())
		config, _ := v.(map[string]any)
		if s.mdevsSwitchedOff(t, config) {
			return nil
		}
		noteTypes(made, config)
		nodes, _ := config["nodeMediatedDeviceTypes"].([]any)
		for _, n := range nodes {
			perNode, _ := n.(map[string]any)
			noteTypes(made, perNode)
		}
	}
	return made
}

// noteTypes reads both spellings of the list; the second is deprecated.
func noteTypes(made map[string]bool, config map[string]any) {
	for _, key := range []string{"mediatedDeviceTypes", "mediatedDevicesTypes"} {
		list, _ := config[key].([]any)
		for _, item := range list {
			if name, ok := item.(string); ok {
				made[name] = true
			}
		}
	}
}

// mdevsSwitchedOff reports that virt-handler leaves mediated devices alone. The field
// wins over the gate.
func (s schema) mdevsSwitchedOff(t *Target, config map[string]any) bool {
	if enabled, ok := config["enabled"].(bool); ok {
		return !enabled
	}
	gates, _ := s.strings(t.Object, s.gates)
	off, _ := manifest.Lookup(t.Object, manifest.Path{"spec", "featureGates", "disableMDevConfiguration"})
	return slices.Contains(gates, mdevsOff) || off == true
}
