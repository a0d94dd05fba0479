package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/internal/manifest"
)

// CheckQuantities refuses an object that has a quantity in its spec which nobody can reckon
// with, see [gpu.Endless]. It is asked before the object is read as a Go type: that may
// take as long. The error is a *diagnose.Refusal of what is called object.
func CheckQuantities(object string, o manifest.Object) error {
	if at, text := endless("spec", o["spec"]); at != "" {
		return diagnose.EndlessQuantity(object, at, text)
	}
	return nil
}

// endless finds such a quantity below a path; at is "" where there is none.
func endless(path string, v any) (at, text string) {
	switch v := v.(type) {
	case string:
		if gpu.Endless(v) {
			return path, v
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if at, text = endless(path+"."+key, v[key]); at != "" {
				return at, text
			}
		}
	case []any:
		for i := range v {
			if at, text = endless(fmt.Sprintf("%s[%d]", path, i), v[i]); at != "" {
				return at, text
			}
		}
	}
	return "", ""
}

// tame returns an object, or a copy of it in whose spec what is [gpu.Endless] is no more
// than a little beyond an int64: one pod of a tenant's must not keep an operator from
// looking at all others.
func tame(o manifest.Object) manifest.Object {
	if !untamed(o["spec"]) {
		return o
	}
	out := maps.Clone(o)
	out["spec"] = tamed(o["spec"])
	return out
}

func untamed(v any) bool {
	switch v := v.(type) {
	case string:
		return gpu.Endless(v)
	case map[string]any:
		for _, value := range v {
			if untamed(value) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, untamed)
	}
	return false
}

func tamed(v any) any {
	switch v := v.(type) {
	case string:
		switch {
		case !gpu.Endless(v):
		case strings.HasPrefix(v, "-"):
			return "-1"
		default:
			return "10E"
		}
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, value := range v {
			out[key] = tamed(value)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = tamed(v[i])
		}
		return out
	}
	return v
}

// reckonable returns a pod, or a copy of it that requests no more of anything than beyond.
// The API server stores what it can compare with zero before it gives up, and that takes
// it a second.
func reckonable(p *corev1.Pod) *corev1.Pod {
	tame := true
	eachList(p, func(list corev1.ResourceList) {
		for _, q := range list {
			tame = tame && !boundless(q)
		}
	})
	if tame {
		return p
	}
	out := p.DeepCopy()
	eachList(out, func(list corev1.ResourceList) {
		for name, q := range list {
			if boundless(q) {
				list[name] = *resource.NewQuantity(max(0, int64(q.Sign())*beyond), q.Format)
			}
		}
	})
	return out
}

// eachList calls do for each list by which a pod is taken to request something.
func eachList(p *corev1.Pod, do func(corev1.ResourceList)) {
	do(p.Spec.Overhead)
	if p.Spec.Resources != nil {
		do(p.Spec.Resources.Requests)
		do(p.Spec.Resources.Limits)
	}
	for _, containers := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range containers {
			do(containers[i].Resources.Requests)
			do(containers[i].Resources.Limits)
		}
	}
	for _, statuses := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for i := range statuses {
			do(statuses[i].AllocatedResources)
			if r := statuses[i].Resources; r != nil {
				do(r.Requests)
				do(r.Limits)
			}
		}
	}
}

// boundless is [gpu.Endless] of a quantity that was read already.
func boundless(q resource.Quantity) bool {
	if !q.IsZero() { // of none with an exponent AsInt64 multiplies that often
		if _, whole := q.AsInt64(); whole {
			return false
		}
	}
	const digits, bits = 1000, 512
	d := q.AsDec()
	return d.Scale() <= -digits || d.Scale() >= digits || d.UnscaledBig().BitLen() > bits
}
