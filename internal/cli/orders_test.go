package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuctl/gpuctl/internal/bundle"
	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/internal/manifest"
)

// packed packs a scene as of a fixed time; change rewrites the text before.
func packed(t *testing.T, scene string, change func(string) string) string {
	t.Helper()
	data, err := os.ReadFile(scene)
	if err != nil {
		t.Fatal(err)
	}
	docs, skipped, err := manifest.Load(strings.NewReader(change(string(data))), "-")
	if err != nil || len(skipped) > 0 {
		t.Fatal(err, skipped)
	}
	file := filepath.Join(t.TempDir(), "orders.tar.gz")
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	if err := bundle.Write(file, &bundle.Bundle{About: bundle.About{Read: at, Packed: at, Pods: true, Agents: true, Control: true}, Docs: docs}); err != nil {
		t.Fatal(err)
	}
	return file
}

// ordersFile is the scene of orders.
const ordersFile = "testdata/orders/cluster.yaml"

func asIs(text string) string { return text }

// leaderless is the scene without a Lease.
func leaderless(text string) string {
	return strings.Replace(text, "renewTime: \"2026-03-01T11:59:55", "renewTime: \"2026-03-01T11:40:00", 1)
}

// TestOrders keeps what is said of each order, and of VMs that name one.
func TestOrders(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nonexistent")
	roomy := func(text string) string { return strings.Replace(text, `count: 16}`, `count: 2}`, 1) }
	roomyFor := func(text string) string { // worker-2 has room for those that are lost, and for two more
		return strings.Replace(roomy(text), `allocatable: {nvidia.com/GH100_H200_SXM_141GB: "2"}`, `allocatable: {nvidia.com/GH100_H200_SXM_141GB: "8"}`, 1)
	}
	tests := map[string]struct {
		change func(string) string
		lines  []string
	}{
		"holds": {asIs, []string{
			"device/train-a -n tenant-acme", "device/serve-a -n tenant-blue", "gpudevices/starting -n tenant-blue",
		}},
		"use":    {asIs, []string{"device/orphan -n tenant-blue", "device/stuck -n tenant-blue"}},
		"leaves": {asIs, []string{"device/kept -n tenant-blue", "device/guarded -n tenant-blue"}},
		"lost":   {asIs, []string{"device/lost-fewer -n tenant-blue", "device/lost-node -n tenant-blue"}},
		"class": {asIs, []string{
			"device/no-class -n tenant-blue", "device/class-goes -n tenant-blue", "device/not-entitled -n tenant-blue", "device/not-permitted -n tenant-blue",
		}},
		"budget":    {asIs, []string{"device/over-own -n tenant-acme-dev", "device/over-above -n tenant-acme-dev", "device/no-tenant -n default"}},
		"placement": {asIs, []string{"device/full -n tenant-blue", "device/too-large -n tenant-blue", "device/unserved -n tenant-blue"}},
		"room":      {roomyFor, []string{"device/too-large -n tenant-blue"}},
		"leaderless": {
			func(text string) string { return leaderless(roomyFor(text)) }, []string{"device/too-large -n tenant-blue", "device/full -n tenant-blue", "device/train-a -n tenant-acme"},
		},
		"machines": {asIs, []string{
			"vm/good -n tenant-acme", "vm/nameless -n tenant-acme", "vm/waits -n tenant-blue", "vm/loses -n tenant-blue", "vm/garbled -n tenant-blue",
		}},
		"unknown": {asIs, []string{"device/train-a -n tenant-blue", "device/nobody -n tenant-blue", "device/x/y"}},
		"cluster": {asIs, []string{"", "-o json", "device/over-above -n tenant-acme-dev -o json", "device/full -n tenant-blue -o yaml"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			compareText(t, "orders-"+name, told(t, ordersFile, tc.change, tc.lines))
		})
	}
}

// TestOrdersOfFiles says of an order what files alone tell: without classes, namespaces
// and nodes it is what its condition says, and nothing is concluded.
func TestOrdersOfFiles(t *testing.T) {
	data, err := os.ReadFile("testdata/orders/cluster.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var only []string
	for doc := range strings.SplitSeq(string(data), "\n---\n") {
		if strings.Contains(doc, "kind: GPUDevice") {
			only = append(only, doc)
		}
	}
	file := filepath.Join(t.TempDir(), "devices.yaml")
	if err := os.WriteFile(file, []byte(strings.Join(only, "\n---\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	code, findings, stderr := diagnoseJSON(t, "diagnose", "-f", file, "device/over-above", "-n", "tenant-acme-dev")
	want := []diagnose.Finding{{
		Code: "GPU0705", Severity: diagnose.Warning, Object: "GPUDevice tenant-acme-dev/over-above",
		Message: "its condition says since 2026-03-01 11:00:01 UTC: no node has 5 of nvidia.com/GH100_H200_SXM_141GB free together now",
		Hint:    "gpuctl explain GPU0705",
	}}
	if diff := cmp.Diff(want, findings); diff != "" || code != 0 || stderr != "" {
		t.Errorf("exit %d, findings (-want +got):\n%s%s", code, diff, stderr)
	}
}

// TestOrdersUnread concludes nothing from what may not be read.
func TestOrdersUnread(t *testing.T) {
	for _, kind := range []string{"GPUClasses", "Namespaces", "ResourceQuotas", "Pods", "VirtualMachineInstances"} {
		t.Run(kind, func(t *testing.T) {
			m := material{at: time.Now(), problems: []diagnose.Finding{
				diagnose.New("GPU0130", "cluster", diagnose.Values{"what": kind, "problem": "you may not", "hint": ""}),
			}}
			for _, have := range []string{"GPUClass", "GPUDevice", "Namespace", "Node"} {
				m.docs = append(m.docs, manifest.Live("x", map[string]any{"apiVersion": "v1", "kind": have}))
			}
			if m.judges() {
				t.Errorf("orders are judged without %s", kind)
			}
			m.problems = nil
			if !m.judges() {
				t.Errorf("orders are not judged although all is there")
			}
		})
	}
}

// TestOrdersBundle keeps secrets of namespaces and settings out of a bundle, and nothing
// that orders are judged by.
func TestOrdersBundle(t *testing.T) {
	b, err := bundle.Read(packed(t, ordersFile, func(text string) string {
		return text + `---
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: {name: tenant-acme, namespace: tenant-root}
spec: {values: {resourceQuotas: {gpus: "8"}, password: "hunter2"}}
---
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: {name: database, namespace: tenant-root}
spec: {values: {resourceQuotas: {token: "hunter2"}}}
`
	}))
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for i := range b.Docs {
		text, err := manifest.Marshal(b.Docs[i].Object)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	for _, secret := range []string{"hunter2", "secret-customer"} {
		if strings.Contains(all.String(), secret) {
			t.Errorf("%s is in the bundle", secret)
		}
	}
	for _, needed := range []string{"tier: tenant", "gpuctl.dev/parent: tenant-acme", "tenants: tier=tenant", "resourceQuotas:", "maxCount: 8", "gpuctl.dev/units", `"devices":["train-a"]`} {
		if !strings.Contains(all.String(), needed) {
			t.Errorf("%s is not in the bundle", needed)
		}
	}
}
