package patch

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/internal/manifest"
)

// TestTakenAwayInTreeEntryComesBackInTree: the node serves the name for a while after
// somebody has removed gpuctl's entry, which must not be taken for a plugin's doing.
func TestTakenAwayInTreeEntryComesBackInTree(t *testing.T) {
	const record = `namespace: kubevirt, annotations: {gpuctl.dev/wired: '{"version":1,"entries":[{"list":"LIST","selector":"SELECTOR","resourceName":"NAME","inTree":true}]}'}`
	tests := map[string]struct {
		cr, list, selector string
		name               gpu.ResourceName
		host               gpu.Host
	}{
		"mediated device":  {mdevCR(mdevFmt, makesByID), "mediatedDevices", "NVIDIA A10-12Q", a10, mdevHost("a", "nvidia-592 NVIDIA A10-12Q")},
		"virtual function": {pciCR("v1.9.0"), "pciHostDevices", "10DE:26B9", l40s24, vfHost("a", "1155")},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			own := strings.NewReplacer("LIST", tc.list, "SELECTOR", tc.selector, "NAME", string(tc.name)).Replace(record)
			cr := strings.Replace(tc.cr, "namespace: kubevirt", own, 1)
			result, err := Plan(Input{Target: target(t, cr), Hosts: []gpu.Host{tc.host}, Nodes: []gpu.Node{node("a", served{tc.name: 1})}})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{tc.selector + " " + string(tc.name) + " in-tree"}, entries(result)); diff != "" {
				t.Errorf("added (-want +got):\n%s", diff)
			}
			blind, err := Plan(Input{Target: target(t, cr), Nodes: []gpu.Node{node("a", served{tc.name: 1})}})
			if err != nil || len(blind.Changes) > 0 || len(codesAbout(blind, "GPU0335")) > 0 {
				t.Errorf("without an inventory: added %v, %v, %v", entries(blind), err, blind.Findings)
			}
		})
	}
}

// TestOwnInTreeEntryInUseStaysOwn keeps it in the record as what it is, so that it goes
// when its user has gone.
func TestOwnInTreeEntryInUseStaysOwn(t *testing.T) {
	in := Input{Target: target(t, mdevCR(mdevFmt, makesByID)), Hosts: []gpu.Host{mdevHost("a", "nvidia-592 NVIDIA A10-12Q"), host("b", 0x2335)}}
	before := in.Target.Object
	added, err := Plan(in)
	if err != nil {
		t.Fatal(err)
	}
	in.Workloads = []gpu.Workload{vmi(a10, true)}
	first, err := Remove(with(in, added.Object))
	if err != nil || len(first.Changes) != 1 {
		t.Fatalf("removed %v, %v, want the other entry", first.Changes, err)
	}
	in.Workloads = nil
	second, err := Remove(with(in, first.Object))
	if diff := cmp.Diff(any(before), any(second.Object)); err != nil || diff != "" {
		t.Errorf("after both (-before +after):\n%s%v", diff, err)
	}
}

// TestRemoveKnowsTheProvider removes the own entry and leaves one that somebody wrote
// over it with another provider, in records of either age.
func TestRemoveKnowsTheProvider(t *testing.T) {
	entry := func(provider string) string {
		return `{mdevNameSelector: NVIDIA A10-12Q, resourceName: ` + a10 + provider + `}`
	}
	tests := map[string]struct {
		record, entry string
		removed       int
	}{
		"own in-tree entry":                       {`,"inTree":true`, entry(", externalResourceProvider: false"), 1},
		"own in-tree entry, the default left out": {`,"inTree":true`, entry(""), 1},
		"in-tree in the record, external now":     {`,"inTree":true`, entry(", externalResourceProvider: true"), 0},
		"a record of old means external":          {``, entry(", externalResourceProvider: true"), 1},
		"a record of old, in-tree now":            {``, entry(""), 0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			own := `namespace: kubevirt, annotations: {gpuctl.dev/wired: '{"version":1,"entries":[{"list":"mediatedDevices","selector":"NVIDIA A10-12Q","resourceName":"` + a10 + `"` + tc.record + `}]}'}`
			result, err := Remove(Input{Target: target(t, strings.Replace(mdevCR(mdevFmt, makesByID, tc.entry), "namespace: kubevirt", own, 1))})
			if err != nil || len(result.Changes) != tc.removed {
				t.Errorf("removed %v, %v, want %d", result.Changes, err, tc.removed)
			}
			for _, c := range result.Changes {
				if external := c.Value.(manifest.Object)["externalResourceProvider"]; external == (tc.record != "") {
					t.Errorf("says it removes an entry with externalResourceProvider: %v", external)
				}
			}
		})
	}
}
