package diagnose

import (
	"fmt"
	"strings"
)

// Preflight is what decides whether gpuctl can be installed.
type Preflight struct {
	Major, Minor int    // of Kubernetes
	Server       string // its version as it says it, "v1.37.2"
	KubeVirt     *KubeVirt
	Operator     *GPUOperator
	Variant      string // gpu.variant of the release
	Denied       []Permission
	CRDOwner     string // another release, "namespace/name", that has installed the CRDs
	Unknown      []string
}

// KubeVirt is the KubeVirt CR of a cluster.
type KubeVirt struct {
	Ref, Phase, Version string
	HyperConverged      bool // one manages it
}

// GPUOperator is gpu-operator's ClusterPolicy.
type GPUOperator struct {
	Name            string
	Sandbox         bool   // sandboxWorkloads.enabled
	DefaultWorkload string // sandboxWorkloads.defaultWorkload
}

// Permission is something that the user may not do.
type Permission struct{ Verb, Resource, Namespace string }

// minimum is the oldest minor release of Kubernetes 1: admission policies are
// stable, and a pod's token carries the node's name.
const minimum = 30

// Findings returns what speaks against an installation; one of severity error
// forbids it.
func (p *Preflight) Findings() []Finding {
	var out []Finding
	if p.Major == 1 && p.Minor < minimum {
		out = append(out, New("GPU0120", "cluster", Values{"version": p.Server, "minimum": fmt.Sprintf("1.%d", minimum)}))
	}
	out = append(out, p.kubeVirt()...)
	out = append(out, p.operator()...)
	for _, d := range p.Denied {
		out = append(out, New("GPU0127", "cluster", Values{"verb": d.Verb, "resource": d.Resource, "where": where(d.Namespace)}))
	}
	if p.CRDOwner != "" {
		out = append(out, New("GPU0128", "cluster", Values{"owner": p.CRDOwner}))
	}
	for _, what := range p.Unknown {
		out = append(out, New("GPU0129", "cluster", Values{"what": what}))
	}
	return Sort(out)
}

func where(namespace string) string {
	if namespace == "" {
		return "in the cluster"
	}
	return "in namespace " + namespace
}

func (p *Preflight) kubeVirt() []Finding {
	kv := p.KubeVirt
	if kv == nil {
		return []Finding{New("GPU0121", "cluster", nil)}
	}
	var out []Finding
	if kv.Phase != "Deployed" {
		phase := kv.Phase
		if phase == "" {
			phase = "not set"
		}
		out = append(out, New("GPU0122", kv.Ref, Values{"kubevirt": kv.Ref, "phase": phase}))
	}
	if kv.Version != "" && !tested(kv.Version) {
		out = append(out, New("GPU0123", kv.Ref, Values{"kubevirt": kv.Ref, "version": kv.Version}))
	}
	if kv.HyperConverged {
		out = append(out, New("GPU0124", kv.Ref, Values{"kubevirt": kv.Ref}))
	}
	return out
}

// tested reports whether a KubeVirt is one of those that gpuctl was made for.
func tested(version string) bool {
	for minor := 5; minor <= 9; minor++ {
		if strings.HasPrefix(strings.TrimPrefix(version, "v"), fmt.Sprintf("1.%d.", minor)) {
			return true
		}
	}
	return false
}

// operator compares gpu-operator's mode with the release's variant.
func (p *Preflight) operator() []Finding {
	op := p.Operator
	if op == nil {
		return []Finding{New("GPU0125", "cluster", nil)}
	}
	want := map[string]string{"passthrough": "vm-passthrough", "vgpu": "vm-vgpu"}[p.Variant]
	have := op.DefaultWorkload
	switch {
	case want == "" && !op.Sandbox, op.Sandbox && have == want:
		return nil
	case !op.Sandbox:
		have = "sandboxWorkloads disabled"
	case have == "":
		have = "container"
	}
	return []Finding{New("GPU0126", "ClusterPolicy "+op.Name, Values{"policy": op.Name, "mode": have, "variant": p.Variant})}
}
