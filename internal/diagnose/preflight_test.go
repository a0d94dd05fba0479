package diagnose

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPreflight(t *testing.T) {
	good := func(change func(*Preflight)) Preflight {
		p := Preflight{
			Major: 1, Minor: 37, Server: "v1.37.2", Variant: "passthrough",
			KubeVirt: &KubeVirt{Ref: "KubeVirt kubevirt/kubevirt", Phase: "Deployed", Version: "v1.8.4"},
			Operator: &GPUOperator{Name: "cluster-policy", Sandbox: true, DefaultWorkload: "vm-passthrough"},
		}
		change(&p)
		return p
	}
	tests := map[string]struct {
		facts Preflight
		want  []Code
	}{
		"all well":                  {good(func(*Preflight) {}), nil},
		"the oldest Kubernetes":     {good(func(p *Preflight) { p.Minor = 30 }), nil},
		"an older Kubernetes":       {good(func(p *Preflight) { p.Minor = 29 }), []Code{"GPU0120"}},
		"no KubeVirt":               {good(func(p *Preflight) { p.KubeVirt = nil }), []Code{"GPU0121"}},
		"KubeVirt being deployed":   {good(func(p *Preflight) { p.KubeVirt.Phase = "Deploying" }), []Code{"GPU0122"}},
		"an old KubeVirt":           {good(func(p *Preflight) { p.KubeVirt.Version = "v1.4.2" }), []Code{"GPU0123"}},
		"a KubeVirt to come":        {good(func(p *Preflight) { p.KubeVirt.Version = "v1.10.0" }), []Code{"GPU0123"}},
		"a version that is unknown": {good(func(p *Preflight) { p.KubeVirt.Version = "" }), nil},
		"HyperConverged":            {good(func(p *Preflight) { p.KubeVirt.HyperConverged = true }), []Code{"GPU0124"}},
		"no gpu-operator":           {good(func(p *Preflight) { p.Operator = nil }), []Code{"GPU0125"}},
		"containers":                {good(func(p *Preflight) { p.Operator.Sandbox = false }), []Code{"GPU0126"}},
		"no default workload":       {good(func(p *Preflight) { p.Operator.DefaultWorkload = "" }), []Code{"GPU0126"}},
		"another variant":           {good(func(p *Preflight) { p.Variant = "vgpu" }), []Code{"GPU0126"}},
		"vgpu both":                 {good(func(p *Preflight) { p.Variant, p.Operator.DefaultWorkload = "vgpu", "vm-vgpu" }), nil},
		"containers both":           {good(func(p *Preflight) { p.Variant, p.Operator.Sandbox = "container", false }), nil},
		"not allowed":               {good(func(p *Preflight) { p.Denied = []Permission{{Verb: "create", Resource: "secrets", Namespace: "n"}} }), []Code{"GPU0127"}},
		"somebody else's CRDs":      {good(func(p *Preflight) { p.CRDOwner = "a/b" }), []Code{"GPU0128"}},
		"errors first":              {good(func(p *Preflight) { p.KubeVirt, p.CRDOwner, p.Unknown = nil, "a/b", []string{"x"} }), []Code{"GPU0128", "GPU0121", "GPU0129"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var got []Code
			for _, f := range tc.facts.Findings() {
				got = append(got, f.Code)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}
