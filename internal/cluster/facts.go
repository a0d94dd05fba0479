package cluster

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/internal/manifest"
)

// Facts is what a set of objects says about GPUs.
type Facts struct {
	Targets   []manifest.Document // KubeVirt and HyperConverged objects
	Nodes     []gpu.Node          // by name
	Hosts     []gpu.Host          // what node agents have reported
	Workloads []gpu.Workload      // in the order of the documents
	HasVMs    bool                // a VM or an instance is among the documents, with devices or without
	Legacy    []diagnose.Legacy
	VMs       []diagnose.VM // machines and their instances, with devices or without
	Pods      []diagnose.Pod
	Devices   []diagnose.Device
	Messages  []diagnose.Message
	Events    []Happening
	Notes     []string // documents that were not read, "nodepool.yaml:1: …"

	machines []machine
	scrubbed map[string]string // what was scrubbed so far: many objects say the same
	alike    *pool             // of the inventories
}

// scrub is Scrub for texts that come again.
func (f *Facts) scrub(text string) string {
	out, known := f.scrubbed[text]
	if !known {
		if out = Scrub(text); f.scrubbed == nil {
			f.scrubbed = map[string]string{}
		}
		f.scrubbed[text] = out
	}
	return out
}

// reader reads one document into the facts.
type reader func(*Facts, *manifest.Document) error

// readers returns the reader of every kind that is read, by API group and kind.
func readers() map[string]reader {
	ignore := func(*Facts, *manifest.Document) error { return nil }
	target := func(f *Facts, d *manifest.Document) error { f.Targets = append(f.Targets, *d); return nil }
	return map[string]reader{
		"/Node":                          readNode,
		"/Pod":                           readPod,
		"/ConfigMap":                     readConfigMap,
		"/Event":                         readEvent,
		"events.k8s.io/Event":            readEvent,
		"apps/DaemonSet":                 ignore, // read with their pods
		"apps/Deployment":                ignore, // read with their Leases
		"coordination.k8s.io/Lease":      ignore,
		"gpuctl.dev/GPUNode":             readGPUNode,
		"gpuctl.dev/GPUWiring":           ignore, // read with who says it
		"gpuctl.dev/GPUDevice":           readDevice,
		"gpuctl.dev/GPUClass":            ignore, // what follows is read into books
		"/Namespace":                     ignore,
		"/ResourceQuota":                 ignore,
		"resource.k8s.io/DeviceClass":    ignore,
		"kubevirt.io/KubeVirt":           target,
		"hco.kubevirt.io/HyperConverged": target,

		"hnc.x-k8s.io/HierarchyConfiguration":                        ignore,
		"helm.toolkit.fluxcd.io/HelmRelease":                         ignore,
		"kubevirt.io/VirtualMachine":                                 machines("spec", "template", "spec"),
		"kubevirt.io/VirtualMachineInstance":                         machines("spec"),
		"kubevirt.io/VirtualMachineInstanceReplicaSet":               machines("spec", "template", "spec"),
		"kubevirt.io/VirtualMachineInstancePreset":                   workload("spec", "domain", "devices"),
		"pool.kubevirt.io/VirtualMachinePool":                        machines("spec", "virtualMachineTemplate", "spec", "template", "spec"),
		"instancetype.kubevirt.io/VirtualMachineInstancetype":        workload("spec"),
		"instancetype.kubevirt.io/VirtualMachineClusterInstancetype": workload("spec"),
	}
}

// Read collects the facts of the documents. A document of a kind that is not
// read is noted; one that cannot be understood is an error that names file,
// object and field.
func Read(docs []manifest.Document) (Facts, error) {
	var f Facts
	kinds := readers()
	for i := range docs {
		d := &docs[i]
		read, ok := kinds[group(d)+"/"+d.Kind()]
		if !ok || d.Kind() == "Deployment" && !IsController(d) {
			f.Notes = append(f.Notes, fmt.Sprintf("%s:%d: skipped %s: gpuctl does not read this kind%s", d.File, d.Line, d.Ref(), otherGroup(kinds, d)))
			continue
		}
		if err := read(&f, d); err != nil {
			return Facts{}, fmt.Errorf("%s:%d: %s: %w", d.File, d.Line, d.Ref(), err)
		}
	}
	slices.SortFunc(f.Nodes, func(a, b gpu.Node) int { return strings.Compare(a.Name, b.Name) })
	for i := 1; i < len(f.Nodes); i++ {
		if f.Nodes[i].Name == f.Nodes[i-1].Name {
			return Facts{}, fmt.Errorf("the files hold Node %q more than once; give each node once", f.Nodes[i].Name)
		}
	}
	readPlugins(&f, docs)
	joinMachines(&f)
	f.alike = nil
	return f, nil
}

// otherGroup says that gpuctl knows the kind, of another API group.
func otherGroup(kinds map[string]reader, d *manifest.Document) string {
	for _, known := range slices.Sorted(maps.Keys(kinds)) {
		if g, kind, _ := strings.Cut(known, "/"); kind == d.Kind() && g != "" && g != group(d) {
			return fmt.Sprintf(" of apiVersion %q; it reads those of %s", d.APIVersion(), g)
		}
	}
	return ""
}

// group returns the API group, "" for the core group.
func group(d *manifest.Document) string {
	g, _, ok := strings.Cut(d.APIVersion(), "/")
	if !ok {
		return ""
	}
	return g
}

// legacyConfigMap is the name of the ConfigMap that configured KubeVirt before its
// CR did.
const legacyConfigMap = "kubevirt-config"

func readConfigMap(f *Facts, d *manifest.Document) error {
	if d.Meta("name") != legacyConfigMap {
		return nil
	}
	v, _ := manifest.Lookup(d.Object, manifest.Path{"data"})
	data, _ := v.(map[string]any)
	l := diagnose.Legacy{Ref: d.Meta("namespace") + "/" + d.Meta("name")}
	for _, key := range []string{"feature-gates", "permittedHostDevices"} {
		if _, ok := data[key]; ok {
			l.Keys = append(l.Keys, key)
		}
	}
	if len(l.Keys) > 0 {
		f.Legacy = append(f.Legacy, l)
	}
	return nil
}

// typed reads a document as an object of a Go type. What the type does not have is
// passed over, and quantities that nobody can reckon with are bounded, see [tame].
func typed(d *manifest.Document, into any) error {
	object := tame(d.Object)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, into); err == nil {
		return nil // numbers of files are kept as text, which it does not know
	}
	text, err := json.Marshal(object)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}
