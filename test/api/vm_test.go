package api

import (
	"path"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The API server takes what the example chart renders, each field of it, and so do the
// policies.
func TestVMChart(t *testing.T) {
	c := served(t)
	ns := c.Namespace()
	enforce(t, c, "policies/references.yaml")
	enforce(t, c, "policies/devices.yaml")
	for name, values := range map[string]map[string]any{
		"without GPUs": {},
		"with GPUs": {
			"gpus": map[string]any{
				"orders":    []any{map[string]any{"name": "a", "class": "h200", "count": 4}},
				"devices":   []any{"kept"},
				"templates": []any{map[string]any{"class": "h200"}},
			},
			"cloudInit": map[string]any{"userData": "#cloud-config"},
		},
		"of an instancetype": {
			"instancetype": map[string]any{"name": "u1.xlarge"}, "preference": map[string]any{"name": "ubuntu"}, "disk": map[string]any{"persistentVolumeClaim": "root"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var kinds []string
			for file, content := range render(t, "gpu-vm", ns, values) {
				if path.Ext(file) != ".yaml" {
					continue
				}
				for document := range strings.SplitSeq("\n"+content, "\n---") {
					if strings.TrimSpace(document) == "" {
						continue
					}
					u := c.Decode(document)
					kinds = append(kinds, u.GetKind())
					if _, err := c.Resource(u).Create(t.Context(), u, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: "Strict"}); err != nil {
						t.Errorf("%v\n%s", err, document)
					}
				}
			}
			if !strings.Contains(strings.Join(kinds, " "), "VirtualMachine") {
				t.Errorf("there is no VM: %q", kinds)
			}
		})
	}
}
