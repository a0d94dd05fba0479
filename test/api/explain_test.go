package api

import (
	"os/exec"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
)

// What people read of the kinds without leaving kubectl.
func TestExplain(t *testing.T) {
	c := served(t)
	for path, want := range map[string][]string{
		"gpuclass":                            {"GPUClass is what the hoster offers under a name"},
		"gpuclass.spec":                       {"maxCount\t<integer>", "how many units one device of the class may have", "-required-", "entitlement\t<string>"},
		"gpuclass.status.units":               {"free\t<integer>", "nobody holds or uses"},
		"gpudevice":                           {"GPUDevice is a tenant's order for units of one class", "It cannot be changed: delete the device"},
		"gpudevice.spec":                      {"className\t<string>", "kubectl get gpuclasses", "count\t<integer>", "1 to 64"},
		"gpudevice.spec.count":                {"They are on one node"},
		"gpudevice.status":                    {"state\t<string>", "enum: Pending, Held, Bound, Attached", "Absent: it is free to be used", "placement\t<Object>"},
		"gpudevice.status.attachment":         {"requestID\t<string> -required-", "It is written once"},
		"gpudevice.status.bindRequest.answer": {"refusal\t<Object>"},
		"gpuusagerecord.spec":                 {"Absent: it lasts", "estimated\t<boolean>", "the first moment", "the namespace that pays"},
	} {
		t.Run(path, func(t *testing.T) {
			out, err := exec.CommandContext(t.Context(), c.Binary("kubectl"), "--kubeconfig", c.Kubeconfig(), "explain", path).CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			t.Logf("%s", out)
			text := strings.Join(strings.Fields(string(out)), " ")
			for _, w := range want {
				if !strings.Contains(text, strings.Join(strings.Fields(w), " ")) {
					t.Errorf("no %q in\n%s", w, out)
				}
			}
		})
	}
}

// kubectl explain breaks lines of more than 76 characters, and keeps the ends of lines
// that there are: a longer one would leave a word alone on the next.
func TestDescriptionsFit(t *testing.T) {
	for name, text := range crds(t) {
		var crd struct {
			Spec struct {
				Versions []struct {
					Schema struct{ OpenAPIV3Schema map[string]any }
				}
			}
		}
		if err := yaml.Unmarshal([]byte(text), &crd); err != nil {
			t.Fatal(err)
		}
		fits(t, name, crd.Spec.Versions[0].Schema.OpenAPIV3Schema)
	}
}

func fits(t *testing.T, path string, schema map[string]any) {
	t.Helper()
	description, _ := schema["description"].(string)
	for line := range strings.SplitSeq(description, "\n") {
		if len(line) > 76 {
			t.Errorf("%s: a line of %d characters: %s", path, len(line), line)
		}
	}
	properties, _ := schema["properties"].(map[string]any)
	for name, p := range properties {
		// The others' texts are Kubernetes' own.
		if p, ok := p.(map[string]any); ok && name != "apiVersion" && name != "kind" {
			if name == "conditions" {
				delete(p, "items")
			}
			fits(t, path+"."+name, p)
		}
	}
	if items, ok := schema["items"].(map[string]any); ok {
		fits(t, path+"[]", items)
	}
}

// What people see of objects in a table.
func TestColumns(t *testing.T) {
	c := served(t)
	create(t, c, class("columns", "{resourceName: nvidia.com/GH100}"))
	create(t, c, device("name: columns", "{className: columns, count: 2}"))
	create(t, c, record(tenantUID+"-columns", "className: columns", "units: 4"))
	for kind, want := range map[string]string{
		"gpuclasses": "NAME RESOURCE TOTAL FREE HELD ATTACHED AVAILABLE AGE columns nvidia.com/GH100",
		"gpudevices": "NAME CLASS COUNT STATE NODE VM AGE columns columns 2",
		"gpuusagerecords": "NAME TENANT CLASS RESOURCE UNITS CONSUMER NODE START END " + tenantUID +
			"-columns acme columns 4 train-a n1 2026-11-30T12:00:00.000001Z",
	} {
		out, err := exec.CommandContext(t.Context(), c.Binary("kubectl"), "--kubeconfig", c.Kubeconfig(), "get", kind, "-n", "default").CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if text := strings.Join(strings.Fields(string(out)), " "); !strings.HasPrefix(text, want) {
			t.Errorf("%s", out)
		}
	}
}

// The keys of budgets and labels are such that the API server takes them, at their
// longest, too.
func TestKeys(t *testing.T) {
	c := served(t)
	longest := strings.Repeat("c", v1alpha1.MaxClassName)
	create(t, c, "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: budget, namespace: default}\nspec:\n  hard:\n    "+
		v1alpha1.BudgetAll+": 8\n    "+v1alpha1.BudgetOfClass(longest)+": 4\n    "+v1alpha1.BudgetOfResource(longName(244))+": 4\n")
	ns := c.Decode("apiVersion: v1\nkind: Namespace\nmetadata: {name: default}")
	changes(t, c, ns, map[string]change{"labels": {patch: `{"metadata":{"labels":{"` + v1alpha1.LabelParent + `":"kube-system","` +
		v1alpha1.LabelEntitlement(strings.Repeat("e", v1alpha1.MaxEntitlement)) + `":"true"}}}`}})
	d := create(t, c, device("name: keys", "{className: h200}"))
	changes(t, c, d, map[string]change{"labels and finalizer": {patch: `{"metadata":{"finalizers":["` + v1alpha1.FinalizerUnits + `"],"labels":{"` +
		v1alpha1.LabelTemplateDevice + `":"true","` + v1alpha1.LabelDeviceReference + `":"true"},"annotations":{"` + v1alpha1.AnnotationDevices + `":"{}"}}}`}})
}
