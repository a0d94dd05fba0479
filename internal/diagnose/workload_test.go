package diagnose

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// What is said of the name that a VM asks for goes by the nodes that were read.
func TestWorkloads(t *testing.T) {
	const l40s, a10 = gpu.ResourceName("nvidia.com/AD102GL_L40S"), gpu.ResourceName("nvidia.com/GA102GL_A10")
	serves := func(name gpu.ResourceName) []gpu.Node {
		return []gpu.Node{{Name: "a", Allocatable: map[gpu.ResourceName]int64{name: 2}}}
	}
	permits := func(name gpu.ResourceName) gpu.Table {
		return gpu.Table{Set: true, Entries: []gpu.Entry{{List: gpu.ListPCI, Selector: "10DE:26B9", Name: name, External: true}}}
	}
	const refused = "VirtualMachine t/v asks for nvidia.com/AD102GL_L40S, which the table does not permit"
	for name, tc := range map[string]struct {
		table gpu.Table
		nodes []gpu.Node
		want  []string
	}{
		"served and permitted":           {permits(l40s), serves(l40s), nil},
		"served, not permitted":          {permits(a10), serves(l40s), []string{refused + " although node a serves it: KubeVirt leaves it Pending"}},
		"not served":                     {permits(l40s), serves(a10), []string{"VirtualMachine t/v asks for nvidia.com/AD102GL_L40S, which no node serves"}},
		"no node was read":               {permits(l40s), nil, nil},
		"no node was read, no table":     {gpu.Table{}, nil, nil},
		"no node was read, no such name": {permits(a10), nil, []string{refused + ": KubeVirt leaves it Pending"}},
	} {
		t.Run(name, func(t *testing.T) {
			vm := gpu.Workload{Kind: "VirtualMachine", Namespace: "t", Name: "v", Devices: []gpu.Device{{Field: "gpus", Name: l40s}}}
			var got []string
			for _, f := range Workloads(tc.table, tc.nodes, []gpu.Workload{vm}, func(gpu.ResourceName) string { return "" }) {
				got = append(got, f.Message)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}
