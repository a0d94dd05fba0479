package cluster

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// surroundings are what keeps a VMI's launcher to some nodes and is not in the VMI.
type surroundings struct {
	live client.Reader
	vmi  *kubevirtv1.VirtualMachineInstance
}

// volumes returns the node affinity of the persistent volumes that the VMI's claims are
// bound to. A claim that is not there, or is not bound yet, keeps it nowhere.
func (s *surroundings) volumes(ctx context.Context) (out [][]corev1.NodeSelectorTerm, err error) {
	err = s.eachVolume(ctx, func(_ string, nodes []corev1.NodeSelectorTerm) { out = append(out, nodes) })
	return out, err
}

// BoundClaims returns the claims of a VMI whose volumes keep its launcher to some nodes, by
// name.
func BoundClaims(ctx context.Context, live client.Reader, vmi *kubevirtv1.VirtualMachineInstance) (claims []string, err error) {
	s := &surroundings{live: live, vmi: vmi}
	err = s.eachVolume(ctx, func(claim string, _ []corev1.NodeSelectorTerm) { claims = append(claims, claim) })
	return claims, err
}

// eachVolume calls do for each claim of the VMI that is bound to a volume which is not
// everywhere.
func (s *surroundings) eachVolume(ctx context.Context, do func(claim string, nodes []corev1.NodeSelectorTerm)) error {
	for _, name := range claimsOf(s.vmi) {
		claim := &corev1.PersistentVolumeClaim{}
		err := s.live.Get(ctx, client.ObjectKey{Namespace: s.vmi.Namespace, Name: name}, claim)
		if apierrors.IsNotFound(err) || err == nil && (claim.Status.Phase != corev1.ClaimBound || claim.Spec.VolumeName == "") {
			continue
		}
		if err != nil {
			return fmt.Errorf("read the claim of a volume: %w", err)
		}
		volume := &corev1.PersistentVolume{}
		err = s.live.Get(ctx, client.ObjectKey{Name: claim.Spec.VolumeName}, volume)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read the volume of claim %s: %w", name, err)
		}
		if a := volume.Spec.NodeAffinity; a != nil && a.Required != nil {
			do(name, a.Required.NodeSelectorTerms)
		}
	}
	return nil
}

// claimsOf returns the names of a VMI's claims, each once. A DataVolume's has its name.
func claimsOf(vmi *kubevirtv1.VirtualMachineInstance) []string {
	names := map[string]struct{}{}
	for i := range vmi.Spec.Volumes {
		switch v := &vmi.Spec.Volumes[i]; {
		case v.PersistentVolumeClaim != nil:
			names[v.PersistentVolumeClaim.ClaimName] = struct{}{}
		case v.DataVolume != nil:
			names[v.DataVolume.Name] = struct{}{}
		case v.Ephemeral != nil && v.Ephemeral.PersistentVolumeClaim != nil:
			names[v.Ephemeral.PersistentVolumeClaim.ClaimName] = struct{}{}
		}
	}
	delete(names, "")
	return slices.Sorted(maps.Keys(names))
}

// pods returns what the VMI's required pod affinity and anti-affinity come to now. An
// affinity to nobody who is there keeps it nowhere: it may be one to itself.
func (s *surroundings) pods(ctx context.Context) (out [][]corev1.NodeSelectorTerm, err error) {
	a := s.vmi.Spec.Affinity
	if a == nil {
		return nil, nil
	}
	add := func(term *corev1.PodAffinityTerm, operator corev1.NodeSelectorOperator) error {
		values, err := s.domains(ctx, term)
		if len(values) > 0 {
			r := corev1.NodeSelectorRequirement{Key: term.TopologyKey, Operator: operator, Values: values}
			out = append(out, []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{r}}})
		}
		return err
	}
	if a.PodAffinity != nil {
		for i := range a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
			term := &a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution[i]
			if s.staysInside(term) {
				err = add(term, corev1.NodeSelectorOpIn)
			}
			if err != nil {
				return nil, err
			}
		}
	}
	if a.PodAntiAffinity != nil {
		for i := range a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
			term := &a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[i]
			if s.staysInside(term) || s.reachesInside(term) {
				err = add(term, corev1.NodeSelectorOpNotIn)
			}
			if err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// staysInside reports a term about pods of the VMI's namespace alone.
func (s *surroundings) staysInside(t *corev1.PodAffinityTerm) bool {
	others := func(namespace string) bool { return namespace != s.vmi.Namespace }
	return t.NamespaceSelector == nil && !slices.ContainsFunc(t.Namespaces, others)
}

// reachesInside reports a term about pods of the VMI's namespace, too, as far as that is
// certain.
func (s *surroundings) reachesInside(t *corev1.PodAffinityTerm) bool {
	all := t.NamespaceSelector
	return slices.Contains(t.Namespaces, s.vmi.Namespace) || all != nil && len(all.MatchLabels) == 0 && len(all.MatchExpressions) == 0
}

// domains returns the values of a term's topology key on the nodes of the pods of the
// VMI's namespace that it selects, sorted. Pods that end are left out: they make room.
func (s *surroundings) domains(ctx context.Context, t *corev1.PodAffinityTerm) ([]string, error) {
	selector, err := metav1.LabelSelectorAsSelector(t.LabelSelector)
	if err != nil || len(t.MatchLabelKeys) > 0 || len(t.MismatchLabelKeys) > 0 {
		return nil, nil //nolint:nilerr // KubeVirt and the scheduler have the word on what cannot be read
	}
	pods := &corev1.PodList{}
	if err := s.live.List(ctx, pods, client.InNamespace(s.vmi.Namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return nil, fmt.Errorf("list the pods that the affinity is about: %w", err)
	}
	nodes := map[string]struct{}{}
	for i := range pods.Items {
		if p := &pods.Items[i]; p.Spec.NodeName != "" && p.DeletionTimestamp == nil && !ended(p) {
			nodes[p.Spec.NodeName] = struct{}{}
		}
	}
	return s.topology(ctx, slices.Sorted(maps.Keys(nodes)), t.TopologyKey)
}

// someNodes is up to how many nodes are read one by one.
const someNodes = 16

// topology returns the values of a label on nodes, sorted.
func (s *surroundings) topology(ctx context.Context, nodes []string, key string) ([]string, error) {
	values := map[string]struct{}{}
	take := func(l labels.Set) {
		if l.Has(key) {
			values[l.Get(key)] = struct{}{}
		}
	}
	kind := corev1.SchemeGroupVersion.WithKind("Node")
	if len(nodes) > someNodes {
		all := &metav1.PartialObjectMetadataList{}
		all.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))
		if err := s.live.List(ctx, all); err != nil {
			return nil, fmt.Errorf("list the nodes of the pods that the affinity is about: %w", err)
		}
		for i := range all.Items {
			if _, found := slices.BinarySearch(nodes, all.Items[i].Name); found {
				take(all.Items[i].Labels)
			}
		}
		nodes = nil
	}
	for _, name := range nodes {
		node := &metav1.PartialObjectMetadata{}
		node.SetGroupVersionKind(kind)
		if err := client.IgnoreNotFound(s.live.Get(ctx, client.ObjectKey{Name: name}, node)); err != nil {
			return nil, fmt.Errorf("read the node of a pod that the affinity is about: %w", err)
		}
		take(node.Labels)
	}
	return slices.Sorted(maps.Keys(values)), nil
}

// ended reports a pod that has ended, and takes nothing of its node any more.
func ended(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}
