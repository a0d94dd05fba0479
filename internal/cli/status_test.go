package cli

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuctl/gpuctl/internal/bundle"
	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/internal/manifest"
)

// controllerDocs are a controller with so many replicas ready, of two, and who leads.
func controllerDocs(ready int, leader string) string {
	return fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: c, namespace: g, labels: {app.kubernetes.io/part-of: gpuctl, app.kubernetes.io/component: controller}}
spec: {replicas: 2}
status: {readyReplicas: %d}
---
`, ready) + leaseDoc("g", leader)
}

func leaseDoc(namespace, leader string) string {
	return fmt.Sprintf(`apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: gpuctl-controller, namespace: %s}
spec: {holderIdentity: %q, renewTime: "2026-03-01T11:59:58.000000Z", leaseDurationSeconds: 15}
---
`, namespace, leader)
}

func wiringDoc(conditions string) string {
	return "apiVersion: gpuctl.dev/v1alpha1\nkind: GPUWiring\nmetadata: {name: cluster}\nstatus:\n  target: KubeVirt k/k\n  reverts: [{time: \"2026-03-01T11:59:00.000000Z\", manager: gitops, lost: an entry}]\n  conditions:\n" + conditions + "---\n"
}

// wiringEvent is an Event by gpuctl on the KubeVirt CR.
func wiringEvent(by, reason, at, message string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Event\nmetadata: {name: e-%s-%s, namespace: k}\nreason: %s\ninvolvedObject: {kind: KubeVirt, namespace: k, name: k}\neventTime: %q\nreportingComponent: %s\nmessage: %q\n---\n",
		strings.ToLower(reason), at[len(at)-3:len(at)-1], reason, at, by, message)
}

const (
	isWired   = "  - {type: Wired, status: \"True\", reason: Wired, message: \"\", lastTransitionTime: \"2026-03-01T11:58:00Z\"}\n"
	isHeld    = "  - {type: Wired, status: \"False\", reason: HeldBack, message: \"GPU0319: it would break VMs\", lastTransitionTime: \"2026-03-01T11:58:00Z\"}\n"
	isCalm    = "  - {type: Contested, status: \"False\", reason: Calm, message: \"\", lastTransitionTime: \"2026-03-01T11:58:00Z\"}\n"
	contested = "  - {type: Wired, status: \"False\", reason: BackedOff, message: see Contested, lastTransitionTime: \"2026-03-01T11:58:00Z\"}\n" +
		"  - {type: Contested, status: \"True\", reason: Reverted, message: gitops took an entry, lastTransitionTime: \"2026-03-01T11:58:00Z\"}\n"
)

// TestStatusOfController shows what status says of the controller: the lines from its
// own to that of the agents, and the codes of all findings.
func TestStatusOfController(t *testing.T) {
	for name, tc := range map[string]struct {
		docs    string
		unknown bool // the cluster's Deployments and Leases were not all read
		want    []string
		codes   []diagnose.Code
	}{
		"none":                  {want: []string{"Controller none: the hook wires once"}},
		"not read":              {unknown: true, want: []string{"Controller not known"}},
		"it leads and wires":    {docs: controllerDocs(2, "c-1_0b6f") + wiringDoc(isWired+isCalm), want: []string{"Controller 2 of 2 ready   wired ok   led by c-1"}},
		"it has not looked yet": {docs: controllerDocs(1, "c-1_0b6f"), want: []string{"Controller 1 of 2 ready   led by c-1"}},
		"it is held back": {docs: controllerDocs(2, "c-1_0b6f") + wiringDoc(isHeld+isCalm), want: []string{
			"Controller 2 of 2 ready   wired XX   led by c-1", "           HeldBack: GPU0319: it would break VMs  GPU0340",
		}, codes: []diagnose.Code{"GPU0340"}},
		"a contest": {docs: controllerDocs(2, "c-1_0b6f") + wiringDoc(contested), want: []string{
			"Controller 2 of 2 ready   wired XX   led by c-1", "           BackedOff: see Contested", "           Contested: gitops took an entry  GPU0333",
		}, codes: []diagnose.Code{"GPU0333"}},
		"a contest that was, and nobody leads": {docs: controllerDocs(2, "") + wiringDoc(contested), want: []string{"Controller 2 of 2 ready   nobody leads   GPU0341"}, codes: []diagnose.Code{"GPU0341"}},
		"no replica is ready":                  {docs: controllerDocs(0, ""), want: []string{"Controller 0 of 2 ready   nobody leads   GPU0341"}, codes: []diagnose.Code{"GPU0341"}},
		"another's Lease is left": {
			docs: leaseDoc("a", "gone_1") + controllerDocs(2, "c-1_0b6f") + wiringDoc(isWired+isCalm),
			want: []string{"Controller 2 of 2 ready   wired ok   led by c-1"},
		},
		"its writes, and not the hook's": {
			docs: controllerDocs(2, "c-1_0b6f") + wiringEvent("gpuctl.dev/wiring", "Wired", "2026-03-01T11:57:00Z", "+ an entry: why") +
				wiringEvent("gpuctl.dev/wiring", "WiringRepaired", "2026-03-01T11:58:00Z", "taken away by gitops, written back:\n+ an entry: why") +
				wiringEvent("gpuctl.dev/wiring", "WiringContested", "2026-03-01T11:59:01Z", "gitops took an entry") +
				wiringEvent("gpuctl.dev/wire", "Wired", "2026-03-01T11:59:02Z", "KubeVirt k/k: 1 changed"),
			want: []string{"Controller 2 of 2 ready   led by c-1", "           WiringRepaired 2m ago: taken away by gitops, written back"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			file := bundleOf(t, tc.docs, !tc.unknown)
			_, screen, _ := run(t, "status", "-f", file)
			_, rest, _ := strings.Cut(screen, "\nController")
			lines, _, _ := strings.Cut("Controller"+rest, "\nAgents")
			if diff := cmp.Diff(tc.want, strings.Split(lines, "\n")); diff != "" {
				t.Errorf("lines (-want +got):\n%s", diff)
			}
			if strings.Contains(screen, "\nError") || strings.Contains(screen, "\nWarning") {
				t.Errorf("a finding is on the screen twice:\n%s", screen)
			}
			_, found, _ := diagnoseJSON(t, "diagnose", "-f", file)
			var codes []diagnose.Code
			for _, f := range found {
				codes = append(codes, f.Code)
			}
			if diff := cmp.Diff(tc.codes, codes); diff != "" {
				t.Errorf("codes (-want +got):\n%s", diff)
			}
		})
	}
}

// TestHookIsNotTheController reads the hook's last run past later Events of the
// controller, whose reasons are the same.
func TestHookIsNotTheController(t *testing.T) {
	file := bundleOf(t, wiringEvent("gpuctl.dev/wire", "WiringChecked", "2026-03-01T11:50:00Z", "release r revision 3: KubeVirt k/k: 0 changed")+
		wiringEvent("gpuctl.dev/wiring", "Wired", "2026-03-01T11:58:00Z", "+ an entry: why"), true)
	_, screen, _ := run(t, "status", "-f", file)
	if want := "Hook       checked, nothing to change, 10m ago (release r, revision 3)\n"; !strings.Contains(screen, want) {
		t.Errorf("the screen lacks %q:\n%s", want, screen)
	}
}

// TestStatusOfOrders shows what status says of orders; a line only where there are any.
func TestStatusOfOrders(t *testing.T) {
	device := func(name, state string) string {
		return fmt.Sprintf("apiVersion: gpuctl.dev/v1alpha1\nkind: GPUDevice\nmetadata: {name: %s, namespace: acme}\nspec: {className: h200, count: 1}\nstatus: {state: %q}\n---\n", name, state)
	}
	for name, tc := range map[string]struct {
		docs string
		want string
	}{
		"none":      {wiringDoc(isWired), ""},
		"all is up": {device("a", "Held") + device("b", "Bound") + device("c", "Attached"), "Orders     2 held   1 in use\n"},
		"not all": {
			device("a", "Held") + device("b", "Lost") + device("c", "Pending") + device("d", "") + device("e", "Lost"),
			"Orders     1 held   0 in use   2 pending   2 lost: acme/b, acme/e\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, screen, _ := run(t, "status", "-f", bundleOf(t, tc.docs, true))
			if strings.Contains(screen, "Orders") != (tc.want != "") || !strings.Contains(screen, tc.want) {
				t.Errorf("want %q on\n%s", tc.want, screen)
			}
		})
	}
}

// bundleOf packs documents as of noon.
func bundleOf(t *testing.T, docs string, control bool) string {
	t.Helper()
	read, _, err := manifest.Parse("docs.yaml", []byte(docs))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "b.tar.gz")
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	if err := bundle.Write(file, &bundle.Bundle{About: bundle.About{Read: at, Packed: at, Pods: true, Agents: true, Control: control}, Docs: read}); err != nil {
		t.Fatal(err)
	}
	return file
}
