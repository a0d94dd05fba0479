package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuctl/gpuctl/test/cluster"
)

// refuse makes an admission policy that refuses an operation on instances in a
// namespace, and returns when it is in force.
func refuse(t *testing.T, c *cluster.Cluster, namespace, operation, message string) {
	t.Helper()
	name := "refuse-" + strings.ToLower(operation)
	policy := c.Create(c.Decode(fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: %s}
spec:
  matchConstraints:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %s}}
    resourceRules: [{apiGroups: [kubevirt.io], apiVersions: ["*"], resources: [virtualmachineinstances], operations: [%s]}]
  matchConditions: [{name: by-people, expression: "!request.userInfo.username.startsWith('system:serviceaccount:')"}]
  validations: [{expression: "false", message: %q}]
`, name, namespace, operation, message)))
	binding := c.Create(c.Decode(fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: %s}
spec: {policyName: %s, validationActions: [Deny]}
`, name, name)))
	t.Cleanup(func() {
		deleteAnyway(t, c, binding)
		deleteAnyway(t, c, policy)
	})
}

// TestAnswersAfterTheWrite has others refuse what wire does when the plan is written:
// the probe of the gate (GPU0323 when the answer is that it is closed, GPU0324 when it
// is something else) and the touch that wakes an instance (GPU0104). Without them none
// of the codes is there.
func TestAnswersAfterTheWrite(t *testing.T) {
	const closed = "Host Devices feature gate is not enabled in kubevirt-config"
	for name, tc := range map[string]struct {
		operation, message string
		exit               int
		want               string
	}{
		"nobody refuses":            {"", "", 0, ""},
		"the gate is said closed":   {"CREATE", closed, 1, "GPU0323"},
		"nobody may make instances": {"CREATE", "no instances in this namespace", 0, "GPU0324"},
		"nobody may touch them":     {"UPDATE", "instances of this tenant are not to be touched", 0, "GPU0104"},
	} {
		t.Run(name, func(t *testing.T) {
			c := shared.For(t)
			noInstances(c)
			unwired(c)
			c.PatchKubeVirt(`{"spec":{"configuration":{"permittedHostDevices":{}}}}`)
			c.AddNode(gpuNode("worker-1", h200, 8))
			ns := c.Namespace()
			u := c.Create(vmi(c, ns, "stuck", "gpus", h200))
			c.Eventually(soon, "the instance is refused", hangs(c, u))
			switch tc.operation {
			case "CREATE":
				refuse(t, c, "kubevirt", tc.operation, tc.message)
				probe := vmi(c, "kubevirt", "probe", "gpus", h200)
				c.Eventually(soon, "the policy is in force", func(ctx context.Context) error {
					_, err := c.Resource(probe).Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
					return refusedWith(err, tc.message)
				})
			case "UPDATE":
				refuse(t, c, ns, tc.operation, tc.message)
				c.Eventually(soon, "the policy is in force", func(ctx context.Context) error {
					return refusedWith(annotate(ctx, c, u, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}}), tc.message)
				})
			}
			code, _, stderr := gpuctl(c, "wire")
			if code != tc.exit || tc.want != "" && !strings.Contains(stderr, tc.want) {
				t.Errorf("exit %d, want %d and %s:\n%s", code, tc.exit, tc.want, stderr)
			}
			for _, other := range []string{"GPU0104", "GPU0323", "GPU0324"} {
				if other != tc.want && strings.Contains(stderr, other) {
					t.Errorf("stderr has %s:\n%s", other, stderr)
				}
			}
		})
	}
}

// refusedWith wants an error with a message.
func refusedWith(err error, message string) error {
	if err == nil || !strings.Contains(err.Error(), message) {
		return errorf("refused with %v", err)
	}
	return nil
}

// annotate writes an annotation on an object.
func annotate(ctx context.Context, c *cluster.Cluster, u *unstructured.Unstructured, opts metav1.UpdateOptions) error {
	now, err := c.Resource(u).Get(ctx, u.GetName(), metav1.GetOptions{})
	if err != nil {
		return err
	}
	now.SetAnnotations(map[string]string{"example.com/touched": "yes"})
	_, err = c.Resource(now).Update(ctx, now, opts)
	return err
}
