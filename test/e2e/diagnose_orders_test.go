package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"

	testcluster "github.com/gpuctl/gpuctl/test/cluster"
)

// reader returns the rules of the ClusterRole in docs/diagnose.md.
func reader(t *testing.T, c *testcluster.Cluster) []rbacv1.PolicyRule {
	t.Helper()
	text, err := os.ReadFile("../../docs/diagnose.md")
	if err != nil {
		t.Fatal(err)
	}
	_, role, found := strings.Cut(string(text), "```yaml\napiVersion: rbac")
	role, _, closed := strings.Cut(role, "```")
	if !found || !closed {
		t.Fatal("docs/diagnose.md has no ClusterRole")
	}
	var out rbacv1.ClusterRole
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(c.Decode("apiVersion: rbac"+role).Object, &out); err != nil {
		t.Fatal(err)
	}
	return out.Rules
}

// without leaves a resource out of rules.
func without(rules []rbacv1.PolicyRule, resource string) []rbacv1.PolicyRule {
	var out []rbacv1.PolicyRule
	for _, r := range rules {
		var resources []string
		for _, name := range r.Resources {
			if name != resource {
				resources = append(resources, name)
			}
		}
		if r.Resources = resources; len(resources) > 0 {
			out = append(out, r)
		}
	}
	return out
}

// An order is judged by what the account may read: with the documented rights that is all,
// and without one of them nothing is concluded.
func TestDiagnoseOrder(t *testing.T) {
	c := testcluster.Start(t, testcluster.APIOnly())
	installCRDs(t, c)
	c.AddNode(testcluster.Node{Name: "n1", Resources: map[corev1.ResourceName]int64{h200: 8}})
	for _, object := range []string{
		"{apiVersion: v1, kind: Namespace, metadata: {name: acme}}",
		"{apiVersion: v1, kind: Namespace, metadata: {name: acme-dev, labels: {gpuctl.dev/parent: acme}}}",
		fmt.Sprintf("{apiVersion: v1, kind: ResourceQuota, metadata: {name: gpus, namespace: acme}, spec: {hard: {requests.%s: '2'}}}", h200),
		fmt.Sprintf("{apiVersion: gpuctl.dev/v1alpha1, kind: GPUClass, metadata: {name: h200}, spec: {resourceName: %s, maxCount: 8}}", h200),
		"{apiVersion: gpuctl.dev/v1alpha1, kind: GPUDevice, metadata: {name: train, namespace: acme-dev}, spec: {className: h200, count: 4}}",
	} {
		c.Create(c.Decode(object))
	}
	rules := reader(t, c)
	tests := map[string]struct {
		rules        []rbacv1.PolicyRule
		says, silent []string
	}{
		"all that is documented": {
			rules,
			[]string{"GPU0611", "acme " + h200 + ": limit 2, in use 0, asked for 4", "GPU0710", "no controller is installed"},
			[]string{"GPU0130"},
		},
		"no namespaces": {without(rules, "namespaces"), []string{"GPU0130", "list namespaces in the cluster"}, []string{"GPU0611", "GPU0602"}},
		"no classes":    {without(rules, "gpuclasses"), []string{"GPU0130", "list gpuclasses.gpuctl.dev in the cluster"}, []string{"GPU0620"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			user := c.KubeconfigFor(c.User(strings.ReplaceAll(name, " ", "-"), tc.rules...))
			_, stdout, stderr := gpuctlAs(user, "diagnose", "device/train", "-n", "acme-dev")
			for _, words := range tc.says {
				if !strings.Contains(stdout, words) {
					t.Errorf("it does not say %q:\n%s%s", words, stdout, stderr)
				}
			}
			for _, words := range tc.silent {
				if strings.Contains(stdout, words) {
					t.Errorf("it says %q:\n%s", words, stdout)
				}
			}
		})
	}
	code, stdout, _ := run("__complete", "diagnose", "--kubeconfig", c.Kubeconfig(), "-n", "acme-dev", "device/")
	if code != 0 || !strings.Contains(stdout, "device/train") {
		t.Errorf("completion: exit %d\n%s", code, stdout)
	}
}
