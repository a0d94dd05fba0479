package cluster

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/gpuctl/gpuctl/internal/alloc"
)

// label is one that KubeVirt has a launcher's node have, and what to say of a node
// without it.
type label struct {
	key, value string
	lacking    alloc.Verdict
}

// meanings are what the labels mean that KubeVirt asks for, and those of a family by
// what they begin with. A node that no virt-handler looks after has none of the others.
var meanings = []struct{ label, lacking string }{
	{kubevirtv1.NodeSchedulable, "KubeVirt runs no VMs there"},
	{corev1.LabelArchStable, "another architecture"},
	{kubevirtv1.CPUManager, "no dedicated CPUs"},
	{kubevirtv1.RealtimeLabel, "no CPUs for real time"},
	{kubevirtv1.CPUModelLabel, "no CPU model "},
	{kubevirtv1.CPUFeatureLabel, "no CPU feature "},
	{kubevirtv1.SupportedMachineTypeLabel, "no machine type "},
	{kubevirtv1.HypervLabel, "no Hyper-V "},
}

// labelsOf returns the labels that KubeVirt has a launcher's node have, in the order in
// which they are to be told. Those that only the VM asks for are not among them.
func labelsOf(launcher *corev1.Pod) (out []label) {
	keys := slices.Sorted(maps.Keys(launcher.Spec.NodeSelector))
	keys = slices.DeleteFunc(keys, func(key string) bool { return len(validation.IsQualifiedName(key)) > 0 }) // it is told
	for _, m := range meanings {
		for _, key := range keys {
			rest, ok := strings.CutPrefix(key, m.label)
			if ok && (rest == "" || strings.HasSuffix(m.label, "/")) {
				out = append(out, label{key, launcher.Spec.NodeSelector[key], alloc.Verdict(m.lacking + rest)})
			}
		}
	}
	return out
}
