package wiring

import (
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpuctl/gpuctl/internal/manifest"
	"github.com/gpuctl/gpuctl/internal/patch"
)

// Who takes the wiring away is blamed, whether or not the record went with it; who makes
// another object in place of the one that was wired is not.
func TestBlame(t *testing.T) {
	const (
		empty  = "apiVersion: kubevirt.io/v1\nkind: KubeVirt\nmetadata: {name: kubevirt, namespace: kubevirt, uid: first}\nspec: {configuration: {developerConfiguration: {featureGates: [HostDevices]}}}\n"
		hco    = "apiVersion: hco.kubevirt.io/v1beta1\nkind: HyperConverged\nmetadata: {name: hco, namespace: kubevirt, uid: second}\nspec: {}\n"
		record = `uid: first, annotations: {gpuctl.dev/wired: '{"version":1,"entries":[{"list":"pciHostDevices","selector":"10DE:2335","resourceName":"nvidia.com/GH100_H200_SXM_141GB"}]}'}`
		entry  = "10DE:2335 as nvidia.com/GH100_H200_SXM_141GB"
	)
	metrics, err := NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	target := func(text string) *patch.Target {
		docs, _, err := manifest.Parse("test", []byte(text))
		if err != nil || len(docs) != 1 {
			t.Fatalf("%d documents, %v", len(docs), err)
		}
		return &patch.Target{Document: docs[0]}
	}
	permit, err := patch.ParsePermit("10DE:2335=nvidia.com/GH100_H200_SXM_141GB")
	if err != nil {
		t.Fatal(err)
	}
	plan := func(on *patch.Target) patch.Result {
		r, err := patch.Plan(patch.Input{Target: *on, Permits: []patch.Permit{permit}, WorkloadsKnown: true})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	tests := map[string]struct {
		now  string
		lost []string
	}{
		"the entry is taken away":      {strings.Replace(empty, "uid: first", record, 1), []string{entry}},
		"and the record with it":       {empty, []string{entry}},
		"KubeVirt was installed anew":  {strings.Replace(empty, "uid: first", "uid: third", 1), nil},
		"a HyperConverged has come":    {hco, nil},
		"installed anew from a backup": {strings.Replace(empty, "uid: first", strings.Replace(record, "first", "third", 1), 1), []string{entry}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c := New(Options{Now: time.Now, Log: logr.Discard(), Metrics: metrics})
			wired := target(empty)
			wired.Object = plan(wired).Object
			c.settle(wired, true)
			now := target(tc.now)
			var lost []string
			for _, p := range c.blame(now, plan(now)) {
				lost = append(lost, p.String())
			}
			if diff := cmp.Diff(tc.lost, lost); diff != "" {
				t.Errorf("lost (-want +got):\n%s", diff)
			}
			if got := len(c.contest.reverts); got != len(tc.lost) {
				t.Errorf("%d reverts are counted, want %d", got, len(tc.lost))
			}
		})
	}
}

// Another object that permits the same is followed all the same: virt-api may not have
// its gate yet, and instances that wait were refused by the one before it.
func TestAnotherObjectIsFollowed(t *testing.T) {
	settled := func(uid string) *patch.Target {
		return &patch.Target{Document: manifest.Live("test", manifest.Object{
			"apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", "metadata": map[string]any{"name": "kubevirt", "uid": uid},
		})}
	}
	c := New(Options{Now: time.Now})
	for i, tc := range []struct {
		uid  string
		want bool
	}{{"first", true}, {"first", false}, {"second", true}} {
		c.after.target = nil
		c.settle(settled(tc.uid), true)
		if got := c.after.of() != nil; got != tc.want {
			t.Errorf("look %d, at %s: followed %t, want %t", i, tc.uid, got, tc.want)
		}
	}
}
