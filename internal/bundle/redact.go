package bundle

import (
	"maps"
	"slices"
	"strings"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/internal/cluster"
	"github.com/gpuctl/gpuctl/internal/manifest"
)

// kept lists the fields of each kind that a bundle carries, beside the names in its
// metadata. Lists are gone into item by item. A field ending in * is kept whole, one
// ending in / keeps the keys that have a slash: extended resources.
var kept = map[string][]string{
	"Node": {
		"spec.unschedulable", "status.capacity/", "status.allocatable/", "status.conditions.type", "status.conditions.status",
	},
	"GPUNode":                          {"spec.*"},
	"VirtualMachine":                   append(devices("spec.template.spec"), "spec.running", "spec.runStrategy", "spec.instancetype.name", "spec.instancetype.kind", "status.printableStatus", "status.stateChangeRequests.action", "status.conditions.*"),
	"VirtualMachineInstance":           append(devices("spec"), "status.phase", "status.nodeName", "status.conditions.*"),
	"VirtualMachineInstanceReplicaSet": append(devices("spec.template.spec"), "spec.replicas"),
	"VirtualMachineInstancePreset":     devices("spec"),
	"VirtualMachinePool":               append(devices("spec.virtualMachineTemplate.spec.template.spec"), "spec.replicas"),
	"VirtualMachineInstancetype":       entries("spec"), "VirtualMachineClusterInstancetype": entries("spec"),
	"Pod": append(append(containers("spec.containers"), containers("spec.initContainers")...),
		"spec.nodeName", "spec.resources.requests/", "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms.matchFields.*",
		"status.phase", "status.reason", "status.message", "status.conditions.*",
		"status.containerStatuses.name", "status.containerStatuses.restartCount", "status.containerStatuses.ready", "status.containerStatuses.state.waiting.*",
		"status.containerStatuses.state.terminated.reason", "status.containerStatuses.state.terminated.exitCode", "status.containerStatuses.state.running.startedAt",
		"status.initContainerStatuses.name", "status.initContainerStatuses.restartCount", "status.initContainerStatuses.ready", "status.initContainerStatuses.state.waiting.*",
		"status.initContainerStatuses.state.terminated.reason", "status.initContainerStatuses.state.terminated.exitCode"),
	"DaemonSet":  append(containers("spec.template.spec.containers"), "status.observedGeneration", "status.desiredNumberScheduled"),
	"Deployment": {"spec.replicas", "status.readyReplicas"}, // of the controller
	"Lease":      {"spec.renewTime", "spec.leaseDurationSeconds"},
	"GPUWiring":  {"status.target", "status.lastWrite", "status.reverts.time", "status.reverts.manager", "status.reverts.lost", "status.conditions.*"},
	"GPUDevice": {
		"metadata.finalizers", "spec.className", "spec.count", "status.state", "status.origin.kind", "status.origin.vm.name", "status.placement.*",
		"status.attachment.vmiName", "status.attachment.vmiUID", "status.attachment.since", "status.bindRequest.answer.refusal.*", "status.conditions.*",
	},
	"GPUClass":               {"spec.*"},
	"Namespace":              {},
	"ResourceQuota":          {"spec.hard.*"},
	"HierarchyConfiguration": {"status.conditions.type", "status.conditions.status"},
	"HelmRelease":            {"spec.values.resourceQuotas.*"}, // of Cozystack's tenants
	"DeviceClass":            {"spec.extendedResourceName"},
	"Event": {
		"involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "regarding.kind", "regarding.namespace", "regarding.name",
		"reason", "type", "message", "note", "lastTimestamp", "eventTime", "reportingController", "reportingComponent",
	},
	"KubeVirt":       {"status.phase", "status.observedKubeVirtVersion"},
	"HyperConverged": {},
}

// tables are the fields of a KubeVirt CR or a HyperConverged that are kept wherever
// they stand: one in the wrong place is a finding.
var tables = []string{
	"permittedHostDevices", "pciHostDevices", "mediatedDevices", "usbHostDevices", "nodeMediatedDeviceTypes",
	"developerConfiguration", "featureGates", "disabledFeatureGates",
}

// references is where the metadata with a machine's references to devices is.
var references = map[string]string{
	"VirtualMachine": "spec.template.metadata", "VirtualMachineInstance": "metadata", "VirtualMachineInstanceReplicaSet": "spec.template.metadata",
	"VirtualMachinePool": "spec.virtualMachineTemplate.spec.template.metadata",
}

// metadata is kept of every object.
var metadata = []string{
	"metadata.name", "metadata.namespace", "metadata.uid", "metadata.generation", "metadata.creationTimestamp", "metadata.deletionTimestamp",
	"metadata.ownerReferences.apiVersion", "metadata.ownerReferences.kind", "metadata.ownerReferences.name", "metadata.ownerReferences.uid", "metadata.ownerReferences.controller",
}

func entries(at string) []string {
	var out []string
	for _, field := range []string{"gpus", "hostDevices"} {
		for _, key := range []string{"name", "deviceName", "claimName", "requestName"} {
			out = append(out, at+"."+field+"."+key)
		}
	}
	return out
}

// devices are the fields of an instance's spec that ask for devices.
func devices(at string) []string {
	return append(entries(at+".domain.devices"), at+".domain.resources.requests/", at+".domain.resources.limits/")
}

func containers(at string) []string {
	return []string{at + ".name", at + ".image", at + ".restartPolicy", at + ".resources.requests/", at + ".resources.limits/"}
}

// labels says which labels are kept: those that decide what runs where.
func labels(key string) bool {
	for _, prefix := range []string{
		"kubevirt.io", "vm.kubevirt.io/", "gpuctl.dev/", "app.kubernetes.io/", "nvidia.com/gpu.present", "nvidia.com/gpu.workload.config",
		"nvidia.com/gpu.deploy.", "feature.node.kubernetes.io/pci-", "kubernetes.io/arch", "kubernetes.io/os", "kubernetes.io/hostname",
	} {
		if strings.HasPrefix(key, prefix) {
			return true
		}
	}
	return false
}

// redact returns what a bundle carries of an object; ok is false for a kind that it
// does not carry at all.
// Labels of namespaces are kept where tenants are selected by them.
func redact(d *manifest.Document, tenants map[string]bool) (out manifest.Object, ok bool) {
	fields, ok := kept[d.Kind()]
	if d.Kind() == "ConfigMap" {
		return configMap(d)
	}
	if !ok || d.Kind() == "Deployment" && !cluster.IsController(d) || d.Kind() == "HelmRelease" && !strings.HasPrefix(d.Meta("name"), "tenant-") {
		return nil, false
	}
	out = manifest.Object{"apiVersion": d.APIVersion(), "kind": d.Kind()}
	for _, field := range slices.Concat(metadata, fields) {
		copyField(out, d.Object, strings.Split(field, "."))
	}
	if at, ok := references[d.Kind()]; ok {
		copyField(out, d.Object, append(strings.Split(at, "."), "annotations", v1alpha1.AnnotationDevices))
		copyField(out, d.Object, append(strings.Split(at, "."), "labels", v1alpha1.LabelDeviceReference))
	}
	keepLabels(out, d.Object, func(key string) bool {
		return labels(key) || d.Kind() == "Namespace" && (tenants[key] || treeLabel(key))
	})
	switch d.Kind() {
	case "Namespace":
		copyField(out, d.Object, []string{"metadata", "annotations", "hnc.x-k8s.io/subnamespace-of"})
	case "KubeVirt", "HyperConverged":
		if spec := onlyTables(d.Object["spec"]); spec != nil {
			out["spec"] = spec
		}
		copyField(out, d.Object, []string{"metadata", "annotations", "gpuctl.dev/wired"})
	case "Pod", "DaemonSet":
		shortImages(out)
	case "Lease":
		keepHolder(out, d.Object)
	}
	return out, true
}

// keepHolder keeps the pod that holds a Lease, without the UUID behind its name.
func keepHolder(to, from manifest.Object) {
	v, _ := manifest.Lookup(from, manifest.Path{"spec", "holderIdentity"})
	identity, told := v.(string)
	if spec, ok := to["spec"].(map[string]any); ok && told {
		pod, _, _ := strings.Cut(identity, "_")
		spec["holderIdentity"] = cluster.Scrub(pod)
	}
}

// treeLabel reports a label that says where a namespace stands in the tree.
func treeLabel(key string) bool {
	return key == "kubernetes.io/metadata.name" || strings.Contains(key, "hnc.x-k8s.io/")
}

// configMap keeps gpuctl's settings, and of KubeVirt's old ConfigMap its keys.
func configMap(d *manifest.Document) (manifest.Object, bool) {
	if d.Meta("name") != v1alpha1.SettingsName {
		return legacy(d)
	}
	out := manifest.Object{"apiVersion": "v1", "kind": "ConfigMap"}
	for _, field := range []string{"metadata.name", "metadata.namespace", "data.tenants", "data.provider", "data.resourceNames"} {
		copyField(out, d.Object, strings.Split(field, "."))
	}
	return out, true
}

// legacy keeps the keys of KubeVirt's old ConfigMap, whose content nobody reads.
func legacy(d *manifest.Document) (manifest.Object, bool) {
	if d.Meta("name") != "kubevirt-config" {
		return nil, false
	}
	data, _ := d.Object["data"].(map[string]any)
	keys := map[string]any{}
	for _, key := range []string{"feature-gates", "permittedHostDevices"} {
		if _, there := data[key]; there {
			keys[key] = "[hidden]"
		}
	}
	return manifest.Object{
		"apiVersion": "v1", "kind": "ConfigMap", "data": keys,
		"metadata": map[string]any{"name": d.Meta("name"), "namespace": d.Meta("namespace")},
	}, true
}

// copyField copies one field of the list, if it is there.
func copyField(to, from map[string]any, path []string) {
	key := path[0]
	bare, slashes := strings.CutSuffix(key, "/")
	v, there := from[bare]
	switch {
	case key == "*":
		for k, v := range from {
			to[k] = cleaned(v)
		}
	case !there:
	case slashes:
		m, _ := v.(map[string]any)
		to[bare] = withSlash(m)
	case len(path) == 1:
		to[key] = cleaned(v)
	default:
		goInto(to, key, v, path[1:])
	}
}

func goInto(to map[string]any, key string, v any, path []string) {
	switch t := v.(type) {
	case map[string]any:
		next, ok := to[key].(map[string]any)
		if !ok {
			next = map[string]any{}
			to[key] = next
		}
		copyField(next, t, path)
	case []any:
		list, ok := to[key].([]any)
		if !ok {
			list = make([]any, len(t))
			for i := range list {
				list[i] = map[string]any{}
			}
			to[key] = list
		}
		for i := range t {
			item, _ := t[i].(map[string]any)
			next, _ := list[i].(map[string]any)
			copyField(next, item, path)
		}
	}
}

// withSlash keeps the extended resources among a map's keys.
func withSlash(m map[string]any) map[string]any {
	out := map[string]any{}
	for k, v := range m {
		if strings.Contains(k, "/") {
			out[k] = cleaned(v)
		}
	}
	return out
}

// cleaned returns a value whose texts carry no secrets.
func cleaned(v any) any {
	return manifest.Map(v, func(scalar any) any {
		if text, ok := scalar.(string); ok {
			return cluster.Scrub(text)
		}
		return scalar
	})
}

func keepLabels(to, from manifest.Object, wanted func(key string) bool) {
	meta, _ := from["metadata"].(map[string]any)
	all, _ := meta["labels"].(map[string]any)
	some := map[string]any{}
	for key, v := range all {
		if wanted(key) {
			some[key] = cleaned(v)
		}
	}
	if m, ok := to["metadata"].(map[string]any); ok && len(some) > 0 {
		m["labels"] = some
	}
}

// onlyTables keeps the tables of a spec, at their places.
func onlyTables(v any) any {
	m, ok := v.(map[string]any)
	if !ok {
		return nil
	}
	out := map[string]any{}
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if slices.Contains(tables, key) {
			out[key] = cleaned(m[key])
		} else if below := onlyTables(m[key]); below != nil {
			out[key] = below
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// shortImages leaves of images what tells their release: the registry says where
// somebody's mirror is.
func shortImages(v any) {
	switch t := v.(type) {
	case map[string]any:
		if image, ok := t["image"].(string); ok {
			t["image"] = image[strings.LastIndexByte(image, '/')+1:]
		}
		for _, below := range t {
			shortImages(below)
		}
	case []any:
		for _, item := range t {
			shortImages(item)
		}
	}
}
