package starts

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/test/cluster"
)

func (s *stage) instances(resource string) dynamic.ResourceInterface {
	return s.Dynamic().Resource(schema.GroupVersionResource{Group: "kubevirt.io", Version: "v1", Resource: resource}).Namespace(s.tenant)
}

// vm is a VM of one GPU that is set to run.
func (s *stage) vm(i int, devices bool) *unstructured.Unstructured {
	template := map[string]any{"metadata": map[string]any{}, "spec": map[string]any{
		"terminationGracePeriodSeconds": int64(0),
		"domain": map[string]any{
			"devices":   map[string]any{},
			"resources": map[string]any{"requests": map[string]any{"memory": "64Mi"}},
		},
	}}
	if devices {
		template["metadata"] = map[string]any{
			"labels":      map[string]any{v1alpha1.LabelDeviceReference: v1alpha1.ValueTrue},
			"annotations": map[string]any{v1alpha1.AnnotationDevices: `{"templates":[{"class":"h200"}]}`},
		}
	} else {
		template["spec"].(map[string]any)["domain"].(map[string]any)["devices"] = map[string]any{"gpus": []any{map[string]any{"name": "gpu", "deviceName": h200}}}
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": map[string]any{"name": fmt.Sprintf("vm-%03d", i), "namespace": s.tenant},
		"spec": map[string]any{"runStrategy": "Always", "template": template},
	}}
}

// tally counts writes by what is written.
type tally map[string]int

func (t tally) add(r cluster.Request) {
	if r.DryRun {
		return
	}
	what := r.Verb + " " + r.Resource
	if r.Subresource != "" {
		what += "/" + r.Subresource
	}
	if r.Resource == "configmaps" {
		what += " " + r.Name
	}
	if r.Code >= 300 {
		what += fmt.Sprintf(" (%d)", r.Code)
	}
	t[what]++
}

// per says how many of each there are for one of n.
func (t tally) per(n int) string {
	text := ""
	for _, what := range slices.Sorted(maps.Keys(t)) {
		text += fmt.Sprintf("\n  %-40s %.3f", what, float64(t[what])/float64(n))
	}
	return text
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

func spread(values []float64) string {
	return fmt.Sprintf("%.1f [%.1f..%.1f]", median(values), slices.Min(values), slices.Max(values))
}

// load returns the load averages, where Linux says them.
func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(text))[:3], " ")
}
