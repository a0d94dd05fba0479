package cluster

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/internal/manifest"
)

func read(t *testing.T, text string) (Facts, error) {
	t.Helper()
	docs, _, err := manifest.Parse("f.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return Read(docs)
}

func TestReadNodes(t *testing.T) {
	facts, err := read(t, `
apiVersion: v1
kind: Node
metadata: {name: b, labels: {nvidia.com/gpu.workload.config: vm-passthrough}}
status:
  capacity: {cpu: "64", devices.kubevirt.io/kvm: 1k, nvidia.com/X: "2"}
  allocatable: {memory: 1Ti, nvidia.com/X: 1}
---
apiVersion: v1
kind: Node
metadata: {name: a}
---
apiVersion: v1
kind: Pod
metadata: {name: kata, namespace: gpu-operator}
spec: {nodeName: a, containers: [{image: nvcr.io/nvidia/cloud-native/nvidia-sandbox-device-plugin:v0.0.1}]}
---
apiVersion: v1
kind: Pod
metadata: {name: plugin, namespace: gpu-operator}
spec: {nodeName: b, containers: [{image: "nvcr.io:443/nvidia/kubevirt-gpu-device-plugin:v1.4.0@sha256:00"}]}
`)
	if err != nil {
		t.Fatal(err)
	}
	want := []gpu.Node{
		{Name: "a", Labels: map[string]string{}, Capacity: map[gpu.ResourceName]int64{}, Allocatable: map[gpu.ResourceName]int64{}},
		{
			Name: "b", Labels: map[string]string{"nvidia.com/gpu.workload.config": "vm-passthrough"},
			Capacity:    map[gpu.ResourceName]int64{"devices.kubevirt.io/kvm": 1000, "nvidia.com/X": 2},
			Allocatable: map[gpu.ResourceName]int64{"nvidia.com/X": 1},
			Plugin:      gpu.Release{Major: 1, Minor: 4},
		},
	}
	if diff := cmp.Diff(want, facts.Nodes); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
}

func TestReadWorkloads(t *testing.T) {
	facts, err := read(t, `
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: vm, namespace: t, ownerReferences: [{kind: NodePool, name: p, controller: true}]}
spec: {template: {spec: {domain: {devices: {gpus: [{name: a, deviceName: n/a}, {name: claim, claimName: c}], hostDevices: [{deviceName: n/b}]}}}}}
---
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: vmi, namespace: t}
spec: {domain: {devices: {gpus: [{deviceName: n/a}, {deviceName: n/a}]}}}
status: {phase: Running}
---
apiVersion: pool.kubevirt.io/v1beta1
kind: VirtualMachinePool
metadata: {name: pool, namespace: t}
spec: {virtualMachineTemplate: {spec: {template: {spec: {domain: {devices: {gpus: [{deviceName: n/a}]}}}}}}}
---
apiVersion: instancetype.kubevirt.io/v1beta1
kind: VirtualMachineClusterInstancetype
metadata: {name: big}
spec: {gpus: [{deviceName: n/a}]}
---
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: plain, namespace: t}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: d, namespace: t}
`)
	if err != nil {
		t.Fatal(err)
	}
	gpus := func(names ...gpu.ResourceName) (out []gpu.Device) {
		for _, n := range names {
			out = append(out, gpu.Device{Field: "gpus", Name: n})
		}
		return out
	}
	want := []gpu.Workload{
		{Kind: "VirtualMachine", Namespace: "t", Name: "vm", Owner: "NodePool p", Devices: append(gpus("n/a"), gpu.Device{Field: "hostDevices", Name: "n/b"})},
		{Kind: "VirtualMachineInstance", Namespace: "t", Name: "vmi", Running: true, Active: true, Devices: gpus("n/a", "n/a")},
		{Kind: "VirtualMachinePool", Namespace: "t", Name: "pool", Devices: gpus("n/a")},
		{Kind: "VirtualMachineClusterInstancetype", Name: "big", Devices: gpus("n/a")},
	}
	if diff := cmp.Diff(want, facts.Workloads); diff != "" {
		t.Errorf("workloads (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"f.yaml:27: skipped Deployment t/d: gpuctl does not read this kind"}, facts.Notes); diff != "" {
		t.Errorf("notes (-want +got):\n%s", diff)
	}
}

func TestReadLegacyConfigMap(t *testing.T) {
	facts, err := read(t, `
apiVersion: v1
kind: ConfigMap
metadata: {name: kubevirt-config, namespace: kubevirt}
data: {permittedHostDevices: x, feature-gates: y, debug: z}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: kubevirt-config, namespace: other}
data: {debug: z}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: unrelated, namespace: kubevirt}
data: {feature-gates: y}
`)
	if err != nil {
		t.Fatal(err)
	}
	want := []diagnose.Legacy{{Ref: "kubevirt/kubevirt-config", Keys: []string{"feature-gates", "permittedHostDevices"}}}
	if diff := cmp.Diff(want, facts.Legacy); diff != "" {
		t.Errorf("legacy (-want +got):\n%s", diff)
	}
}

func TestReadErrorsNameFileObjectAndField(t *testing.T) {
	tests := map[string]struct{ text, want string }{
		"quantity":      {"apiVersion: v1\nkind: Node\nmetadata: {name: a}\nstatus: {allocatable: {nvidia.com/X: lots}}\n", `f.yaml:1: Node a: status.allocatable[nvidia.com/X]: quantity "lots"`},
		"half a GPU":    {"apiVersion: v1\nkind: Node\nmetadata: {name: a}\nstatus: {capacity: {nvidia.com/X: 500m}}\n", `quantity "500m" is no whole number`},
		"fewer than 0":  {"apiVersion: v1\nkind: Node\nmetadata: {name: a}\nstatus: {capacity: {nvidia.com/X: -1}}\n", `quantity "-1" is no whole number`},
		"no mapping":    {"apiVersion: v1\nkind: Node\nmetadata: {name: a}\nstatus: {capacity: [a]}\n", "status.capacity is no mapping"},
		"nameless":      {"apiVersion: v1\nkind: Node\n", "metadata.name is empty"},
		"node twice":    {"apiVersion: v1\nkind: Node\nmetadata: {name: a}\n---\napiVersion: v1\nkind: Node\nmetadata: {name: a}\n", `Node "a" more than once`},
		"gpus no list":  {"apiVersion: kubevirt.io/v1\nkind: VirtualMachineInstance\nmetadata: {name: v}\nspec: {domain: {devices: {gpus: x}}}\n", "spec.domain.devices.gpus is no list"},
		"gpu no object": {"apiVersion: kubevirt.io/v1\nkind: VirtualMachineInstance\nmetadata: {name: v}\nspec: {domain: {devices: {gpus: [x]}}}\n", "spec.domain.devices.gpus[0] is no mapping"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := read(t, tc.text)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Read() = %v, want %q", err, tc.want)
			}
		})
	}
}
