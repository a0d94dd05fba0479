package cluster

import (
	"fmt"
	"slices"

	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/internal/manifest"
)

// workload returns a reader of a kind whose devices stand at a path.
func workload(devices ...string) reader {
	return func(f *Facts, d *manifest.Document) error {
		f.HasVMs = f.HasVMs || d.Kind() == "VirtualMachine" || d.Kind() == "VirtualMachineInstance"
		w := gpu.Workload{Kind: d.Kind(), Namespace: d.Meta("namespace"), Name: d.Meta("name"), Owner: controller(d)}
		for _, field := range []string{"gpus", "hostDevices"} {
			names, err := deviceNames(d.Object, append(slices.Clone(devices), field))
			if err != nil {
				return err
			}
			for _, name := range names {
				w.Devices = append(w.Devices, gpu.Device{Field: field, Name: name})
			}
		}
		phase, _ := manifest.Lookup(d.Object, manifest.Path{"status", "phase"})
		if d.Kind() == "VirtualMachineInstance" {
			w.Running = phase == "Scheduled" || phase == "Running"
			w.Active = phase != "Succeeded" && phase != "Failed"
		}
		if len(w.Devices) > 0 {
			f.Workloads = append(f.Workloads, w)
		}
		return nil
	}
}

// machines returns a reader of VirtualMachines or their instances, whose spec stands
// at a path.
func machines(spec ...string) reader {
	asWorkload := workload(append(slices.Clone(spec), "domain", "devices")...)
	return func(f *Facts, d *manifest.Document) error {
		if err := asWorkload(f, d); err != nil {
			return err
		}
		readMachine(f, d, spec...)
		return nil
	}
}

// deviceNames returns the deviceName of every entry at a path. Entries without
// one are backed by a resource claim and are not checked against the table.
func deviceNames(obj manifest.Object, path manifest.Path) ([]gpu.ResourceName, error) {
	v, _ := manifest.Lookup(obj, path)
	items, ok := v.([]any)
	if !ok && v != nil {
		return nil, fmt.Errorf("%s is no list", path)
	}
	var out []gpu.ResourceName
	for i, item := range items {
		m, ok := item.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("%s[%d] is no mapping", path, i)
		}
		if name, _ := m["deviceName"].(string); name != "" {
			out = append(out, gpu.ResourceName(name))
		}
	}
	return out, nil
}

// controller names the object that controls d, "" when none of another kind does.
func controller(d *manifest.Document) string {
	v, _ := manifest.Lookup(d.Object, manifest.Path{"metadata", "ownerReferences"})
	refs, _ := v.([]any)
	for _, r := range refs {
		if ref, _ := r.(map[string]any); ref["controller"] == true {
			return fmt.Sprintf("%v %v", ref["kind"], ref["name"])
		}
	}
	return ""
}
