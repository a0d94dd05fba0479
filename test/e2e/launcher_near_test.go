package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpuctl/gpuctl/internal/cluster"
	"github.com/gpuctl/gpuctl/internal/diagnose"
	testcluster "github.com/gpuctl/gpuctl/test/cluster"
)

// near is a namespace with a local volume, and pods on nodes.
type near struct {
	*testcluster.Cluster
	t    *testing.T
	ns   string
	live client.Client
}

// volume creates a claim, and a volume for it on the node unless that is "".
func (n *near) volume(name, node string) {
	n.t.Helper()
	claim := fmt.Sprintf(`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: %s, namespace: %s},
		spec: {storageClassName: "", accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}, volumeName: %q}}`, name, n.ns, name+"-"+n.ns)
	if node == "" {
		n.Create(n.Decode(strings.Replace(claim, fmt.Sprintf("%q", name+"-"+n.ns), `""`, 1)))
		return
	}
	volume := n.Create(n.Decode(fmt.Sprintf(`{apiVersion: v1, kind: PersistentVolume, metadata: {name: %s}, spec: {storageClassName: "", accessModes: [ReadWriteOnce], capacity: {storage: 1Gi},
		claimRef: {apiVersion: v1, kind: PersistentVolumeClaim, namespace: %s, name: %s}, local: {path: /x},
		nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [%s]}]}]}}}}`, name+"-"+n.ns, n.ns, name, node)))
	n.t.Cleanup(func() {
		_ = n.Resource(volume).Delete(context.Background(), volume.GetName(), metav1.DeleteOptions{})
	})
	n.Create(n.Decode(claim))
	n.Eventually(soon, "claim "+name+" is bound", func(ctx context.Context) error {
		c, err := n.Clientset().CoreV1().PersistentVolumeClaims(n.ns).Get(ctx, name, metav1.GetOptions{})
		if err == nil && c.Status.Phase != corev1.ClaimBound {
			err = errorf("it is %s", c.Status.Phase)
		}
		return err
	})
}

// pod creates a pod with label app that is on a node already.
func (n *near) pod(ns, name, app, node string) *corev1.Pod {
	n.t.Helper()
	zero := int64(0)
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: map[string]string{"app": app}},
		Spec:       corev1.PodSpec{NodeName: node, RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: &zero, Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	}
	if err := n.live.Create(n.t.Context(), p); err != nil {
		n.t.Fatal(err)
	}
	return p
}

// many creates so many nodes of three zones, with a pod on each.
func (n *near) many(nodes int) {
	n.t.Helper()
	for i := range nodes {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("many-%d", i), Labels: map[string]string{"zone": fmt.Sprintf("m%d", i%3)}}}
		if err := n.live.Create(n.t.Context(), node); err != nil {
			n.t.Fatal(err)
		}
		n.t.Cleanup(func() { _ = n.live.Delete(context.Background(), node) })
		n.pod(n.ns, node.Name, "many", node.Name)
	}
}

// required is the node affinity that comes to what is asked by a VMI with the rest of a spec:
// "zone In [a], x DoesNotExist | ..."; without that of every VMI of the host's model.
func (n *near) required(t *testing.T, rest string) (string, error) {
	t.Helper()
	u := n.Decode(`{apiVersion: kubevirt.io/v1, kind: VirtualMachineInstance, metadata: {name: vm, namespace: ` + n.ns + `, labels: {app: self}}, spec: {domain: {devices: {}}` + rest + `}}`)
	vmi := &kubevirtv1.VirtualMachineInstance{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, vmi); err != nil {
		t.Fatal(err)
	}
	text, err := cluster.LauncherOf(t.Context(), n.live, vmi)
	if err != nil {
		return "", err
	}
	spec, err := cluster.ReadLauncher(text)
	if err != nil {
		t.Fatal(err)
	}
	var terms []string
	for _, term := range spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		var words []string
		for _, r := range append(term.MatchExpressions, term.MatchFields...) {
			if r.Key != kubevirtv1.NodeHostModelIsObsoleteLabel {
				words = append(words, fmt.Sprintf("%s %s %v", r.Key, r.Operator, r.Values))
			}
		}
		terms = append(terms, strings.Join(words, ", "))
	}
	return strings.Join(terms, " | "), nil
}

// Where a VM's volumes and other pods keep its launcher to some nodes, LauncherOf says so.
func TestLauncherGoesByVolumesAndPods(t *testing.T) {
	c := shared.For(t)
	n := &near{Cluster: c, t: t, ns: c.Namespace(), live: liveClient(t, c)}
	other := c.Namespace()
	for i, zone := range []string{"a", "b", "c"} {
		c.AddNode(testcluster.Node{Name: fmt.Sprintf("near-%d", i+1), Labels: map[string]string{"zone": zone}})
		t.Cleanup(func() { c.RemoveNode(fmt.Sprintf("near-%d", i+1)) })
	}
	n.volume("on-1", "near-1")
	n.volume("on-2", "near-2")
	n.volume("unbound", "")
	n.pod(n.ns, "web-1", "web", "near-1")
	n.pod(n.ns, "web-2", "web", "near-2")
	n.pod(n.ns, "db-3", "db", "near-3")
	n.pod(other, "there-2", "there", "near-2")
	n.pod(n.ns, "done-1", "done", "near-1")
	c.Script(func(p *corev1.Pod) testcluster.Outcome {
		if p.Name == "done-2" {
			return testcluster.Outcome{Phase: corev1.PodSucceeded}
		}
		return testcluster.Outcome{}
	})
	ended := n.pod(n.ns, "done-2", "done", "near-2")
	c.Eventually(soon, "a pod has ended", func(ctx context.Context) error {
		if err := n.live.Get(ctx, client.ObjectKeyFromObject(ended), ended); err != nil || ended.Status.Phase == corev1.PodSucceeded {
			return err
		}
		return errorf("it is %s", ended.Status.Phase)
	})

	n.many(20)
	term := func(kind, app, key, rest string) string {
		return fmt.Sprintf(`, affinity: {%s: {requiredDuringSchedulingIgnoredDuringExecution: [{labelSelector: {matchLabels: {app: %s}}, topologyKey: %s%s}]}}`, kind, app, key, rest)
	}
	claims := func(names ...string) string {
		var out []string
		for _, name := range names {
			out = append(out, fmt.Sprintf(`{name: %s, persistentVolumeClaim: {claimName: %s}}`, name, name))
		}
		return ", volumes: [" + strings.Join(out, ", ") + "]"
	}
	for name, tc := range map[string]struct{ rest, want string }{
		"nothing":                       {"", ""},
		"a local volume":                {claims("on-1"), "kubernetes.io/hostname In [near-1]"},
		"two that contradict":           {claims("on-1", "on-2"), "kubernetes.io/hostname In [near-1], kubernetes.io/hostname In [near-2]"},
		"one that is not bound":         {claims("unbound"), ""},
		"one that is not there":         {claims("missing"), ""},
		"a DataVolume":                  {`, volumes: [{name: d, dataVolume: {name: on-2}}]`, "kubernetes.io/hostname In [near-2]"},
		"an ephemeral one":              {`, volumes: [{name: d, ephemeral: {persistentVolumeClaim: {claimName: on-2}}}]`, "kubernetes.io/hostname In [near-2]"},
		"far from pods, by host":        {term("podAntiAffinity", "web", "kubernetes.io/hostname", ""), "kubernetes.io/hostname NotIn [near-1 near-2]"},
		"far from pods, by zone":        {term("podAntiAffinity", "db", "zone", ""), "zone NotIn [c]"},
		"far from nobody":               {term("podAntiAffinity", "self", "zone", ""), ""},
		"far by a label of no node":     {term("podAntiAffinity", "db", "rack", ""), ""},
		"far from who has ended":        {term("podAntiAffinity", "done", "zone", ""), "zone NotIn [a]"},
		"far from pods on many nodes":   {term("podAntiAffinity", "many", "zone", ""), "zone NotIn [m0 m1 m2]"},
		"near to pods":                  {term("podAffinity", "web", "zone", ""), "zone In [a b]"},
		"near to nobody":                {term("podAffinity", "self", "zone", ""), ""},
		"far from those of another":     {term("podAntiAffinity", "there", "zone", ", namespaces: ["+other+"]"), ""},
		"far from those of both":        {term("podAntiAffinity", "web", "zone", ", namespaces: ["+other+", "+n.ns+"]"), "zone NotIn [a b]"},
		"far from those of all":         {term("podAntiAffinity", "db", "zone", ", namespaceSelector: {}"), "zone NotIn [c]"},
		"far from those of all, theirs": {term("podAntiAffinity", "there", "zone", ", namespaceSelector: {}"), ""},
		"near to those of all":          {term("podAffinity", "web", "zone", ", namespaceSelector: {}"), ""},
		"with a key to match":           {term("podAntiAffinity", "web", "zone", ", matchLabelKeys: [app]"), ""},
		"in every term": {
			`, affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: zone, operator: In, values: [a]}]}, {matchExpressions: [{key: zone, operator: In, values: [b]}]}]}},
				podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{labelSelector: {matchLabels: {app: db}}, topologyKey: zone}]}}` + claims("on-1"),
			"zone In [a], kubernetes.io/hostname In [near-1], zone NotIn [c] | zone In [b], kubernetes.io/hostname In [near-1], zone NotIn [c]",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := n.required(t, tc.rest)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}

	tolerates := strings.Repeat(`{key: `+strings.Repeat("k", 200)+`, operator: Exists}, `, 80)
	_, err := n.required(t, ", tolerations: ["+tolerates+"]")
	var refusal *diagnose.Refusal
	if !errors.As(err, &refusal) || refusal.Code != "GPU0715" {
		t.Errorf("too much is asked: %v", err)
	}
}
