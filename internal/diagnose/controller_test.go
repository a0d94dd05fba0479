package diagnose

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

const entry = "10DE:2335 as nvidia.com/GH100_H200_SXM_141GB"

// led is a controller of two replicas, one of which leads.
func led(c Controller) Controller {
	c.Known, c.Target = true, "KubeVirt k/k"
	c.Runs = []Deployment{{Namespace: "g", Name: "c", Desired: 2, Ready: 2, Leader: "c-1", Led: gpu.Present}}
	return c
}

// leaderless is the same while nobody leads.
func leaderless(c Controller) Controller {
	c = led(c)
	c.Runs[0].Leader, c.Runs[0].Led = "", gpu.Absent
	return c
}

func said(reason, message string) *Condition {
	status := map[string]string{"Wired": "True", "Reverted": "True", "NoKubeVirt": "Unknown"}[reason]
	if status == "" {
		status = "False"
	}
	return &Condition{Status: status, Reason: reason, Message: message}
}

// TestController has what a controller says, and which findings come of it.
func TestController(t *testing.T) {
	reverts := []Revert{{"helm", entry}, {"", entry}, {"gitops", entry}, {"gitops", entry}}
	contest := Controller{Wired: said("BackedOff", "see Contested"), Contested: said("Reverted", "gitops took it"), Reverts: reverts}
	heldBack := Controller{Wired: said("HeldBack", "GPU0319: the table is unset")}
	twoCauses := Controller{Wired: said("Refused", "GPU0319: one; GPU0323: two")}
	held, gate := Finding{Code: "GPU0319", Severity: Error, Object: "KubeVirt k/k"}, Finding{Code: "GPU0323", Severity: Error, Object: "KubeVirt k/k"}
	for name, tc := range map[string]struct {
		c     Controller
		found []Finding
		want  []Code
	}{
		"nothing is known":            {},
		"none is installed":           {c: Controller{Known: true}},
		"one that leads, and is calm": {c: led(Controller{Wired: said("Wired", ""), Contested: said("Calm", "")})},
		"a contest":                   {c: led(contest), want: []Code{"GPU0333"}},
		"a contest of which only the GPUWiring is known": {c: contest, want: []Code{"GPU0333"}},
		"a contest that was, and nobody leads":           {c: leaderless(contest), want: []Code{"GPU0341"}},
		"a contest that was, of one that is gone":        {c: func() Controller { c := contest; c.Known = true; return c }()},
		"what was found is not repeated":                 {c: led(heldBack), found: []Finding{held}, want: []Code{"GPU0319"}},
		"what only the controller finds":                 {c: led(heldBack), want: []Code{"GPU0340"}},
		"one of two causes was found":                    {c: led(twoCauses), found: []Finding{held}, want: []Code{"GPU0319", "GPU0340"}},
		"both causes were found":                         {c: led(twoCauses), found: []Finding{held, gate}, want: []Code{"GPU0319", "GPU0323"}},
		"an error without a code":                        {c: led(Controller{Wired: said("Failed", "virt-api does not answer")}), want: []Code{"GPU0340"}},
		"no KubeVirt":                                    {c: led(Controller{Wired: said("NoKubeVirt", "there is none")})},
		"no replica is ready":                            {c: Controller{Known: true, Runs: []Deployment{{Namespace: "g", Name: "c", Desired: 2, Led: gpu.Absent}}}, want: []Code{"GPU0341"}},
		"scaled to zero":                                 {c: Controller{Known: true, Runs: []Deployment{{Namespace: "g", Name: "c", Led: gpu.Absent}}}, want: []Code{"GPU0341"}},
		"who leads may not be read":                      {c: Controller{Runs: []Deployment{{Namespace: "g", Name: "c", Desired: 2, Ready: 1}}, Contested: contest.Contested}, want: []Code{"GPU0333"}},
		"started by hand":                                {c: Controller{Known: true, Runs: []Deployment{{Namespace: "g", Leader: "laptop", Led: gpu.Present}}, Contested: contest.Contested}, want: []Code{"GPU0333"}},
	} {
		t.Run(name, func(t *testing.T) {
			report, _ := Diagnose(&Evidence{Wiring: wired(), Controller: tc.c, Findings: tc.found}, Subject{})
			var got []Code
			for _, f := range report.Findings {
				got = append(got, f.Code)
				if leftOver.MatchString(f.Message + f.Hint) {
					t.Errorf("a placeholder is left: %+v", f)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("codes (-want +got):\n%s", diff)
			}
		})
	}
}

// TestContestIsNamed pins the words, which the controller's condition has, too.
func TestContestIsNamed(t *testing.T) {
	got := Contest("KubeVirt k/k", []Revert{{"helm", entry}, {"", entry}, {"helm", "feature gate HostDevices"}})
	want := "helm, somebody whom the API server has not recorded took " + entry + ", feature gate HostDevices out of KubeVirt k/k"
	if !strings.HasPrefix(got.Message, want) {
		t.Errorf("Contest() says %q, want %q…", got.Message, want)
	}
	unnamed := Controller{Contested: said("Reverted", "the words of the condition")}
	if f := unnamed.contested(); f == nil || f.Message != "the words of the condition" {
		t.Errorf("without reverts it is %+v", f)
	}
}

// TestContestOfSubject tells of a contest where a table is what keeps a machine from its
// GPUs, and not elsewhere.
func TestContestOfSubject(t *testing.T) {
	contest := led(Controller{Contested: said("Reverted", ""), Reverts: []Revert{{"helm", entry}}})
	open := &Wiring{Object: "KubeVirt k/k", Table: gpu.Table{Set: true}}
	for name, tc := range map[string]struct {
		wiring *Wiring
		want   []Code
	}{
		"it waits for the table": {open, []Code{"GPU0333", "GPU0302"}},
		"it waits for a GPU":     {wired(), []Code{"GPU0506"}},
	} {
		t.Run(name, func(t *testing.T) {
			e := Evidence{
				Wiring: tc.wiring, Controller: contest, Nodes: []gpu.Node{node("a", h200, 1, nil)}, PodsKnown: true, VMs: []VM{vm("v", "Pending", "gpus", h200, 1)},
				Pods: []Pod{{Namespace: "tenant", Name: "p", Node: "a", VM: "other", Requests: map[gpu.ResourceName]int64{h200: 1}}},
			}
			report, _ := Diagnose(&e, Subject{"vm", "tenant", "v"})
			var got []Code
			for _, f := range report.Findings {
				got = append(got, f.Code)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("codes (-want +got):\n%s", diff)
			}
		})
	}
}
