package cluster

import (
	"encoding/json"
	"fmt"
	"maps"
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
	if at, text, found := endless(o["spec"]); found {
		return diagnose.EndlessQuantity(object, "spec"+at, text)
	}
	return nil
}

// endless finds such a quantity in a value: where it is, and its text; of several in a
// mapping the first by its key.
func endless(v any) (at, text string, found bool) {
	switch v := v.(type) {
	case string:
		return "", v, gpu.Endless(v)
	case json.Number:
		return "", v.String(), gpu.Endless(v.String())
	case map[string]any:
		first := ""
		for key, value := range v {
			if below, t, ok := endless(value); ok && (!found || key < first) {
				first, at, text, found = key, "."+key+below, t, true
			}
		}
	case []any:
		for i := range v {
			if below, t, ok := endless(v[i]); ok {
				return fmt.Sprintf("[%d]%s", i, below), t, true
			}
		}
	}
	return at, text, found
}

// tame returns an object, or a copy of it in whose spec what is [gpu.Endless] is no more
// than a little beyond an int64: one pod of a tenant's must not keep an operator from
// looking at all others.
func tame(o manifest.Object) manifest.Object {
	if _, _, found := endless(o["spec"]); !found {
		return o
	}
	out := maps.Clone(o)
	out["spec"] = manifest.Map(o["spec"], func(scalar any) any {
		switch _, text, found := endless(scalar); {
		case !found:
			return scalar
		case strings.HasPrefix(text, "-"):
			return "-1"
		}
		return "10E"
	})
	return out
}

// reckonable returns a pod, or a copy of it that requests no more of anything than beyond.
// The API server stores what it can compare with zero before it gives up, and that takes
// it a second.
func reckonable(p *corev1.Pod) *corev1.Pod {
	usual := true
	eachList(p, func(list corev1.ResourceList) {
		for _, q := range list {
			usual = usual && !boundless(q)
		}
	})
	if usual {
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
