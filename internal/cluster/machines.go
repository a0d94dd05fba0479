package cluster

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/internal/manifest"
)

// machine is a VirtualMachine or an instance as it was read, before the two are
// brought together.
type machine struct {
	vm           diagnose.VM
	instancetype string // "VirtualMachineInstancetype tenant-a/u1": where its GPUs may come from
}

// readMachine reads a VirtualMachine or a VirtualMachineInstance; spec is the path
// of the instance's spec.
func readMachine(f *Facts, d *manifest.Document, spec ...string) {
	m := machine{vm: diagnose.VM{
		Ref:   diagnose.Ref{Kind: d.Kind(), Namespace: d.Meta("namespace"), Name: d.Meta("name")},
		Owner: controller(d), Created: when(d.Meta("creationTimestamp")),
	}}
	v := &m.vm
	for _, field := range []string{"gpus", "hostDevices"} {
		readEntries(v, field, items(d.Object, append(slices.Clone(spec), "domain", "devices", field)))
	}
	for _, list := range []string{"requests", "limits"} {
		keys, _ := manifest.Lookup(d.Object, append(slices.Clone(spec), "domain", "resources", list))
		found, _ := keys.(map[string]any)
		for _, key := range slices.Sorted(maps.Keys(found)) {
			if name := gpu.ResourceName(key); strings.Contains(key, "/") && !slices.Contains(v.Keys, name) {
				v.Keys = append(v.Keys, name)
			}
		}
	}
	switch d.Kind() {
	case "VirtualMachine":
		v.Status = text(d.Object, "status", "printableStatus")
		v.Halted = halted(d)
		m.instancetype = instancetypeOf(d)
	case "VirtualMachinePool", "VirtualMachineInstanceReplicaSet":
		replicas, _ := manifest.Lookup(d.Object, manifest.Path{"spec", "replicas"})
		n, err := quantity(replicas)
		v.Mould, v.Halted = true, err == nil && n == 0
	default:
		v.Phase = text(d.Object, "status", "phase")
		v.Status, v.Node, v.UID = v.Phase, text(d.Object, "status", "nodeName"), d.Meta("uid")
		v.Halted = v.Phase == "Succeeded"
	}
	readReferences(v, d.Object, append(slices.Clone(spec[:len(spec)-1]), "metadata"))
	f.machines = append(f.machines, m)
	readConditions(f, v.Ref, d)
}

// readReferences reads which devices a machine names below the metadata that instances
// get. What is refused when it starts is told as it is then: label or annotation alone.
func readReferences(v *diagnose.VM, object manifest.Object, meta manifest.Path) {
	annotation, annotated := manifest.Lookup(object, append(slices.Clone(meta), "annotations", v1alpha1.AnnotationDevices))
	label, labelled := manifest.Lookup(object, append(slices.Clone(meta), "labels", v1alpha1.LabelDeviceReference))
	switch {
	case !annotated && !labelled:
		return
	case !annotated:
		v.BadOrders = v1alpha1.ErrNoAnnotation.Error()
		return
	case !labelled:
		v.BadOrders = v1alpha1.ErrNoLabel.Error()
		return
	case label != v1alpha1.ValueTrue:
		is, ok := label.(string)
		if is = fmt.Sprintf("%q: write %q", is, v1alpha1.ValueTrue); !ok {
			is = fmt.Sprintf("no string: write %q with its quotes", v1alpha1.ValueTrue)
		}
		v.BadOrders = Scrub("its label " + v1alpha1.LabelDeviceReference + " is " + is)
		return
	}
	written, _ := annotation.(string)
	r, err := v1alpha1.DecodeReferences(written)
	if err != nil {
		v.BadOrders = Scrub(err.Error())
		return
	}
	v.Orders = r.Devices
	for _, t := range r.Templates {
		v.Templates = append(v.Templates, diagnose.Template{Class: t.Class, Count: int64(t.Count)})
	}
}

// halted reports a VirtualMachine that is not meant to run. One that is started by hand
// is Stopped also while KubeVirt cannot carry the request out.
func halted(d *manifest.Document) bool {
	running, _ := manifest.Lookup(d.Object, manifest.Path{"spec", "running"})
	switch strategy := text(d.Object, "spec", "runStrategy"); {
	case running == false, strategy == "Halted":
		return true
	case strategy != "Manual" || text(d.Object, "status", "printableStatus") != "Stopped":
		return false
	}
	return !slices.ContainsFunc(items(d.Object, []string{"status", "stateChangeRequests"}), func(item any) bool {
		request, _ := item.(map[string]any)
		return request["action"] == "Start"
	})
}

// goodEntryName is what KubeVirt lets pass and libvirt can use as an alias.
var goodEntryName = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// readEntries reads the gpus or hostDevices of a machine. An entry without a device
// name takes its device from a resource claim.
func readEntries(v *diagnose.VM, field string, entries []any) {
	seen := map[string]bool{}
	for i, item := range entries {
		entry, _ := item.(map[string]any)
		name, _ := entry["name"].(string)
		device, _ := entry["deviceName"].(string)
		switch {
		case device != "":
			v.Devices = append(v.Devices, gpu.Device{Field: field, Name: gpu.ResourceName(device)})
		case entry["claimName"] != nil || entry["requestName"] != nil:
			v.Claims = append(v.Claims, fmt.Sprintf("%s %q", field, name))
		}
		where := fmt.Sprintf("%s[%d].name", field, i)
		switch {
		case strings.Contains(name, "."):
			v.BadName = append(v.BadName, fmt.Sprintf("%s %q has a dot, which crashes virt-launcher", where, name))
		case name != "" && !goodEntryName.MatchString(name):
			v.BadName = append(v.BadName, fmt.Sprintf("%s %q has other characters than letters, digits, - and _", where, name))
		case name != "" && seen[name]:
			v.BadName = append(v.BadName, fmt.Sprintf("%s %q is used twice", where, name))
		}
		seen[name] = true
	}
}

func instancetypeOf(d *manifest.Document) string {
	name, kind := text(d.Object, "spec", "instancetype", "name"), strings.ToLower(text(d.Object, "spec", "instancetype", "kind"))
	switch {
	case name == "":
		return ""
	case strings.HasPrefix(kind, "virtualmachineinstancetype"):
		return "VirtualMachineInstancetype " + d.Meta("namespace") + "/" + name
	default:
		return "VirtualMachineClusterInstancetype " + name
	}
}

// joinMachines brings each VirtualMachine together with its instance: what the
// instance asks for is what KubeVirt works on.
func joinMachines(f *Facts) {
	types := map[string]gpu.Workload{}
	for _, w := range f.Workloads {
		types[w.Ref()] = w
	}
	at := map[string]int{}
	for _, m := range f.machines {
		if t, ok := types[m.instancetype]; ok {
			m.vm.Devices = append(m.vm.Devices, t.Devices...)
		}
		if m.vm.Mould {
			f.VMs = append(f.VMs, m.vm)
		}
		if m.vm.Kind == "VirtualMachine" {
			at[m.vm.Namespace+"/"+m.vm.Name] = len(f.VMs)
			f.VMs = append(f.VMs, m.vm)
		}
	}
	for _, m := range f.machines {
		if m.vm.Kind == "VirtualMachine" || m.vm.Mould {
			continue
		}
		i, ok := at[m.vm.Namespace+"/"+m.vm.Name]
		if !ok {
			f.VMs = append(f.VMs, m.vm)
			continue
		}
		v := &f.VMs[i]
		v.Phase, v.Node, v.Created, v.UID = m.vm.Phase, m.vm.Node, m.vm.Created, m.vm.UID
		v.Devices, v.Claims, v.BadName, v.Keys = m.vm.Devices, m.vm.Claims, m.vm.BadName, m.vm.Keys
		if v.Live() { // references of a machine apply at its next start
			v.Renamed = !slices.Equal(v.Orders, m.vm.Orders) || !slices.Equal(v.Templates, m.vm.Templates)
			v.Orders, v.Templates, v.BadOrders = m.vm.Orders, m.vm.Templates, m.vm.BadOrders
		}
		v.Halted = v.Halted && m.vm.Phase == "" // it is being stopped, and holds its devices
	}
	slices.SortFunc(f.VMs, func(a, b diagnose.VM) int { return strings.Compare(a.String(), b.String()) })
}

// readConditions takes what the conditions of an object say is wrong.
func readConditions(f *Facts, about diagnose.Ref, d *manifest.Document) {
	for _, item := range items(d.Object, []string{"status", "conditions"}) {
		c, _ := item.(map[string]any)
		f.condition(about, c)
	}
}

// condition takes one condition: one that is false, or a failure.
func (f *Facts) condition(about diagnose.Ref, c map[string]any) {
	kind, _ := c["type"].(string)
	status, _ := c["status"].(string)
	reason, _ := c["reason"].(string)
	message, _ := c["message"].(string)
	if message == "" || (status == "True") != (kind == "Failure") {
		return
	}
	f.Messages = append(f.Messages, diagnose.Message{
		About: about, Source: "condition " + kind, Reason: reason, Text: f.scrub(message),
	})
}

// readEvent takes an Event of the core group or of events.k8s.io.
func readEvent(f *Facts, d *manifest.Document) error {
	about := first(d.Object, "involvedObject", "regarding")
	message, _ := first(d.Object, "message", "note").(string)
	ref, _ := about.(map[string]any)
	kind, _ := ref["kind"].(string)
	namespace, _ := ref["namespace"].(string)
	name, _ := ref["name"].(string)
	reason := text(d.Object, "reason")
	at := when(text(d.Object, "lastTimestamp"))
	if at.IsZero() {
		at = when(text(d.Object, "eventTime"))
	}
	f.Events = append(f.Events, Happening{
		About: diagnose.Ref{Kind: kind, Namespace: namespace, Name: name}, Reason: reason,
		By: text(d.Object, "reportingController") + text(d.Object, "reportingComponent"), Text: f.scrub(message), At: at,
	})
	if text(d.Object, "type") != "Normal" {
		f.Messages = append(f.Messages, diagnose.Message{
			About: diagnose.Ref{Kind: kind, Namespace: namespace, Name: name}, Source: "event " + reason, Reason: reason, Text: f.scrub(message), At: at,
		})
	}
	return nil
}

// Happening is one Event, whether it tells of trouble or not.
type Happening struct {
	About            diagnose.Ref
	Reason, By, Text string
	At               time.Time
}

// Conditions takes pasted conditions, which are no Kubernetes objects, out of what
// was skipped.
func (f *Facts) Conditions(skipped []manifest.Skipped) (rest []manifest.Skipped) {
	for _, s := range skipped {
		kind, _ := s.Object["type"].(string)
		_, hasStatus := s.Object["status"].(string)
		if kind == "" || !hasStatus {
			rest = append(rest, s)
			continue
		}
		f.condition(diagnose.Ref{}, s.Object)
	}
	return rest
}

func first(obj manifest.Object, keys ...string) any {
	for _, key := range keys {
		if v := obj[key]; v != nil {
			return v
		}
	}
	return nil
}

func items(obj manifest.Object, path []string) []any {
	v, _ := manifest.Lookup(obj, path)
	list, _ := v.([]any)
	return list
}

func text(obj manifest.Object, path ...string) string {
	v, _ := manifest.Lookup(obj, path)
	s, _ := v.(string)
	return s
}

// when reads a timestamp; one that is missing or odd is the zero time.
func when(s string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return time.Time{}
	}
	return t
}
