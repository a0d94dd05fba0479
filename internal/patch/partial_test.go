package patch

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/internal/gpu"
)

// A partial plan does what can be done, and says what was left out.
func TestPartialPlan(t *testing.T) {
	const l40s = "nvidia.com/AD102GL_L40S"
	stock := "apiVersion: kubevirt.io/v1\nkind: KubeVirt\nmetadata: {name: k, namespace: k}\nspec: {configuration: {}}\n"
	both := []gpu.Host{host("a", 0x2335), host("b", 0x26b9)}
	nodes := []gpu.Node{node("a", served{h200: 8}), node("b", served{l40s: 2})}
	tests := map[string]struct {
		cr   string
		in   Input
		want []string
		left []diagnose.Code
	}{
		"a selector that is taken keeps no other card from being wired": {
			cr: theirsInHCO, in: Input{Hosts: both, Nodes: nodes}, want: []string{l40s}, left: []diagnose.Code{"GPU0317"},
		},
		"nor does a name that a VM holds": {
			cr: oursInHCO, in: Input{Hosts: both, Nodes: nodes, Workloads: []gpu.Workload{vm(hex)}}, want: []string{l40s}, left: []diagnose.Code{"GPU0317"},
		},
		"nor one card under two names": {
			cr:   table(hcoFmt),
			in:   Input{Hosts: append(both, host("c", 0x2335)), Nodes: append([]gpu.Node{node("c", served{hex: 1})}, nodes...)},
			want: []string{hex, l40s}, left: []diagnose.Code{"GPU0329"},
		},
		"nor a pair that can never work": {
			cr:   emptyCR,
			in:   Input{Hosts: both, Nodes: nodes, Permits: []Permit{{ID: gpu.NVIDIA(0x2335), Name: "nvidia.com/gpu"}}},
			want: []string{h200, l40s}, left: []diagnose.Code{"GPU0322"},
		},
		"the first entry is held back, and the gate is not": {
			cr: stock, in: Input{Hosts: both, Nodes: append([]gpu.Node{node("c", served{"example.com/nic": 1})}, nodes...), Workloads: []gpu.Workload{vm("example.com/nic")}},
			want: []string{"gate"}, left: []diagnose.Code{"GPU0319"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			tc.in.Target, tc.in.WorkloadsKnown = target(t, tc.cr), true
			if _, err := Plan(tc.in); stoppedBy(err) == "" {
				t.Errorf("a whole plan is not refused: %v", err)
			}
			tc.in.Partial = true
			r, err := Plan(tc.in)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, c := range r.Changes {
				if entry, ok := c.Value.(map[string]any); ok {
					got = append(got, entry["resourceName"].(string))
				} else {
					got = append(got, "gate")
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("added (-want +got):\n%s", diff)
			}
			var left []diagnose.Code
			for _, f := range r.LeftOut {
				left = append(left, f.Code)
			}
			if diff := cmp.Diff(tc.left, left); diff != "" {
				t.Errorf("left out (-want +got):\n%s", diff)
			}
		})
	}
}

// Where nodes serve a card already, a node whose plugin was not seen is expected to
// serve it alike; one whose plugin was seen, as that names it.
func TestPredictionGivesWay(t *testing.T) {
	v13 := gpu.Release{Major: 1, Minor: 3, Patch: 1}
	in := func(joining gpu.Node) Input {
		return Input{Target: target(t, emptyCR), Hosts: []gpu.Host{host("a", 0x233b), host("b", 0x233b)}, Nodes: []gpu.Node{node("a", served{"nvidia.com/233b": 8}), joining}}
	}
	tests := map[string]struct {
		joining gpu.Node
		want    int
	}{
		"no plugin yet": {node("b", nil), 1},
		"another one":   {gpu.Node{Name: "b", Plugin: v13}, 2},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r, err := Plan(in(tc.joining))
			if err != nil || len(r.Changes) != tc.want {
				t.Errorf("%d changes, want %d: %v, %v", len(r.Changes), tc.want, r.Changes, err)
			}
		})
	}
}

// What somebody named stays, whatever the nodes do.
func TestNamedEntriesAreNotStale(t *testing.T) {
	permit := Permit{ID: gpu.NVIDIA(0x2330), Name: "nvidia.com/GH100_H100_SXM5_80GB"}
	in := Input{Target: target(t, emptyCR), Nodes: []gpu.Node{node("a", nil)}, WorkloadsKnown: true, Permits: []Permit{permit}}
	added, err := Plan(in)
	if err != nil || len(added.Changes) != 1 {
		t.Fatalf("changes %v, %v", added.Changes, err)
	}
	in.Target.Object, in.Permits = added.Object, nil
	in.Idle = Idle{For: map[gpu.ResourceName]time.Duration{permit.Name: 48 * time.Hour}, Limit: 24 * time.Hour}
	if later, err := Plan(in); err != nil || len(later.Changes) > 0 {
		t.Errorf("changes %v, %v", later.Changes, err)
	}
	if removed, err := Remove(in); err != nil || len(removed.Changes) != 1 {
		t.Errorf("removed %v, %v", removed.Changes, err)
	}
}

// gpuctl corrects its own entries when what they stand for has changed.
func TestOwnVGPUEntriesAreCorrected(t *testing.T) {
	l40s4 := gpu.MdevResource("NVIDIA L40S-4Q")
	const whole = "nvidia.com/AD102GL_L40S"
	tests := map[string]struct {
		before, after Input
		want          []string
		code          diagnose.Code
	}{
		"functions carry another type": {
			before: Input{Target: target(t, pciCR("v1.9.0")), Hosts: []gpu.Host{vfHost("a", "1155", "1155")}},
			after:  Input{Hosts: []gpu.Host{vfHost("a", "1150", "1150")}, Nodes: []gpu.Node{node("a", served{l40s24: 2})}},
			want:   []string{"- " + l40s24, "+ " + string(l40s4)},
		},
		"and a VM asks for the old one": {
			before: Input{Target: target(t, pciCR("v1.9.0")), Hosts: []gpu.Host{vfHost("a", "1155", "1155")}},
			after:  Input{Hosts: []gpu.Host{vfHost("a", "1150", "1150")}, Nodes: []gpu.Node{node("a", served{l40s24: 2})}, Workloads: []gpu.Workload{vm(l40s24)}},
			code:   "GPU0338",
		},
		"whole cards have come": {
			before: Input{Target: target(t, pciCR("v1.9.0")), Hosts: []gpu.Host{vfHost("a", "1155", "1155")}},
			after:  Input{Hosts: []gpu.Host{vfHost("a", "1155", "1155"), host("b", 0x26b9)}, Nodes: []gpu.Node{node("a", served{l40s24: 2}), node("b", served{whole: 1})}},
			want:   []string{"- " + l40s24, "+ " + whole}, code: "GPU0338",
		},
		"the plugin came after KubeVirt": {
			before: Input{Target: target(t, mdevCR(mdevFmt, makesByID)), Hosts: []gpu.Host{mdevHost("a", "nvidia-592 NVIDIA A10-12Q")}, Nodes: []gpu.Node{node("a", nil)}},
			after:  Input{Hosts: []gpu.Host{mdevHost("a", "nvidia-592 NVIDIA A10-12Q")}, Nodes: []gpu.Node{withPlugin("a", served{a10: 1})}, Workloads: []gpu.Workload{vm(a10)}},
			want:   []string{"- " + a10, "+ " + a10},
		},
		"the plugin is away for a moment": {
			before: Input{Target: target(t, mdevCR(mdevFmt, makesByID)), Hosts: []gpu.Host{mdevHost("a", "nvidia-592 NVIDIA A10-12Q")}, Nodes: []gpu.Node{withPlugin("a", served{a10: 1})}},
			after:  Input{Hosts: []gpu.Host{mdevHost("a", "nvidia-592 NVIDIA A10-12Q")}, Nodes: []gpu.Node{node("a", served{a10: 0})}},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			tc.before.WorkloadsKnown, tc.after.WorkloadsKnown = true, true
			first, err := Plan(tc.before)
			if err != nil || len(first.Changes) == 0 {
				t.Fatalf("changes %v, %v", first.Changes, err)
			}
			tc.after.Target = tc.before.Target
			tc.after.Target.Object = first.Object
			r, err := Plan(tc.after)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, c := range r.Changes {
				sign := map[string]string{"add": "+ ", "remove": "- "}[c.Op]
				got = append(got, sign+c.Value.(map[string]any)["resourceName"].(string))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("changes (-want +got):\n%s", diff)
			}
			found := slices.ContainsFunc(r.Findings, func(f diagnose.Finding) bool { return f.Code == tc.code })
			if tc.code != "" && !found {
				t.Errorf("no %s in %v", tc.code, r.Findings)
			}
			settled(t, tc.after, r)
		})
	}
}
