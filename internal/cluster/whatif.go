package cluster

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/internal/manifest"
)

// The kinds of KubeVirt that are looked at here.
const (
	kindVM  = "VirtualMachine"
	kindVMI = "VirtualMachineInstance"
)

// ByName returns documents in which devices, VMs and instances are told apart by
// namespace and name, as [BooksOf] does it: a bundle has no UIDs. What is not changed is
// shared.
func ByName(docs []manifest.Document) []manifest.Document {
	out := slices.Clone(docs)
	for i := range out {
		d := &out[i]
		switch d.Kind() {
		case kindVM, kindVMI, "GPUDevice":
			d.Object, _ = manifest.DeepCopy(d.Object).(manifest.Object)
			rename(d)
		}
	}
	return out
}

func rename(d *manifest.Document) {
	in := d.Meta("namespace") + "/"
	at := func(path ...string) map[string]any {
		v, _ := manifest.Lookup(d.Object, path)
		m, _ := v.(map[string]any)
		return m
	}
	if meta := at("metadata"); meta != nil {
		meta["uid"] = in + d.Meta("name")
	}
	for _, item := range items(d.Object, []string{"metadata", "ownerReferences"}) {
		if owner, _ := item.(map[string]any); owner["kind"] == kindVM {
			owner["uid"] = in + text(owner, "name")
		}
	}
	if vm := at("status", "origin", "vm"); vm != nil {
		vm["uid"] = in + text(vm, "name")
	}
	if a := at("status", "attachment"); a != nil {
		for _, key := range []string{"vmiUID", "vmUID"} { // an instance has the name of its VM
			if text(a, key) != "" {
				a[key] = in + text(a, "vmiName")
			}
		}
	}
}

// Named is an object of a namespace.
type Named struct{ Namespace, Name string }

// String returns "namespace/name".
func (n Named) String() string { return n.Namespace + "/" + n.Name }

// Stop returns the documents as they were if the instances had ended: they and their
// launchers are gone, and their devices are held for nobody. It takes documents of
// [ByName].
func Stop(docs []manifest.Document, vmis map[Named]bool) []manifest.Document {
	if len(vmis) == 0 {
		return docs
	}
	var out []manifest.Document
	for _, d := range docs {
		self := Named{d.Meta("namespace"), d.Meta("name")}
		switch d.Kind() {
		case kindVMI:
			if vmis[self] {
				continue
			}
		case "Pod":
			if vmis[launchedOf(&d)] {
				continue
			}
		case "GPUDevice":
			if vmis[Named{self.Namespace, text(d.Object, "status", "attachment", "vmiName")}] {
				d = released(d)
			}
		}
		out = append(out, d)
	}
	return out
}

// released is a device that was given back.
func released(d manifest.Document) manifest.Document {
	d.Object, _ = manifest.DeepCopy(d.Object).(manifest.Object)
	status, _ := d.Object["status"].(map[string]any)
	delete(status, "attachment")
	delete(status, "bindRequest")
	return d
}

// launchedOf returns the instance whose launcher a pod is.
func launchedOf(d *manifest.Document) Named {
	var pod corev1.Pod
	if typed(d, &pod) != nil {
		return Named{}
	}
	owner := metav1.GetControllerOf(&pod)
	if owner == nil || owner.Kind != kindVMI {
		return Named{}
	}
	return Named{pod.Namespace, owner.Name}
}

// Drain returns the documents as they were if nodes were cordoned and the instances there
// had ended, and those instances, sorted. It takes documents of [ByName].
func Drain(docs []manifest.Document, nodes []string) (after []manifest.Document, ended []Named) {
	gone := map[Named]bool{}
	for i := range docs {
		d := &docs[i]
		if vmi, node := runsOn(d); vmi.Name != "" && slices.Contains(nodes, node) {
			gone[vmi] = true
		}
	}
	after = slices.Clone(Stop(docs, gone))
	for i := range after {
		if d := &after[i]; d.Kind() == "Node" && slices.Contains(nodes, d.Meta("name")) {
			d.Object = cordoned(d.Object)
		}
	}
	for vmi := range gone {
		ended = append(ended, vmi)
	}
	slices.SortFunc(ended, compareNamed)
	return after, ended
}

func cordoned(node manifest.Object) manifest.Object {
	out := maps.Clone(node)
	spec, _ := node["spec"].(map[string]any)
	if spec = maps.Clone(spec); spec == nil {
		spec = map[string]any{}
	}
	spec["unschedulable"], out["spec"] = true, spec
	return out
}

// runsOn returns the instance that a document tells the node of.
func runsOn(d *manifest.Document) (vmi Named, node string) {
	switch d.Kind() {
	case kindVMI:
		if Over(text(d.Object, "status", "phase")) {
			return vmi, ""
		}
		return Named{d.Meta("namespace"), d.Meta("name")}, text(d.Object, "status", "nodeName")
	case "Pod":
		return launchedOf(d), text(d.Object, "spec", "nodeName")
	case "GPUDevice":
		if name := text(d.Object, "status", "attachment", "vmiName"); name != "" {
			return Named{d.Meta("namespace"), name}, text(d.Object, "status", "placement", "node")
		}
	}
	return vmi, ""
}

// Running returns the node on which an instance runs or starts; false where it does
// neither.
func Running(docs []manifest.Document, vmi Named) (node string, runs bool) {
	for i := range docs {
		if found, on := runsOn(&docs[i]); found == vmi && docs[i].Kind() != "Pod" {
			if runs = true; on != "" {
				return on, true
			}
		}
	}
	return "", runs
}

// MadeFor returns the devices that were made from the templates of a VM, in the order of
// the documents.
func MadeFor(docs []manifest.Document, vm Named) (out []*v1alpha1.GPUDevice) {
	for i := range docs {
		d := &docs[i]
		if d.Kind() != "GPUDevice" || d.Meta("namespace") != vm.Namespace || text(d.Object, "status", "origin", "vm", "name") != vm.Name {
			continue
		}
		device := &v1alpha1.GPUDevice{}
		if typed(d, device) == nil {
			out = append(out, device)
		}
	}
	return out
}
