package e2e

import (
	"encoding/json"
	"regexp"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuctl/gpuctl/internal/diagnose"
)

// glance is what status shows, without times and versions.
type glance struct {
	KubeVirt  diagnose.KubeVirtView
	Hook      diagnose.HookView
	Agents    diagnose.AgentsView
	Nodes     []diagnose.NodeView
	Resources []diagnose.ResourceView
	Waiting   []diagnose.WaitingView
	Totals    diagnose.Totals
	Next      string
}

// A release is installed, one VM runs with two of four GPUs, and one waits for three.
func TestStatusLive(t *testing.T) {
	s := newStage(t)
	noMachines(s.Cluster)
	s.node("worker-1", 4, "vfio-pci", 4)
	s.install("--wait", "--timeout", "60s", "--set", "hook.wait=20s")
	w := &ward{Cluster: s.Cluster, t: t, ns: s.Namespace()}
	w.vm = w.create(machine(w.Cluster, w.ns, "holder", entries("gpus", h200, 2)))
	w.run()
	began := time.Now()
	w.suffer(entries("gpus", h200, 3))
	w.Eventually(soon, "the VM is not scheduled", waits(w.Cluster, instanceOf(w.Cluster, w.vm), "PodScheduled", "Insufficient "+h200))

	stdout, _ := succeed(t, s.Cluster, "status", "-o", "json")
	var o diagnose.Overview
	if err := json.Unmarshal([]byte(stdout), &o); err != nil {
		t.Fatal(err)
	}
	if o.KubeVirt == nil || o.Hook == nil || len(o.Waiting) != 1 {
		t.Fatalf("status is %s", stdout)
	}
	if at := o.Hook.At; at.Before(s.began.Add(-time.Second)) || at.After(began) {
		t.Errorf("the hook ran at %s", at)
	}
	if since := o.Waiting[0].Since; since.Before(began.Add(-time.Second)) || since.After(time.Now()) {
		t.Errorf("the VM waits since %s", since)
	}
	got := glance{*o.KubeVirt, *o.Hook, o.Agents, o.Nodes, o.Resources, o.Waiting, o.Totals, o.Next}
	got.KubeVirt.Version, got.Hook.At, got.Waiting[0].Since = "", time.Time{}, time.Time{}
	tally := diagnose.Tally{Free: 2, Used: 2}
	want := glance{
		KubeVirt:  diagnose.KubeVirtView{Object: "KubeVirt kubevirt/kubevirt", Gate: true, Table: true, Served: 1, Wired: 1},
		Hook:      diagnose.HookView{Result: "Wired", Release: s.release, Revision: "1", Changes: 2, Summary: "KubeVirt kubevirt/kubevirt: 2 changed"},
		Agents:    diagnose.AgentsView{Known: true, Total: 1, Reporting: 1, Silent: []diagnose.SilentView{}},
		Nodes:     []diagnose.NodeView{{Node: "worker-1", Resource: h200, Tally: tally, Users: []string{w.ns + "/holder"}}},
		Resources: []diagnose.ResourceView{{Name: h200, Nodes: 1, Permitted: true, Tally: tally}},
		Waiting: []diagnose.WaitingView{{
			Namespace: w.ns, Name: "trainer", Code: "GPU0506",
			Why: "VirtualMachine " + w.ns + "/trainer waits for 3 x " + h200 + ": 2 of 4 are free on node worker-1; held by " + w.ns + "/holder",
		}},
		Totals: diagnose.Totals{GPUs: tally, Warnings: 1},
		Next:   "gpuctl diagnose vm/trainer -n " + w.ns,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	text, _ := succeed(t, s.Cluster, "status")
	for _, line := range []string{
		`(?m)^KubeVirt +kubevirt/kubevirt v1\.\S+ +gate ok +table 1 of 1 wired$`,
		`(?m)^Hook .*\(release ` + s.release + `, revision 1\)$`,
		`(?m)^worker-1 +##\.\. +` + h200 + ` +2 +2$`,
		`(?m)^Waiting +` + w.ns + `/trainer .* GPU0506$`,
		`(?m)^1 warning +next: gpuctl diagnose vm/trainer -n ` + w.ns + `$`,
	} {
		if !regexp.MustCompile(line).MatchString(text) {
			t.Errorf("no line %s in\n%s", line, text)
		}
	}
}
