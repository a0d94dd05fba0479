package api

import (
	"fmt"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const templateDevice = `labels: {gpuctl.dev/template-device: "true"}`

// The label of template devices is gpuctl's, to set and to take away.
func TestTemplateDeviceLabel(t *testing.T) {
	c := served(t)
	stored := map[string]*unstructured.Unstructured{
		"order":    store(t, c, device("name: label-order", "{className: h200}")),
		"template": store(t, c, device("name: label-template, "+templateDevice, "{className: h200}")),
	}
	enforce(t, c, "policies/devices.yaml")
	const want = "label gpuctl.dev/template-device is on devices that gpuctl makes for a VM"
	label := func(value string) string {
		return `{"metadata":{"labels":{"gpuctl.dev/template-device":` + value + `}}}`
	}
	tryAll(t, c, stored, map[string]deed{
		"an order":              {by: tenant, create: device("name: made", "{className: h200}")},
		"an order with a label": {by: tenant, create: device("name: made, labels: {a: b}", "{className: h200}")},
		"a template device":     {by: tenant, create: device("name: made, "+templateDevice, "{className: h200}"), want: want},
		"an empty label":        {by: tenant, create: device(`name: made, labels: {gpuctl.dev/template-device: ""}`, "{className: h200}"), want: want},
		"by KubeVirt":           {by: virtController, create: device("name: made, "+templateDevice, "{className: h200}"), want: want},
		"adding it":             {by: tenant, stored: "order", patch: label(`"true"`), want: want},
		"adding it empty":       {by: tenant, stored: "order", patch: label(`""`), want: want},
		"changing it":           {by: tenant, stored: "template", patch: label(`"false"`), want: want},
		"dropping it":           {by: tenant, stored: "template", patch: label("null"), want: want},
		"another label":         {by: tenant, stored: "template", patch: `{"metadata":{"labels":{"a":"b"}}}`},
		"deleting it":           {by: tenant, stored: "template", delete: true},
	})
}

// gpuctl's own account makes and deletes devices of templates, and of a VM it may change
// an annotation.
func TestControllersDevicesAndVMs(t *testing.T) {
	c := served(t)
	ns := c.Namespace()
	const id = "annotations: {gpuctl.dev/request-id: " + `"` + r1 + `"}`
	const units = "finalizers: [gpuctl.dev/units]"
	vm := templated["VirtualMachine"].object
	stored := map[string]*unstructured.Unstructured{
		"order":    store(t, c, device("name: own-order", "{className: h200}")),
		"template": store(t, c, device("name: own-template, "+templateDevice, "{className: h200}")),
		"vm":       store(t, c, fmt.Sprintf(vm, ns, "vm", "{}")),
	}
	enforce(t, c, "controller/rbac.yaml")
	enforce(t, c, "controller/policy.yaml")
	enforce(t, c, "policies/devices.yaml")
	const (
		templates = "may create a GPUDevice of a template only"
		nudged    = "of a VirtualMachine the gpuctl controller may change annotation gpuctl.dev/nudged only"
	)
	made := func(metadata, want string) deed {
		return deed{by: controller, create: device("name: made, "+metadata, "{className: h200}"), want: want}
	}
	changed := func(patch, want string) deed { return deed{by: controller, stored: "vm", patch: patch, want: want} }
	tryAll(t, c, stored, map[string]deed{
		"a template device":         made(templateDevice+", "+units+", "+id, ""),
		"an order":                  made("labels: {a: b}, "+units+", "+id, templates),
		"one without a finalizer":   made(templateDevice+", "+id, templates),
		"one with another's":        made(templateDevice+", finalizers: [gpuctl.dev/units, example.com/mine], "+id, templates),
		"one without an id":         made(templateDevice+", "+units, templates),
		"one with more annotations": made(templateDevice+", "+units+`, annotations: {gpuctl.dev/request-id: "1", a: b}`, templates),
		"one with more labels":      made(`labels: {gpuctl.dev/template-device: "true", a: b}, `+units+", "+id, templates),
		"one with an owner":         made(templateDevice+", "+units+", "+id+", ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: a, uid: b}]", templates),
		"deleting it":               {by: controller, stored: "template", delete: true},
		"deleting an order":         {by: controller, stored: "order", delete: true, want: "may delete a GPUDevice of a template only"},
		"nudging":                   changed(`{"metadata":{"annotations":{"gpuctl.dev/nudged":"now"}}}`, ""),
		"another annotation":        changed(`{"metadata":{"annotations":{"a":"b"}}}`, nudged),
		"a label":                   changed(`{"metadata":{"labels":{"a":"b"}}}`, nudged),
		"a finalizer":               changed(`{"metadata":{"finalizers":["example.com/mine"]}}`, nudged),
		"an owner":                  changed(`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"a","uid":"b"}]}}`, nudged),
		"starting it":               changed(`{"spec":{"runStrategy":"Always"}}`, nudged),
		"its references":            changed(`{"spec":{"template":{"metadata":{"labels":{"gpuctl.dev/device-reference":"true"}}}}}`, nudged),
		"deleting the VM":           {by: controller, stored: "vm", delete: true, want: "cannot delete"},
		"a VM of its own":           {by: controller, create: fmt.Sprintf(vm, ns, "made", "{}"), want: "cannot create"},
		"somebody else's finalizer": {by: tenant, stored: "vm", patch: `{"metadata":{"finalizers":["example.com/mine"]}}`},
	})
}

// pod returns a pod in YAML; nothing acts on it.
func pod(ns, name, metadata string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata: {namespace: " + ns + ", name: " + name + ", " + metadata + "}\nspec: {containers: [{name: main, image: example}]}"
}

// virt-controller takes a pod for a launcher by its controller's UID and the label
// kubevirt.io: nobody else makes one.
func TestLaunchersAreVirtControllers(t *testing.T) {
	c := served(t)
	ns := c.Namespace()
	c.ServiceAccount(ns, "default")
	c.ServiceAccount("default", "kubevirt-controller", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"create"}},
		rbacv1.PolicyRule{APIGroups: []string{"kubevirt.io"}, Resources: []string{"virtualmachineinstances", "virtualmachines"}, Verbs: []string{"*"}})
	owner := func(apiVersion, kind, more string) string {
		return "ownerReferences: [{apiVersion: " + apiVersion + ", kind: " + kind + ", name: vm, uid: 0b5f3a52-8e0a-4c8e-a3a1-f0c54a6a7c52" + more + "}]"
	}
	const (
		controls    = ", controller: true"
		watched     = "labels: {kubevirt.io: virt-launcher}"
		replicaSets = "system:serviceaccount:kube-system:replicaset-controller"
		want        = "pods of a VirtualMachineInstance, and those with label kubevirt.io that have a controller, are made by KubeVirt only"
	)
	launcher := owner("kubevirt.io/v1", "VirtualMachineInstance", controls)
	disguised := owner("apps/v1", "ReplicaSet", controls)
	adds := func(references string) string { return `{"metadata":{"ownerReferences":` + references + `}}` }
	const reference = `[{"apiVersion":%q,"kind":%q,"name":"vm","uid":%q,"controller":true}]`
	const uid = "0b5f3a52-8e0a-4c8e-a3a1-f0c54a6a7c52"
	stored := map[string]*unstructured.Unstructured{
		"plain":     store(t, c, pod(ns, "plain", "labels: {a: b}")),
		"watched":   store(t, c, pod(ns, "watched", watched)),
		"owned":     store(t, c, pod(ns, "owned", disguised)),
		"launcher":  store(t, c, pod(ns, "launcher", watched+", "+launcher)),
		"disguised": store(t, c, pod(ns, "disguised", watched+", "+disguised)),
	}
	enforce(t, c, "policies/launchers.yaml")
	made := func(by, metadata, want string) deed {
		return deed{by: by, create: pod(ns, "made", metadata), want: want}
	}
	patched := func(by, stored, patch, want string) deed {
		return deed{by: by, stored: stored, patch: patch, want: want}
	}
	tryAll(t, c, stored, map[string]deed{
		"virt-controller's":                  made(virtController, watched+", "+launcher, ""),
		"a tenant's":                         made(tenant, watched+", "+launcher, want),
		"of another version":                 made(tenant, watched+", "+owner("kubevirt.io/v1alpha3", "VirtualMachineInstance", controls), want),
		"without the label":                  made(tenant, launcher, want),
		"virt-controller's, elsewhere":       made("system:serviceaccount:elsewhere:kubevirt-controller", watched+", "+launcher, ""),
		"another account of that name":       made(impostor, watched+", "+launcher, want),
		"with a UID under another kind":      made(tenant, watched+", "+disguised, want),
		"ReplicaSets' own":                   made(replicaSets, watched+", "+disguised, ""),
		"ReplicaSets' in an instance's name": made(replicaSets, watched+", "+launcher, want),
		"a pod":                              made(tenant, "labels: {a: b}", ""),
		"a pod with the label":               made(tenant, watched, ""),
		"a pod of somebody else":             made(tenant, disguised, ""),
		"owned, not controlled":              made(tenant, watched+", "+owner("kubevirt.io/v1", "VirtualMachineInstance", ""), ""),
		"another group's kind":               made(tenant, owner("kubevirt.example/v1", "VirtualMachineInstance", controls), ""),
		"becomes a launcher":                 patched(tenant, "plain", adds(fmt.Sprintf(reference, "kubevirt.io/v1", "VirtualMachineInstance", uid)), want),
		"is controlled, with the label":      patched(tenant, "watched", adds(fmt.Sprintf(reference, "v1", "ConfigMap", uid)), want),
		"is given the label":                 patched(tenant, "owned", `{"metadata":{"labels":{"kubevirt.io":"x"}}}`, want),
		"another UID":                        patched(tenant, "disguised", adds(fmt.Sprintf(reference, "apps/v1", "ReplicaSet", "other")), want),
		"is adopted":                         patched(replicaSets, "watched", adds(fmt.Sprintf(reference, "apps/v1", "ReplicaSet", uid)), ""),
		"is adopted by virt-controller":      patched(virtController, "plain", adds(fmt.Sprintf(reference, "kubevirt.io/v1", "VirtualMachineInstance", uid)), ""),
		"a launcher's label":                 patched(tenant, "launcher", `{"metadata":{"labels":{"a":"b"}}}`, ""),
		"a launcher is let go":               patched(tenant, "launcher", adds("null"), ""),
		"what was there before":              patched(tenant, "disguised", `{"metadata":{"labels":{"a":"b"}}}`, ""),
		"a launcher is deleted":              {by: tenant, stored: "launcher", delete: true},
	})
	system := deed{by: tenant, create: pod(metav1.NamespaceSystem, "made", watched+", "+launcher)}
	c.ServiceAccount(metav1.NamespaceSystem, "default")
	tryAll(t, c, nil, map[string]deed{"in a system namespace": system})
}
