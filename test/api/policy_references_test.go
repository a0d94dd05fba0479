package api

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// What of an object's metadata refers to devices.
const (
	refLabel = `labels: {gpuctl.dev/device-reference: "true"}`
	refNames = `annotations: {gpuctl.dev/devices: '{"devices":["train-a"]}'}`
	refBoth  = refLabel + ", " + refNames
)

// templated are KubeVirt's kinds with a template, each as YAML that lacks namespace, name
// and the template's metadata; and where that is.
var templated = map[string]struct{ object, path string }{
	"VirtualMachine":                   {"apiVersion: kubevirt.io/v1\nkind: VirtualMachine\nmetadata: {namespace: %s, name: %s}\nspec: {runStrategy: Halted, template: {metadata: %s, spec: {domain: {devices: {}}}}}", "spec.template.metadata"},
	"VirtualMachineInstanceReplicaSet": {"apiVersion: kubevirt.io/v1\nkind: VirtualMachineInstanceReplicaSet\nmetadata: {namespace: %s, name: %s}\nspec: {selector: {}, template: {metadata: %s, spec: {domain: {devices: {}}}}}", "spec.template.metadata"},
	"VirtualMachinePool":               {"apiVersion: pool.kubevirt.io/v1beta1\nkind: VirtualMachinePool\nmetadata: {namespace: %s, name: %s}\nspec: {selector: {}, virtualMachineTemplate: {spec: {runStrategy: Halted, template: {metadata: %s, spec: {domain: {devices: {}}}}}}}", "spec.virtualMachineTemplate.spec.template.metadata"},
}

// Label and annotation are on an instance together, when it is made, and stay.
func TestInstanceReferences(t *testing.T) {
	c := served(t)
	ns := c.Namespace()
	stored := map[string]*unstructured.Unstructured{}
	for name, metadata := range map[string]string{
		"with":    `labels: {gpuctl.dev/device-reference: "true"}, annotations: {gpuctl.dev/devices: '{"devices":["train-a"]}', gpuctl.dev/request-id: "` + r1 + `"}`,
		"without": "labels: {a: b}",
		"half":    refLabel, // made before there was a policy
	} {
		stored[name] = store(t, c, vmi(ns, "name: "+name+", "+metadata))
	}
	enforce(t, c, "policies/references.yaml")
	const (
		together = `label gpuctl.dev/device-reference: "true" and annotation gpuctl.dev/devices belong together: set both in metadata, or neither`
		stay     = "of an instance stay as they are: change the devices in spec.template.metadata of its VM"
		label    = `{"metadata":{"labels":{"gpuctl.dev/device-reference":%s}}}`
		names    = `{"metadata":{"annotations":{"gpuctl.dev/devices":%s}}}`
		id       = `{"metadata":{"annotations":{"gpuctl.dev/request-id":%s}}}`
	)
	made := func(metadata, want string) deed {
		return deed{by: tenant, create: vmi(ns, "name: made, "+metadata), want: want}
	}
	set := func(stored, patch, value, want string) deed {
		return deed{by: virtController, stored: stored, patch: fmt.Sprintf(patch, value), want: want}
	}
	tryAll(t, c, stored, map[string]deed{
		"both":                     made(refBoth, ""),
		"neither":                  made("labels: {a: b}, annotations: {c: d}", ""),
		"no metadata but the name": made("", ""),
		"the label alone":          made(refLabel, together),
		"the annotation alone":     made(refNames, together),
		"another label":            made(`labels: {gpuctl.dev/device-reference: "yes"}, `+refNames, together),
		"an empty label":           made(`labels: {gpuctl.dev/device-reference: ""}`, together),
		"an id of nothing":         made(`annotations: {gpuctl.dev/request-id: "`+r1+`"}`, "annotation gpuctl.dev/request-id is written by gpuctl only"),
		"an id as the webhook":     made(`labels: {gpuctl.dev/device-reference: "true"}, annotations: {gpuctl.dev/devices: "{}", gpuctl.dev/request-id: "`+r1+`"}`, ""),
		"dropping the label":       set("with", label, "null", stay),
		"changing the label":       set("with", label, `"false"`, stay),
		"dropping the annotation":  set("with", names, "null", stay),
		"changing the annotation":  set("with", names, `"{}"`, stay),
		"dropping the id":          set("with", id, "null", stay),
		"changing the id":          set("with", id, `"`+r2+`"`, stay),
		"adding a label":           set("without", label, `"true"`, stay),
		"adding an annotation":     set("without", names, `"{}"`, stay),
		"adding an id":             set("without", id, `"`+r1+`"`, stay),
		"dropping everything":      set("with", `{"metadata":{"labels":%s,"annotations":null}}`, "null", stay),
		"another label of its own": set("with", `{"metadata":{"labels":{"a":%s}}}`, `"b"`, ""),
		"its finalizer":            set("with", `{"metadata":{"finalizers":[%s]}}`, `"example.com/mine"`, ""),
		"what was there before":    set("half", `{"metadata":{"finalizers":[%s]}}`, `"example.com/mine"`, ""),
		"mending it while it runs": set("half", names, `"{}"`, stay),
	})
}

// So they are on whatever has a template of instances, and may be changed there.
func TestTemplateReferences(t *testing.T) {
	c := served(t)
	ns := c.Namespace()
	stored, deeds := map[string]*unstructured.Unstructured{}, map[string]deed{}
	for kind, k := range templated {
		for name, metadata := range map[string]string{"with": "{" + refBoth + "}", "without": "{}", "half": "{" + refLabel + "}"} {
			stored[kind+" "+name] = store(t, c, fmt.Sprintf(k.object, ns, name, metadata))
		}
		together := "belong together: set both in " + k.path + ", or neither"
		for name, tc := range map[string]struct{ metadata, want string }{
			"both":                  {"{" + refBoth + "}", ""},
			"neither":               {"{labels: {a: b}}", ""},
			"no metadata":           {"null", ""},
			"no labels":             {"{labels: null, annotations: null}", ""},
			"the label alone":       {"{" + refLabel + "}", together},
			"the annotation alone":  {"{" + refNames + "}", together},
			"no labels, annotation": {"{labels: null, " + refNames + "}", together},
			"another label":         {`{labels: {gpuctl.dev/device-reference: "yes"}, ` + refNames + "}", together},
		} {
			deeds[kind+": "+name] = deed{by: tenant, create: fmt.Sprintf(k.object, ns, "made", tc.metadata), want: tc.want}
		}
		for name, tc := range map[string]struct{ stored, metadata, want string }{
			"other devices":         {"with", `{"annotations":{"gpuctl.dev/devices":"{}"}}`, ""},
			"no devices any more":   {"with", `{"labels":{"gpuctl.dev/device-reference":null},"annotations":{"gpuctl.dev/devices":null}}`, ""},
			"devices from now on":   {"without", `{"labels":{"gpuctl.dev/device-reference":"true"},"annotations":{"gpuctl.dev/devices":"{}"}}`, ""},
			"dropping the label":    {"with", `{"labels":{"gpuctl.dev/device-reference":null}}`, together},
			"dropping the names":    {"with", `{"annotations":{"gpuctl.dev/devices":null}}`, together},
			"adding the label":      {"without", `{"labels":{"gpuctl.dev/device-reference":"true"}}`, together},
			"what was there before": {"half", `{"labels":{"a":"b"}}`, ""},
			"worse than before":     {"half", `{"labels":{"gpuctl.dev/device-reference":"no"}}`, together},
			"mended":                {"half", `{"annotations":{"gpuctl.dev/devices":"{}"}}`, ""},
		} {
			patch := `{"spec":{"template":{"metadata":` + tc.metadata + `}}}`
			if kind == "VirtualMachinePool" {
				patch = `{"spec":{"virtualMachineTemplate":` + patch + `}}`
			}
			deeds[kind+": "+name] = deed{by: tenant, stored: kind + " " + tc.stored, patch: patch, want: tc.want}
		}
	}
	enforce(t, c, "policies/references.yaml")
	tryAll(t, c, stored, deeds)
}
