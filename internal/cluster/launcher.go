package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpuctl/gpuctl/internal/diagnose"
)

// MaxLauncher is how many bytes a bind request takes of what a launcher needs.
const MaxLauncher = 16384

// LauncherOf returns what the launcher of a VMI that is being created needs of a node
// beside GPUs, as a bind request has it: a PodSpec as JSON with node selector, required
// node affinity, tolerations, and the requests of one container. The same facts give
// the same bytes.
//
// It is what virt-controller v1.8 will render (pkg/virt-controller/services), as far as
// [renderLauncher] models that, and in every term of the node affinity
//   - the nodes of the volumes that are bound;
//   - the required pod affinity and anti-affinity, by the pods of the VMI's namespace
//     that are there now. The text is the tenant's to read, so where pods of other
//     namespaces are is not looked up.
//
// What is left out asks for less, never for more: kube-scheduler has the last word.
// Left out are topology spread, and what other pods' anti-affinity says of this one.
// It reads KubeVirts, PersistentVolumeClaims, PersistentVolumes, and Pods and Nodes
// where there is pod affinity. An error is a *diagnose.Refusal when the VM asks for
// more than a bind request takes, and else that something could not be read.
func LauncherOf(ctx context.Context, live client.Reader, vmi *kubevirtv1.VirtualMachineInstance) (string, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: "kubevirt.io", Version: "v1", Kind: "KubeVirtList"})
	if err := live.List(ctx, list); err != nil {
		return "", fmt.Errorf("list KubeVirts: %w", err)
	}
	config, err := kubeVirtConfig(list.Items)
	if err != nil {
		return "", err
	}
	return launcherOf(ctx, live, config, vmi)
}

// LauncherOf is [LauncherOf] by the KubeVirt that the feed knows.
func (f *Feed) LauncherOf(ctx context.Context, live client.Reader, vmi *kubevirtv1.VirtualMachineInstance) (string, error) {
	config, err := f.kubeVirtConfig()
	if err != nil {
		return "", err
	}
	return launcherOf(ctx, live, config, vmi)
}

func (f *Feed) kubeVirtConfig() (*kubevirtv1.KubeVirtConfiguration, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []unstructured.Unstructured
	for _, d := range f.table {
		if d.Kind() == "KubeVirt" {
			all = append(all, unstructured.Unstructured{Object: d.Object})
		}
	}
	return kubeVirtConfig(all)
}

func launcherOf(ctx context.Context, live client.Reader, config *kubevirtv1.KubeVirtConfiguration, vmi *kubevirtv1.VirtualMachineInstance) (string, error) {
	spec := renderLauncher(vmi, config)
	near := surroundings{live: live, vmi: vmi}
	for _, narrow := range []func(context.Context) ([][]corev1.NodeSelectorTerm, error){near.volumes, near.pods} {
		all, err := narrow(ctx)
		if err != nil {
			return "", err
		}
		for _, terms := range all {
			require(&spec, terms)
		}
	}
	text, err := json.Marshal(spec)
	if err != nil {
		return "", fmt.Errorf("encode what the launcher needs: %w", err)
	}
	if len(text) > MaxLauncher {
		return "", diagnose.LauncherTooLong("VirtualMachineInstance "+vmi.Namespace+"/"+vmi.Name, len(text), MaxLauncher)
	}
	return string(text), nil
}

// ReadLauncher reads what [LauncherOf] returns.
func ReadLauncher(text string) (*corev1.PodSpec, error) {
	spec := &corev1.PodSpec{}
	if err := json.Unmarshal([]byte(text), spec); err != nil {
		return nil, fmt.Errorf("read what the launcher needs: %w", err)
	}
	return spec, nil
}

// kubeVirtConfig returns the configuration of the KubeVirt that is at work: the one that
// is not being deleted and has a phase.
func kubeVirtConfig(all []unstructured.Unstructured) (*kubevirtv1.KubeVirtConfiguration, error) {
	items := slices.DeleteFunc(all, func(u unstructured.Unstructured) bool {
		return u.GetDeletionTimestamp() != nil || text(u.Object, "status", "phase") == ""
	})
	if len(items) != 1 {
		return nil, fmt.Errorf("read the configuration of KubeVirt: %d KubeVirts are at work, and there must be one", len(items))
	}
	config := &kubevirtv1.KubeVirtConfiguration{}
	found, _, err := unstructured.NestedMap(items[0].Object, "spec", "configuration")
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(found, config)
	}
	if err != nil {
		return nil, fmt.Errorf("read the configuration of KubeVirt %s/%s: %w", items[0].GetNamespace(), items[0].GetName(), err)
	}
	if config.DeveloperConfiguration == nil {
		config.DeveloperConfiguration = &kubevirtv1.DeveloperConfiguration{}
	}
	return config, nil
}

// require has the node meet one of the terms beside what the launcher requires.
func require(spec *corev1.PodSpec, terms []corev1.NodeSelectorTerm) {
	if len(terms) == 0 {
		return
	}
	if spec.Affinity == nil {
		spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}}
	}
	has := &spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if *has == nil {
		*has = &corev1.NodeSelector{NodeSelectorTerms: terms}
		return
	}
	(*has).NodeSelectorTerms = both((*has).NodeSelectorTerms, terms)
}

// maxTerms is how many terms two lists may come to; more are not put together.
const maxTerms = 64

// both returns terms of which one holds where one of each list does. A term without
// requirements holds nowhere, and stays so.
func both(a, b []corev1.NodeSelectorTerm) []corev1.NodeSelectorTerm {
	if len(a)*len(b) > maxTerms {
		return a
	}
	var out []corev1.NodeSelectorTerm
	for _, x := range a {
		if len(x.MatchExpressions) == 0 && len(x.MatchFields) == 0 {
			out = append(out, x)
			continue
		}
		for _, y := range b {
			out = append(out, corev1.NodeSelectorTerm{
				MatchExpressions: union(x.MatchExpressions, y.MatchExpressions), MatchFields: union(x.MatchFields, y.MatchFields),
			})
		}
	}
	return out
}

// union returns the requirements of both lists, each once.
func union(a, b []corev1.NodeSelectorRequirement) []corev1.NodeSelectorRequirement {
	out := slices.Clone(a)
	for _, r := range b {
		same := func(other corev1.NodeSelectorRequirement) bool {
			return other.Key == r.Key && other.Operator == r.Operator && slices.Equal(other.Values, r.Values)
		}
		if !slices.ContainsFunc(out, same) {
			out = append(out, r)
		}
	}
	return out
}
