package usage

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// aged returns the device, held since a minute of some hour.
func aged(minute int, d Device) Device {
	d.Since = time.Date(2026, 1, 1, 0, minute, 0, 0, time.UTC)
	return d
}

func TestJudge(t *testing.T) {
	starting := attached("starting", "", 2)
	starting.Starting = true
	final := vmi("dead")
	final.Final = true
	away := attached("away", "v", 2)
	away.Node = "n2"
	pending := Device{UID: "pending", Namespace: "acme", Resource: h200, Units: 2}
	other := attached("other", "v", 2)
	other.Resource = own
	all := []Device{
		aged(1, attached("running-old", "v", 2)), aged(2, attached("running-young", "w", 2)),
		aged(3, attached("under-a-dead-vmi", "dead", 2)), aged(4, starting), aged(5, attached("free-old", "", 2)), aged(6, attached("free-young", "", 2)),
		away, pending, other,
	}
	vmis := []VMI{vmi("v", "p"), vmi("w"), final}
	tests := map[string]struct {
		devices   []Device
		pods      []Pod
		served    int64
		uncertain bool
		want      Verdict
	}{
		"all are served":                    {devices: all, served: 12},
		"unattached devices move as needed": {devices: all, served: 11, want: Verdict{Move: []string{"free-young"}}},
		"all unattached ones":               {devices: all, served: 8, want: Verdict{Move: []string{"free-old", "free-young"}}},
		"then the youngest are lost":        {devices: all, served: 7, want: Verdict{Move: []string{"free-old", "free-young"}, Lose: []string{"starting"}}},
		"VMs that run are last":             {devices: all, served: 4, want: Verdict{Move: []string{"free-old", "free-young"}, Lose: []string{"under-a-dead-vmi", "starting"}}},
		"of those, the youngest first":      {devices: all, served: 3, want: Verdict{Move: []string{"free-old", "free-young"}, Lose: []string{"running-young", "under-a-dead-vmi", "starting"}}},
		"one that is taken stays before one that is older": {
			devices: []Device{aged(1, attached("free", "", 2)), aged(2, starting)}, served: 2, want: Verdict{Move: []string{"free"}},
		},
		"one under a VM that runs stays before one that is older": {
			devices: []Device{aged(1, attached("dead", "dead", 2)), aged(2, attached("running", "v", 2))}, served: 2, want: Verdict{Lose: []string{"dead"}},
		},
		"a smaller one that fits stays":       {devices: []Device{aged(1, attached("a", "v", 1)), aged(2, attached("b", "v", 4)), aged(3, attached("c", "v", 1))}, served: 2, want: Verdict{Lose: []string{"b"}}},
		"of the same age, by UID":             {devices: []Device{attached("b", "", 1), attached("a", "", 1)}, served: 1, want: Verdict{Move: []string{"b"}}},
		"nothing is concluded of a dark node": {devices: all, uncertain: true},
		"units that return heal, VMs first, the older first": {
			devices: []Device{lost(aged(1, attached("free", "", 2))), lost(aged(3, attached("young", "w", 2))), lost(aged(2, attached("old", "v", 2)))},
			served:  4, want: Verdict{Heal: []string{"old", "young"}},
		},
		"only whole devices heal": {
			devices: []Device{lost(aged(1, attached("a", "v", 4))), lost(aged(2, attached("b", "w", 1)))}, served: 3, want: Verdict{Heal: []string{"b"}},
		},
		"what is held is not given twice": {
			devices: []Device{attached("a", "v", 3), lost(attached("b", "w", 1)), lost(attached("c", "w", 1))}, served: 4, want: Verdict{Heal: []string{"b"}},
		},
		"its own launcher's units are its own": {
			devices: []Device{lost(attached("a", "v", 4))}, pods: []Pod{pod("p", "n1", 4)}, served: 4, want: Verdict{Heal: []string{"a"}},
		},
		"not before all of them are back": {
			devices: []Device{lost(attached("a", "v", 4))}, pods: []Pod{pod("p", "n1", 4)}, served: 3,
		},
		"nor into what a lost device's launcher still has": {
			devices: []Device{lost(attached("a", "v", 4)), lost(attached("b", "", 2))}, pods: []Pod{pod("p", "n1", 4)}, served: 3,
		},
		"nor into what a pod has taken": {
			devices: []Device{lost(attached("a", "v", 4))}, pods: []Pod{pod("raw", "n1", 1), pod("far", "n2", 8)}, served: 4,
		},
		"a pod of another name takes nothing": {
			devices: []Device{lost(attached("a", "v", 4))}, pods: []Pod{{UID: "raw", Node: "n1", Containers: []Requests{{own: 4}}}}, served: 4, want: Verdict{Heal: []string{"a"}},
		},
		"two devices don't both have one launcher": {
			devices: []Device{lost(attached("a", "v", 2)), lost(attached("b", "v", 2))}, pods: []Pod{pod("p", "n1", 2)}, served: 3, want: Verdict{Heal: []string{"a"}},
		},
		"a second launcher is not its own": {
			devices: []Device{lost(attached("a", "w", 2))}, pods: []Pod{pod("p", "n1", 4)}, served: 5,
		},
	}
	names := EffectiveNames(NameFacts{Listed: []gpu.ResourceName{h200, own}, DeviceClasses: []DeviceClass{{Name: "vfio", Extended: h200}}})
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := Snapshot{Names: names, Devices: tc.devices, VMIs: vmis, Pods: tc.pods}
			supply := Supply{Node: "n1", Units: map[gpu.ResourceName]int64{h200: tc.served}, Certain: !tc.uncertain}
			for _, name := range []gpu.ResourceName{h200, dra} {
				if diff := cmp.Diff(tc.want, s.Judge(supply, name)); diff != "" {
					t.Errorf("%s (-want +got):\n%s", name, diff)
				}
			}
		})
	}
}
