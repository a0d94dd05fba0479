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
