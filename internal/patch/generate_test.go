package patch

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/internal/manifest"
)

// The generators draw from few ids and names, so that collisions are common.
var (
	someIDs   = []gpu.DeviceID{0x2335, 0x20b1, 0x20f1, 0x24fa, 0x3182, 0x26b9, 0x1eb8}
	someNames = []string{
		"nvidia.com/GH100_H200_SXM_141GB", "nvidia.com/GA100_A100_PCIE_40GB", "nvidia.com/3182", "nvidia.com/AD102GL_L40S",
		"nvidia.com/TU104GL_TESLA_T4", "nvidia.com/TU104GL_Tesla_T4", "nvidia.com/gpu", "nvidia.com/GRID_T4-16Q", "nvidia.com/GRID_T4-8Q", "nvidia.com/CUSTOM",
		"intel.com/qat", "nvidia-a100", "nvidia.com /X", "nvidia.com/GA102_HIGH_DEFINITION_AUDIO_CONTROLLER", "nvidia.com/2335",
	}
	someMdevs     = []string{"GRID T4-16Q", "GRID_T4-16Q", "GRID T4-8Q", "grid t4-8q", "nvidia-231"}
	someSelectors = []string{"10DE:2335", "10de:20b1", "10DE:20F1", "10de:26b9,10de:1eb8", "8086:*", "", "10DE:1EB8", "10DE:26B9"}
	someGates     = []string{"GPU", "HostDevices", "hostDevices", "LiveMigration", "gpu "}
	someNodes     = []string{"a", "b", "c", ""}
)

func drawEntry(t *rapid.T, key string) any {
	selectors := someSelectors
	if key == "mdevNameSelector" {
		selectors = someMdevs
	}
	e := manifest.Object{key: rapid.SampledFrom(selectors).Draw(t, "selector"), "resourceName": rapid.SampledFrom(someNames).Draw(t, "name")}
	switch rapid.IntRange(0, 3).Draw(t, "external") {
	case 0:
		e["externalResourceProvider"] = true
	case 1:
		e["externalResourceProvider"] = false
	}
	if rapid.IntRange(0, 9).Draw(t, "off") == 0 {
		e["disabled"] = true
	}
	if rapid.IntRange(0, 9).Draw(t, "stray") == 0 {
		e["fromTheFuture"] = manifest.Object{"x": []any{"y"}}
	}
	return e
}

// maybe sets a key to a drawn value, to null, or not at all.
func maybe(t *rapid.T, m manifest.Object, key string, value func() any) {
	switch rapid.IntRange(0, 5).Draw(t, key) {
	case 0:
	case 1:
		m[key] = nil
	default:
		m[key] = value()
	}
}

func drawList(t *rapid.T, label string, item func() any) []any {
	out := []any{}
	for range rapid.IntRange(0, 4).Draw(t, label) {
		out = append(out, item())
	}
	return out
}

func drawKubeVirt(t *rapid.T) manifest.Object {
	object := func(fill func(manifest.Object)) func() any {
		return func() any {
			m := manifest.Object{}
			fill(m)
			return m
		}
	}
	entry := func() any { return drawEntry(t, "pciVendorSelector") }
	table := object(func(m manifest.Object) {
		maybe(t, m, "pciHostDevices", func() any { return drawList(t, "pci", entry) })
		maybe(t, m, "mediatedDevices", func() any {
			return drawList(t, "mdev", func() any { return drawEntry(t, "mdevNameSelector") })
		})
		if rapid.Bool().Draw(t, "gpus") {
			m["gpus"] = drawList(t, "gpus", entry)
		}
	})
	dev := object(func(m manifest.Object) {
		maybe(t, m, "featureGates", func() any {
			return drawList(t, "gates", func() any { return rapid.SampledFrom(someGates).Draw(t, "gate") })
		})
		m["logVerbosity"] = manifest.Object{"virtAPI": "3"}
	})
	obj := manifest.Object{"apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", "metadata": manifest.Object{"name": "kubevirt", "namespace": "kv"}}
	maybe(t, obj["metadata"].(manifest.Object), "annotations", object(func(m manifest.Object) { m["theirs"] = "x" }))
	maybe(t, obj, "spec", object(func(spec manifest.Object) {
		maybe(t, spec, "configuration", object(func(c manifest.Object) {
			maybe(t, c, "permittedHostDevices", table)
			maybe(t, c, "developerConfiguration", dev)
			maybe(t, c, "mediatedDevicesConfiguration", func() any { return drawMdevConfig(t) })
		}))
		if rapid.Bool().Draw(t, "misplaced") {
			spec["permittedHostDevices"] = table()
		}
	}))
	if rapid.Bool().Draw(t, "version") {
		obj["status"] = manifest.Object{"observedKubeVirtVersion": rapid.SampledFrom([]string{"v1.8.4", "v1.9.0"}).Draw(t, "kubevirt")}
	}
	return obj
}

func drawMdevConfig(t *rapid.T) any {
	types := func(label string) any {
		return drawList(t, label, func() any {
			return rapid.SampledFrom([]string{"nvidia-231", "GRID_T4-8Q", "nvidia-592"}).Draw(t, "type")
		})
	}
	m := manifest.Object{"mediatedDeviceTypes": types("types")}
	if rapid.IntRange(0, 4).Draw(t, "switch") == 0 {
		m["enabled"] = rapid.Bool().Draw(t, "enabled")
	}
	if rapid.Bool().Draw(t, "perNode") {
		m["nodeMediatedDeviceTypes"] = []any{manifest.Object{"nodeSelector": manifest.Object{"a": "b"}, "mediatedDevicesTypes": types("old")}}
	}
	return m
}

func drawHyperConverged(t *rapid.T) manifest.Object {
	version := rapid.SampledFrom([]string{"v1", "v1beta1"}).Draw(t, "version")
	entries := drawList(t, "pci", func() any { return drawEntry(t, "pciDeviceSelector") })
	lists := manifest.Object{"pciHostDevices": entries}
	maybe(t, lists, "mediatedDevices", func() any {
		return drawList(t, "mdev", func() any { return drawEntry(t, "mdevNameSelector") })
	})
	table := manifest.Object{"permittedHostDevices": lists}
	maybe(t, table, "mediatedDevicesConfiguration", func() any { return drawMdevConfig(t) })
	spec := table
	if version == "v1" {
		spec = manifest.Object{"virtualization": table}
	}
	return manifest.Object{
		"apiVersion": "hco.kubevirt.io/" + version, "kind": "HyperConverged",
		"metadata": manifest.Object{"name": "hco", "namespace": "kv"}, "spec": spec,
	}
}

func drawHost(t *rapid.T, node string) gpu.Host {
	h := gpu.Host{Node: node}
	for i := range rapid.IntRange(0, 6).Draw(t, "functions") {
		f := gpu.Function{
			Address: gpu.Address{Bus: uint8(16 + i)},
			ID:      gpu.NVIDIA(rapid.SampledFrom(someIDs).Draw(t, "id")),
			Class:   rapid.SampledFrom([]gpu.Class{0x030200, 0x030000, 0x040300, 0x068000}).Draw(t, "class"),
			Driver:  rapid.SampledFrom([]gpu.Driver{"vfio-pci", "nvidia", "", "nvgrace_gpu_vfio_pci"}).Draw(t, "driver"),
			VF:      rapid.IntRange(0, 5).Draw(t, "vf") == 0,
		}
		switch g := rapid.IntRange(-2, 3).Draw(t, "group"); {
		case g == -1:
			f.Group = gpu.NoGroup()
		case g >= 0:
			f.Group = gpu.InGroup(g)
		}
		if f.VF && rapid.Bool().Draw(t, "vgpu") {
			f.Driver, f.CurrentVGPU = "nvidia", rapid.SampledFrom([]string{"1148", "1150", "GRID T4-16Q"}).Draw(t, "current")
		}
		f.VGPUTypes = []gpu.VGPUType{{ID: 1148, Name: "NVIDIA L40S-2Q"}}
		h.Functions = append(h.Functions, f)
	}
	for i := range rapid.IntRange(0, 2).Draw(t, "mdevs") {
		m := rapid.SampledFrom([]gpu.MdevType{{ID: "nvidia-231", Name: "GRID T4-16Q"}, {ID: "nvidia-230", Name: "GRID T4-8Q"}, {ID: "nvidia-9"}, {ID: "i915-GVTg_V5_4"}}).Draw(t, "mdev")
		h.Mdevs = append(h.Mdevs, gpu.Mdev{UUID: fmt.Sprint(node, i), TypeID: m.ID, TypeName: m.Name, Parent: gpu.Address{Bus: 16}})
	}
	return h
}

func drawNode(t *rapid.T, name string) gpu.Node {
	n := gpu.Node{Name: name, Labels: map[string]string{}, Allocatable: map[gpu.ResourceName]int64{}}
	for range rapid.IntRange(0, 3).Draw(t, "resources") {
		n.Allocatable[gpu.ResourceName(rapid.SampledFrom(someNames).Draw(t, "resource"))] = rapid.Int64Range(0, 4).Draw(t, "count")
	}
	if rapid.IntRange(0, 3).Draw(t, "plugin") == 0 {
		n.Plugin = rapid.SampledFrom([]gpu.Release{{Major: 1, Minor: 2, Patch: 10}, {Major: 1, Minor: 4}}).Draw(t, "release")
	}
	return n
}

func drawInput(t *rapid.T) Input {
	object := drawKubeVirt(t)
	if rapid.IntRange(0, 3).Draw(t, "hco") == 0 {
		object = drawHyperConverged(t)
	}
	in := Input{Target: Target{Document: manifest.Document{Object: object}}}
	for _, node := range someNodes {
		if rapid.Bool().Draw(t, "host") {
			in.Hosts = append(in.Hosts, drawHost(t, node))
		}
		if node != "" && rapid.Bool().Draw(t, "node") {
			in.Nodes = append(in.Nodes, drawNode(t, node))
		}
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "workloads") {
		in.Workloads = append(in.Workloads, gpu.Workload{
			Kind: "VirtualMachine", Namespace: "t", Name: fmt.Sprint("vm", i),
			Devices: []gpu.Device{{Field: "gpus", Name: gpu.ResourceName(rapid.SampledFrom(someNames).Draw(t, "device"))}},
		})
	}
	for range rapid.IntRange(0, 2).Draw(t, "permits") {
		in.Permits = append(in.Permits, Permit{
			ID: gpu.NVIDIA(rapid.SampledFrom(someIDs).Draw(t, "permit")), Name: gpu.ResourceName(rapid.SampledFrom(someNames).Draw(t, "as")),
		})
	}
	if rapid.IntRange(0, 4).Draw(t, "permitted type") == 0 {
		in.Permits = append(in.Permits, Permit{Mdev: "GRID T4-16Q", Name: gpu.ResourceName(rapid.SampledFrom(someNames).Draw(t, "as"))})
	}
	return in
}

// planOf plans in, or says that it was refused.
func planOf(t *rapid.T, in Input) (Result, bool) {
	result, err := Plan(in)
	if err == nil {
		return result, true
	}
	var refusal *Refusal
	if !asRefusal(err, &refusal) {
		t.Fatalf("Plan() = %v", err)
	}
	if len(refusal.Findings) == 0 || refusal.Error() == "" {
		t.Fatalf("a refusal without a reason: %+v", refusal)
	}
	return Result{}, false
}

func with(in Input, object manifest.Object) Input {
	in.Target.Object = object
	return in
}

// TestGeneratorsReach guards the properties: they say nothing if the drawn plans
// are all refused, or all empty.
func TestGeneratorsReach(t *testing.T) {
	planned, refused, changed := 0, 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		result, ok := planOf(rt, drawInput(rt))
		switch {
		case !ok:
			refused++
		case len(result.Changes) > 1:
			changed++
			planned++
		default:
			planned++
		}
	})
	if planned < 10 || refused < 5 || changed < 10 {
		t.Errorf("%d planned, %d of them with several changes, %d refused: the generators miss the mark", planned, changed, refused)
	}
}
