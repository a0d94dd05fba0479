package diagnose

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// anyDevice is an order in any state that an object can say, whether it can come to be or
// not.
func anyDevice(t *rapid.T) Device {
	at := func(name string) time.Time {
		return rapid.SampledFrom([]time.Time{{}, time.Unix(1000, 0), time.Unix(2000, 0)}).Draw(t, name)
	}
	some := func(name string, of ...string) string { return rapid.SampledFrom(append(of, "")).Draw(t, name) }
	return Device{
		Namespace: "acme", Name: "train", State: some("state", "Pending", "Held", "Bound", "Attached", "Lost"), Class: "h200", Count: 4,
		Ordered: at("ordered"), Made: rapid.Bool().Draw(t, "made"), VM: some("vm", "trainer"), Deleted: at("deleted"),
		Finalizers: rapid.SampledFrom([][]string{nil, {"example.com/x"}}).Draw(t, "finalizers"), Kept: rapid.Bool().Draw(t, "kept"),
		Node: some("node", "n1", "n2"), Resource: string(h200), Since: at("since"), Lost: at("lost"), VMI: some("vmi", "trainer"), VMIUID: some("uid", "u-1"),
		Taken: at("taken"), Refused: some("refused", "GPU0705: no"), Said: some("said", "GPU0611: no", "what nobody knows"), SaidAt: at("said at"),
	}
}

func anyJudgement(t *rapid.T) Judgement {
	j := Judgement{
		Known: rapid.Bool().Draw(t, "known"), Tenant: rapid.Bool().Draw(t, "tenant"), Room: rapid.Bool().Draw(t, "room"),
		Class: ClassView{Exists: rapid.Bool().Draw(t, "class"), Resource: h200},
	}
	if rapid.Bool().Draw(t, "refused") {
		j.Refusal = NoClass("GPUDevice acme/train", "h200")
		j.Refusal.Code = rapid.SampledFrom([]Code{"GPU0601", "GPU0602", "GPU0611", "GPU0612", "GPU0620", "GPU0705"}).Draw(t, "code")
	}
	return j
}

// TestDeviceChain walks orders in any state: a chain has all links, passes none behind a
// broken one, and its root is the only cause that is found, but for nobody who leads.
func TestDeviceChain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		judged := anyJudgement(t)
		e := &Evidence{
			At: time.Unix(2010, 0), Devices: []Device{anyDevice(t)}, Judge: func(_, _ string) Judgement { return judged },
			Controller: Controller{Known: rapid.Bool().Draw(t, "controller")}, MachinesKnown: rapid.Bool().Draw(t, "machines"),
			Nodes: []gpu.Node{{Name: "n1", NotReady: rapid.Bool().Draw(t, "not ready")}},
		}
		r, ok := Diagnose(e, Subject{Kind: "device", Namespace: "acme", Name: "train"})
		if !ok || len(r.Chains) != 1 {
			t.Fatalf("found is %v, %d chains", ok, len(r.Chains))
		}
		var links []Link
		broken := false
		for _, s := range r.Chains[0].Steps {
			links = append(links, s.Link)
			if broken != (s.State == Beyond) {
				t.Fatalf("%s is %s, behind a broken link is %v", s.Link, s.State, broken)
			}
			broken = broken || s.State == Broken
		}
		if !slices.Equal(links, orderLinks()) {
			t.Fatalf("the links are %v", links)
		}
		root := r.Chains[0].Root()
		if broken != (root != nil) {
			t.Fatalf("broken is %v, the root is %v", broken, root)
		}
		for _, f := range r.Findings {
			if root == nil || f != *root && f.Code != "GPU0710" {
				t.Fatalf("%v is found; the root is %v", f, root)
			}
		}
	})
}

// TestTroubledOrders groups what the cluster's orders have in common.
func TestTroubledOrders(t *testing.T) {
	at := time.Unix(10_000, 0)
	long, short := at.Add(-11*time.Minute), at.Add(-9*time.Minute)
	waits := func(name, said string, since time.Time) Device {
		return Device{Namespace: "acme", Name: name, State: "Pending", Ordered: since, Said: said}
	}
	lost := func(name, node string) Device {
		return Device{Namespace: "acme", Name: name, State: "Lost", Ordered: long, Node: node, Resource: string(h200), Lost: long}
	}
	template := Device{Namespace: "acme", Name: "made", Made: true, Ordered: long}
	tests := map[string]struct {
		devices []Device
		want    map[string]Code // by object
	}{
		"nothing is ordered":        {nil, map[string]Code{}},
		"one waits for long":        {[]Device{waits("a", "GPU0705: x", long)}, map[string]Code{"GPUDevice acme/a": "GPU0640"}},
		"one waits for a moment":    {[]Device{waits("a", "GPU0705: x", short)}, map[string]Code{}},
		"two for the same":          {[]Device{waits("a", "GPU0705: x", long), waits("b", "GPU0705: y", long)}, map[string]Code{"GPUDevices": "GPU0640"}},
		"two for different reasons": {[]Device{waits("a", "GPU0705: x", long), waits("b", "GPU0611: y", long)}, map[string]Code{"GPUDevice acme/a": "GPU0640", "GPUDevice acme/b": "GPU0640"}},
		"two are lost on a node":    {[]Device{lost("a", "n1"), lost("b", "n1")}, map[string]Code{"node/n1": "GPU0713"}},
		"two are lost on two":       {[]Device{lost("a", "n1"), lost("b", "n2")}, map[string]Code{"node/n1": "GPU0713", "node/n2": "GPU0713"}},
		"one is being made":         {[]Device{template}, map[string]Code{}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r, _ := Diagnose(&Evidence{At: at, Devices: tc.devices}, Subject{})
			got := map[string]Code{}
			for _, f := range r.Findings {
				got[f.Object] = f.Code
				if f.Severity != Warning {
					t.Errorf("%s is of severity %s", f.Code, f.Severity)
				}
			}
			if len(got) != len(tc.want) {
				t.Fatalf("found %v, want %v", r.Findings, tc.want)
			}
			for object, code := range tc.want {
				if got[object] != code {
					t.Errorf("found %q about %s, want %s", got[object], object, code)
				}
			}
		})
	}
}
