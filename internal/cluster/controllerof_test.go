package cluster

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/internal/manifest"
)

const controllerDeployment = `apiVersion: apps/v1
kind: Deployment
metadata: {name: c, namespace: g, labels: {app.kubernetes.io/part-of: gpuctl, app.kubernetes.io/component: controller}}
spec: {replicas: 2}
status: {readyReplicas: 1}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: g}
---
`

func leaseOf(namespace, holder string) string {
	return fmt.Sprintf(`apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: gpuctl-controller, namespace: %s}
spec: {holderIdentity: %q, renewTime: "2026-03-01T12:00:00.000000Z", leaseDurationSeconds: 15}
---
`, namespace, holder)
}

func TestControllerOf(t *testing.T) {
	renewed := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	run := func(leader string, led gpu.Presence) []diagnose.Deployment {
		return []diagnose.Deployment{{Namespace: "g", Name: "c", Desired: 2, Ready: 1, Leader: leader, Led: led}}
	}
	for name, tc := range map[string]struct {
		docs  string
		at    time.Time
		whole bool
		want  []diagnose.Deployment
	}{
		"it leads":                         {controllerDeployment + leaseOf("g", "c-1_0b6f"), renewed.Add(10 * time.Second), true, run("c-1", gpu.Present)},
		"the Lease is let go":              {controllerDeployment + leaseOf("g", ""), renewed, true, run("", gpu.Absent)},
		"the Lease ran out":                {controllerDeployment + leaseOf("g", "c-1_0b6f"), renewed.Add(26 * time.Second), true, run("", gpu.Absent)},
		"clocks are apart":                 {controllerDeployment + leaseOf("g", "c-1_0b6f"), renewed.Add(24 * time.Second), true, run("c-1", gpu.Present)},
		"from files nobody knows how old":  {controllerDeployment + leaseOf("g", "c-1_0b6f"), time.Time{}, false, run("c-1", gpu.Present)},
		"no Lease in the cluster":          {controllerDeployment, renewed, true, run("", gpu.Absent)},
		"no Lease among the files":         {controllerDeployment, time.Time{}, false, run("", gpu.PresenceUnknown)},
		"the Lease of another namespace":   {controllerDeployment + leaseOf("h", ""), renewed, true, run("", gpu.Absent)},
		"started by hand":                  {leaseOf("h", "laptop_0b6f"), renewed, true, []diagnose.Deployment{{Namespace: "h", Leader: "laptop", Led: gpu.Present}}},
		"nothing is left but an old Lease": {leaseOf("g", "c-1_0b6f"), renewed.Add(time.Hour), true, nil},
		"somebody else's Deployment":       {"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, namespace: g}\n", renewed, true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			docs, _, err := manifest.Parse("f.yaml", []byte(tc.docs))
			if err != nil {
				t.Fatal(err)
			}
			got, err := ControllerOf(docs, tc.at, tc.whole)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(diagnose.Controller{Known: tc.whole, Runs: tc.want}, got); diff != "" {
				t.Errorf("controller (-want +got):\n%s", diff)
			}
		})
	}
}

// TestReadGPUWiring reads what the controller says, without secrets.
func TestReadGPUWiring(t *testing.T) {
	docs, _, err := manifest.Parse("f.yaml", []byte(`
apiVersion: gpuctl.dev/v1alpha1
kind: GPUWiring
metadata: {name: cluster}
status:
  target: KubeVirt kubevirt/kubevirt
  reverts:
  - {time: "2026-03-01T11:51:00.000000Z", manager: gitops, lost: "10DE:2335 as nvidia.com/GH100_H200_SXM_141GB"}
  - {time: "2026-03-01T11:52:00.000000Z", lost: feature gate HostDevices}
  conditions:
  - {type: Wired, status: "False", reason: Failed, message: "dial tcp 10.96.0.1:443: connection refused", lastTransitionTime: "2026-03-01T11:53:00Z"}
---
apiVersion: gpuctl.dev/v1alpha1
kind: GPUWiring
metadata: {name: other}
status: {target: another}
`))
	if err != nil {
		t.Fatal(err)
	}
	got, err := ControllerOf(docs, time.Time{}, false)
	if err != nil {
		t.Fatal(err)
	}
	want := diagnose.Controller{
		Target:  "KubeVirt kubevirt/kubevirt",
		Reverts: []diagnose.Revert{{Manager: "gitops", Lost: "10DE:2335 as nvidia.com/GH100_H200_SXM_141GB"}, {Lost: "feature gate HostDevices"}},
		Wired: &diagnose.Condition{
			Status: "False", Reason: "Failed", Message: "dial tcp [hidden]:443: connection refused", Since: time.Date(2026, 3, 1, 11, 53, 0, 0, time.UTC),
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("controller (-want +got):\n%s", diff)
	}
}
