package wiring

import (
	"encoding/json"
	"testing"

	"github.com/gpuctl/gpuctl/internal/manifest"
)

// managed returns an object with managedFields in JSON.
func managed(t *testing.T, fields string) manifest.Object {
	t.Helper()
	var list []any
	if err := json.Unmarshal([]byte("["+fields+"]"), &list); err != nil {
		t.Fatal(err)
	}
	return manifest.Object{"metadata": map[string]any{"managedFields": list}}
}

func TestCulprit(t *testing.T) {
	const (
		table  = `{"f:spec":{"f:configuration":{"f:permittedHostDevices":{"f:pciHostDevices":{}}}}}`
		hco    = `{"f:spec":{"f:virtualization":{"f:permittedHostDevices":{}}}}`
		gates  = `{"f:spec":{"f:configuration":{"f:developerConfiguration":{"f:featureGates":{}}}}}`
		others = `{"f:spec":{"f:imagePullPolicy":{}}}`
		none   = `{}`
	)
	m := func(name, op, at, fields string) string {
		return `{"manager":"` + name + `","operation":"` + op + `","time":"2026-01-01T12:00:` + at + `Z","fieldsV1":` + fields + `}`
	}
	status := `{"manager":"virt-operator","operation":"Update","subresource":"status","time":"2026-01-01T12:00:59Z","fieldsV1":{"f:status":{}}}`
	us := m(Manager, "Update", "00", table)
	tests := map[string]struct{ before, after, want string }{
		"nobody":                               {us, us, ""},
		"we alone":                             {us, m(Manager, "Update", "30", none), ""},
		"who took the list over":               {us, m("helm", "Update", "10", table), "helm"},
		"with HyperConverged":                  {us, m("argocd", "Apply", "10", hco), "argocd"},
		"who was there and wrote again":        {us + "," + m("helm", "Update", "01", gates), m("helm", "Update", "10", gates), "helm"},
		"who has the list, not who is later":   {us, m("kubectl-edit", "Update", "10", table) + "," + m("labeller", "Update", "11", others), "kubectl-edit"},
		"a labeller is no culprit":             {us, us + "," + m("labeller", "Update", "11", others), ""},
		"the later of two":                     {us, m("one", "Update", "10", table) + "," + m("two", "Update", "11", gates), "two"},
		"status is somebody else's":            {us, us + "," + status, ""},
		"an apply that left the fields out":    {us + "," + m("flux", "Apply", "01", table), us + "," + m("flux", "Apply", "10", others), "flux"},
		"an apply that left everything out":    {us + "," + m("flux", "Apply", "01", table), us, "flux"},
		"an update that only took fields away": {us + "," + m("helm", "Update", "01", others), m("helm", "Update", "01", others), ""},
		"who ran gpuctl wire --remove":         {us, m("gpuctl", "Update", "10", gates), "gpuctl"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := culprit(managersOf(managed(t, tc.before)), managersOf(managed(t, tc.after))); got != tc.want {
				t.Errorf("culprit is %q, want %q", got, tc.want)
			}
		})
	}
}
