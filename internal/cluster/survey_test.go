package cluster

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuctl/gpuctl/internal/manifest"
)

// Events outlive what they are about.
func TestEventsOfGoneMachines(t *testing.T) {
	object := func(kind, name string, more manifest.Object) manifest.Document {
		o := manifest.Object{"kind": kind, "metadata": map[string]any{"namespace": "tenant", "name": name}}
		maps.Copy(o, more)
		return manifest.Live("cluster", o)
	}
	about := func(kind, name string) manifest.Document {
		return object("Event", kind+" "+name, manifest.Object{"involvedObject": map[string]any{"kind": kind, "namespace": "tenant", "name": name}})
	}
	docs := []manifest.Document{
		object("VirtualMachine", "trainer", nil), object("VirtualMachineInstance", "lone", nil), object("Pod", "virt-launcher-cut-off-b", nil),
		about("VirtualMachine", "trainer"), about("VirtualMachineInstance", "trainer"), about("VirtualMachineInstance", "lone"),
		about("Pod", "virt-launcher-trainer-abcde"), about("Pod", "virt-launcher-cut-off-b"), about("KubeVirt", "kubevirt"), about("Pod", "plugin"),
		about("VirtualMachine", "gone"), about("VirtualMachineInstance", "gone"), about("Pod", "virt-launcher-gone-abcde"), about("Pod", "virt-launcher-odd"),
	}
	tests := map[string]struct {
		known bool
		want  []string
	}{
		"all machines are known": {true, []string{"VirtualMachine gone", "VirtualMachineInstance gone", "Pod virt-launcher-gone-abcde", "Pod virt-launcher-odd"}},
		"some may be there":      {false, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			gone := ofGoneMachines(docs, func(namespace string) bool { return tc.known && namespace == "tenant" })
			var got []string
			for _, d := range slices.DeleteFunc(slices.Clone(docs), func(d manifest.Document) bool { return !gone(d) }) {
				got = append(got, d.Meta("name"))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("Events that are dropped (-want +got):\n%s", diff)
			}
		})
	}
}

// Anybody can make a pod that looks like a part of gpu-operator; only those of a
// DaemonSet count.
func TestForeignOperands(t *testing.T) {
	pod := func(name, container, image string, owners ...any) manifest.Document {
		return manifest.Live("cluster", manifest.Object{
			"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": name, "ownerReferences": owners},
			"spec": map[string]any{"containers": []any{map[string]any{"name": container, "image": image}}},
		})
	}
	owner := func(uid string) any { return map[string]any{"kind": "DaemonSet", "uid": uid, "controller": true} }
	set := manifest.Live("cluster", manifest.Object{"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": map[string]any{"uid": "u"}})
	docs := []manifest.Document{
		pod("own manager", "nvidia-vfio-manager", "x", owner("u")), pod("forged manager", "nvidia-vfio-manager", "x"),
		pod("forged owner", "nvidia-vfio-manager", "x", owner("other")), pod("forged plugin", "c", "evil/kubevirt-gpu-device-plugin:v9.9.9"),
		pod("forged validator", "nvidia-sandbox-validator", "x"), pod("something else", "web", "nginx"),
	}
	for name, tc := range map[string]struct {
		docs []manifest.Document
		want []string
	}{
		"with DaemonSets":       {append(docs, set), []string{"forged manager", "forged owner", "forged plugin", "forged validator"}},
		"without any DaemonSet": {docs, nil},
	} {
		t.Run(name, func(t *testing.T) {
			foreign := foreignOperand(tc.docs)
			var got []string
			for _, d := range tc.docs {
				if foreign(d) {
					got = append(got, d.Meta("name"))
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("dropped (-want +got):\n%s", diff)
			}
		})
	}
}
