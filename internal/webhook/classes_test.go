package webhook

import (
	"context"
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/internal/diagnose"
)

// shelf is a Reader.
type shelf struct {
	classes map[string]*v1alpha1.GPUClass
	labels  map[string]string
	err     error
}

func (s shelf) GPUClass(_ context.Context, name string) (*v1alpha1.GPUClass, error) {
	return s.classes[name], s.err
}

func (s shelf) NamespaceLabels(context.Context, string) (map[string]string, error) {
	if s.labels == nil {
		return nil, errors.New("no labels")
	}
	return s.labels, nil
}

func TestClasses(t *testing.T) {
	class := func(resource, entitlement string) *v1alpha1.GPUClass {
		return &v1alpha1.GPUClass{Spec: v1alpha1.GPUClassSpec{ResourceName: resource, MaxCount: 4, Entitlement: entitlement}}
	}
	going := class("nvidia.com/GH100_H200_SXM_141GB", "")
	going.DeletionTimestamp = &metav1.Time{}
	classes := map[string]*v1alpha1.GPUClass{
		"h200": class("nvidia.com/GH100_H200_SXM_141GB", ""), "ours": class("nvidia.com/GH100_H200_SXM_141GB", "ours"), "going": going,
		"vgpu": class("nvidia.com/GRID_T4-16Q", ""), "licensed": class("nvidia.com/GRID_T4-16Q", "ours"),
	}
	entitled, stranger := map[string]string{"gpuctl.dev/entitlement.ours": "true"}, map[string]string{"gpuctl.dev/entitlement.ours": "yes", "gpuctl.dev/entitlement.": "true"}
	for name, tc := range map[string]struct {
		class  string
		count  int32
		labels map[string]string
		err    error
		want   diagnose.Code // "" allowed
	}{
		"most":                       {"h200", 4, nil, nil, ""},
		"too many":                   {"h200", 5, nil, nil, "GPU0623"},
		"no class":                   {"nothing", 1, nil, nil, "GPU0620"},
		"a class that goes":          {"going", 1, nil, nil, "GPU0621"},
		"vGPUs for nobody":           {"vgpu", 1, entitled, nil, "GPU0622"},
		"vGPUs for us":               {"licensed", 4, entitled, nil, ""},
		"vGPUs for others":           {"licensed", 1, stranger, nil, "GPU0612"},
		"entitled":                   {"ours", 4, entitled, nil, ""},
		"entitled, too many":         {"ours", 5, entitled, nil, "GPU0623"},
		"not entitled":               {"ours", 1, stranger, nil, "GPU0612"},
		"a class nobody can read":    {"h200", 1, nil, errors.New("timed out"), "GPU0601"},
		"a namespace without labels": {"ours", 1, nil, nil, "GPU0601"},
	} {
		t.Run(name, func(t *testing.T) {
			err := Classes{shelf{classes, tc.labels, tc.err}}.Admit(t.Context(), Order{"acme", "train", tc.class, tc.count})
			switch {
			case tc.want == "" && err != nil:
				t.Error(err)
			case tc.want != "" && err == nil:
				t.Error("it is allowed")
			case tc.want != "":
				if r := diagnose.Refused(err, "GPUDevice acme/train"); r.Code != tc.want || r.Object != "GPUDevice acme/train" {
					t.Errorf("refused by %s of %s, want %s", r.Code, r.Object, tc.want)
				}
			}
		})
	}
}
