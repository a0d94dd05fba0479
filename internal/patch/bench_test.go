package patch

import (
	"fmt"
	"testing"

	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/internal/manifest"
)

// BenchmarkPlan plans a cluster of nodes with 8 GPUs each of ten models, against
// a table of 200 entries. It should grow linearly with the nodes.
func BenchmarkPlan(b *testing.B) {
	for _, nodes := range []int{500, 5000} {
		in := largeInput(nodes)
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				result, err := Plan(in)
				if err != nil || len(result.Changes) < 10 {
					b.Fatalf("%d changes, %v", len(result.Changes), err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(nodes), "ns/node")
		})
	}
}

func largeInput(nodes int) Input {
	models := []gpu.DeviceID{0x2335, 0x2330, 0x20b0, 0x20b2, 0x26b9, 0x27b8, 0x1eb8, 0x1db6, 0x2235, 0x2236}
	entries := make([]any, 200)
	for i := range entries {
		entries[i] = manifest.Object{"pciVendorSelector": fmt.Sprintf("8086:%04x", i), "resourceName": fmt.Sprintf("intel.com/dev%d", i)}
	}
	in := Input{Target: Target{Document: manifest.Document{Object: manifest.Object{
		"apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", "metadata": manifest.Object{"name": "kubevirt", "namespace": "kubevirt"},
		"spec": manifest.Object{"configuration": manifest.Object{"permittedHostDevices": manifest.Object{"pciHostDevices": entries}}},
	}}}}
	for i := range nodes {
		model := models[i%len(models)]
		name := fmt.Sprintf("worker-%d", i)
		h := gpu.Host{Node: name}
		for slot := range 8 {
			h.Functions = append(h.Functions, gpu.Function{
				Address: gpu.Address{Bus: uint8(16 + slot)}, ID: gpu.NVIDIA(model), Class: 0x030200, Driver: "vfio-pci", Group: gpu.InGroup(slot),
			})
		}
		in.Hosts = append(in.Hosts, h)
		served := gpu.Newest().Name(model)
		in.Nodes = append(in.Nodes, gpu.Node{
			Name: name, Labels: map[string]string{}, Allocatable: map[gpu.ResourceName]int64{served: 8, "devices.kubevirt.io/kvm": 1000},
		})
	}
	return in
}
