package cluster

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"
)

// renderLauncher returns what virt-controller will ask of a node for a VMI, GPUs aside.
// The VMI may come before or after virt-api has filled it in (pkg/defaults/defaults.go):
// what virt-api would take from elsewhere is left out.
//
// Modelled are services/nodeselectorrenderer.go and setNodeAffinityForPod of
// services/template.go, without confidential computing and TSC frequencies; and the
// requests, see [requestsOf].
func renderLauncher(vmi *kubevirtv1.VirtualMachineInstance, config *kubevirtv1.KubeVirtConfiguration) corev1.PodSpec {
	spec := corev1.PodSpec{
		NodeSelector: nodeSelectorOf(vmi, config),
		Tolerations:  vmi.Spec.Tolerations,
		Containers:   []corev1.Container{{Name: "compute", Resources: corev1.ResourceRequirements{Requests: requestsOf(vmi, config)}}},
	}
	if config.DefaultRuntimeClass != "" { // it may tolerate anything, see its scheduling
		spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	}
	if a := vmi.Spec.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		required := a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.DeepCopy()
		spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: required}}
	}
	var without []string
	if modelOf(vmi, config) == kubevirtv1.CPUModeHostModel {
		without = append(without, kubevirtv1.NodeHostModelIsObsoleteLabel)
	}
	for _, feature := range featuresOf(vmi) {
		if feature.Policy == "forbid" {
			without = append(without, kubevirtv1.CPUFeatureLabel+feature.Name)
		}
	}
	for _, label := range without {
		require(&spec, []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: label, Operator: corev1.NodeSelectorOpDoesNotExist}}}})
	}
	return spec
}

// modelOf is the VMI's CPU model: its own, the cluster's, or the host's.
func modelOf(vmi *kubevirtv1.VirtualMachineInstance, config *kubevirtv1.KubeVirtConfiguration) string {
	own := ""
	if vmi.Spec.Domain.CPU != nil {
		own = vmi.Spec.Domain.CPU.Model
	}
	return cmp.Or(own, config.CPUModel, kubevirtv1.DefaultCPUModel)
}

func featuresOf(vmi *kubevirtv1.VirtualMachineInstance) []kubevirtv1.CPUFeature {
	if vmi.Spec.Domain.CPU == nil {
		return nil
	}
	return vmi.Spec.Domain.CPU.Features
}

// nodeSelectorOf returns the labels that a node has to have.
func nodeSelectorOf(vmi *kubevirtv1.VirtualMachineInstance, config *kubevirtv1.KubeVirtConfiguration) map[string]string {
	out := map[string]string{kubevirtv1.NodeSchedulable: "true"}
	if vmi.Spec.Architecture != "" {
		out[corev1.LabelArchStable] = strings.ToLower(vmi.Spec.Architecture)
	}
	maps.Copy(out, config.DeveloperConfiguration.NodeSelectors)
	maps.Copy(out, vmi.Spec.NodeSelector)
	if vmi.IsCPUDedicated() {
		out[kubevirtv1.CPUManager] = "true"
	}
	if vmi.IsRealtimeEnabled() {
		out[kubevirtv1.RealtimeLabel] = "true"
	}
	if slices.Contains(config.DeveloperConfiguration.FeatureGates, "HypervStrictCheck") {
		for _, label := range hypervOf(vmi) {
			out[label] = "true"
		}
	}
	if model := modelOf(vmi, config); model != kubevirtv1.CPUModeHostModel && model != kubevirtv1.CPUModeHostPassthrough {
		out[kubevirtv1.CPUModelLabel+model] = "true"
	}
	for _, feature := range featuresOf(vmi) {
		if feature.Policy == "" || feature.Policy == "require" {
			out[kubevirtv1.CPUFeatureLabel+feature.Name] = "true"
		}
	}
	if m := vmi.Spec.Domain.Machine; m != nil && m.Type != "" {
		out[kubevirtv1.SupportedMachineTypeLabel+m.Type] = "true"
	}
	return out
}

// hypervOf returns the labels of nodes that have the enlightenments of a VMI.
func hypervOf(vmi *kubevirtv1.VirtualMachineInstance) (labels []string) {
	if vmi.Spec.Domain.Features == nil || vmi.Spec.Domain.Features.Hyperv == nil {
		return nil
	}
	h := vmi.Spec.Domain.Features.Hyperv
	on := func(enabled *bool) bool { return enabled != nil && *enabled }
	for label, state := range map[string]*kubevirtv1.FeatureState{
		"vpindex": h.VPIndex, "runtime": h.Runtime, "reset": h.Reset, "synic": h.SyNIC,
		"frequencies": h.Frequencies, "reenlightenment": h.Reenlightenment, "ipi": h.IPI,
	} {
		if state != nil && on(state.Enabled) {
			labels = append(labels, kubevirtv1.HypervLabel+label)
		}
	}
	if h.SyNICTimer != nil && on(h.SyNICTimer.Enabled) {
		labels = append(labels, kubevirtv1.HypervLabel+"synictimer")
	}
	if h.TLBFlush != nil && on(h.TLBFlush.Enabled) {
		labels = append(labels, kubevirtv1.HypervLabel+"tlbflush")
	}
	return labels
}
