package diagnose

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

func TestSummarize(t *testing.T) {
	const name = "nvidia.com/GH100_H200_SXM_141GB"
	nfd := map[string]string{"feature.node.kubernetes.io/pci-10de.present": "true"}
	serving := func(names ...any) gpu.Node {
		n := gpu.Node{Name: "a", Labels: nfd, Allocatable: map[gpu.ResourceName]int64{}, Capacity: map[gpu.ResourceName]int64{}}
		for i := 0; i < len(names); i += 2 {
			n.Allocatable[gpu.ResourceName(names[i].(string))] = int64(names[i+1].(int))
			n.Capacity[gpu.ResourceName(names[i].(string))] = int64(names[i+1].(int))
		}
		return n
	}
	cards := func(drivers ...gpu.Driver) gpu.Host {
		h := gpu.Host{Node: "a"}
		for i, d := range drivers {
			h.Functions = append(h.Functions, gpu.Function{Address: gpu.Address{Bus: uint8(i + 1)}, ID: gpu.NVIDIA(0x2335), Class: 0x030200, Driver: d, Group: gpu.InGroup(i)})
		}
		return h
	}
	permits := gpu.Table{Set: true, Entries: []gpu.Entry{{List: gpu.ListPCI, Selector: "10DE:2335", Name: name, External: true}}}
	tests := map[string]struct {
		s    Summary
		want []string
	}{
		"all usable":              {Summary{Nodes: []gpu.Node{serving(name, 2)}, Hosts: []gpu.Host{cards("vfio-pci", "vfio-pci")}, Table: permits}, []string{"a 2/2 []"}},
		"without an inventory":    {Summary{Nodes: []gpu.Node{serving(name, 2)}, Table: permits}, []string{"a 2/? []"}},
		"not permitted":           {Summary{Nodes: []gpu.Node{serving(name, 2)}, Table: gpu.Table{Set: true}}, []string{"a 0/? [" + name + " is not permitted]"}},
		"no table checks nothing": {Summary{Nodes: []gpu.Node{serving(name, 2)}}, []string{"a 2/? []"}},
		"for containers":          {Summary{Nodes: []gpu.Node{serving("nvidia.com/gpu", 2)}, Table: permits}, []string{"a 0/? [nvidia.com/gpu is for containers]"}},
		"a host driver":           {Summary{Nodes: []gpu.Node{serving(name, 1)}, Hosts: []gpu.Host{cards("vfio-pci", "nvidia")}, Table: permits}, []string{"a 1/2 [GPU is on a host driver: 0000:02:00.0 (GPU0201)]"}},
		"many on a host driver":   {Summary{Nodes: []gpu.Node{serving(name, 1)}, Hosts: []gpu.Host{cards("vfio-pci", "nvidia", "nvidia", "nvidia", "nvidia")}, Table: permits}, []string{"a 1/5 [GPU is on a host driver: 4 GPUs (GPU0201)]"}},
		"served beyond the sound": {Summary{Nodes: []gpu.Node{serving(name, 2)}, Hosts: []gpu.Host{cards("vfio-pci")}, Table: permits}, []string{"a 1/1 [node offers more GPUs than it has (GPU0410)]"}},
		"nothing served yet":      {Summary{Nodes: []gpu.Node{serving()}, Hosts: []gpu.Host{cards("vfio-pci")}, Table: permits}, []string{"a 0/1 [node serves no NVIDIA resource yet (GPU0102)]"}},
		"a silent agent":          {Summary{Nodes: []gpu.Node{serving(name, 2)}, Agents: []Agent{{Node: "a"}}, Table: permits}, []string{"a 2/? [agent does not report (GPU0105)]"}},
		"a node without GPUs":     {Summary{Nodes: []gpu.Node{{Name: "b"}}, Table: permits}, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			tc.s.Release = gpu.Newest()
			var got []string
			for _, n := range tc.s.Summarize() {
				count := "?"
				if n.GPUs != nil {
					count = fmt.Sprint(*n.GPUs)
				}
				got = append(got, fmt.Sprintf("%s %d/%s %v", n.Node, n.Usable, count, n.Why))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("summary (-want +got):\n%s", diff)
			}
		})
	}
}
