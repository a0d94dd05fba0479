package e2e

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/internal/patch"
	testcluster "github.com/gpuctl/gpuctl/test/cluster"
)

const (
	drifted = "nvidia.com/GH100H100_SXM5_80GB" // what plugins before 1.3 call the H100
	h100    = "nvidia.com/GH100_H100_SXM5_80GB"
	gridT4  = "nvidia.com/GRID_T4-16Q" // what drivers of old call the profile
	vgpuT4  = "nvidia.com/NVIDIA_T4-16Q"
	vgpuL40 = "nvidia.com/NVIDIA_L40S-24Q"

	h200Entry  = "10DE:2335 as " + h200
	theirsOnly = `{configuration: {developerConfiguration: {featureGates: [HostDevices]}, permittedHostDevices: {pciHostDevices: [` + theirV100 + `]}}}`
	theirV100  = `{pciVendorSelector: "10DE:1DB6", resourceName: nvidia.com/V100, externalResourceProvider: true}`
	v100Entry  = "10DE:1DB6 as nvidia.com/V100"
)

// situation is what comes upon a cluster that the controller keeps wired.
type situation struct {
	spec   string // of the KubeVirt CR, or of the HyperConverged; default: empty
	hco    bool
	nodes  []testcluster.Node
	hosts  []gpu.Host
	vm     string   // what a stopped VM asks for
	reason string   // why it is not wired at first
	first  []string // entries that there are then
	then   []event
}

// event is something that happens, and which entries there are after it.
type event struct {
	what   string
	do     func(*replay)
	want   []string
	writes int    // of the controller; at most, since two may become one
	reason string // why it is not wired
	revert bool   // it takes away what the controller wrote
}

func situations() map[string]situation {
	nodes := func(nodes ...testcluster.Node) []testcluster.Node { return nodes }
	hexed := func(names ...string) string {
		var entries []string
		for _, name := range names {
			entries = append(entries, `{pciVendorSelector: "10DE:2330", resourceName: `+name+`, externalResourceProvider: true}`)
		}
		return "{configuration: {developerConfiguration: {featureGates: [HostDevices]}, permittedHostDevices: {pciHostDevices: [" + strings.Join(entries, ", ") + "]}}}"
	}
	upgraded := func(r *replay) {
		r.SetAllocatable("a", drifted, 0)
		r.SetAllocatable("a", h100, 1)
	}
	h100Old, h100New := "10DE:2330 as "+drifted, "10DE:2330 as "+h100
	oneH200 := nodes(gpuNode("a", h200, 1))
	return map[string]situation{
		"a plugin's upgrade renames what is ours": {
			nodes: nodes(gpuNode("a", drifted, 1)), hosts: []gpu.Host{cards("a", 0x2330)}, first: []string{h100Old},
			then: []event{{what: "the upgrade", do: upgraded, want: []string{h100New}, writes: 2}},
		},
		"a plugin's upgrade renames what is others'": {
			spec: hexed(drifted), nodes: nodes(gpuNode("a", drifted, 1)), hosts: []gpu.Host{cards("a", 0x2330)}, first: []string{h100Old},
			then: []event{{what: "the upgrade", do: upgraded, want: []string{h100Old, h100New}, writes: 1}},
		},
		"others permit both names of a card": {
			spec: hexed(drifted, h100), nodes: nodes(gpuNode("a", drifted, 1)), hosts: []gpu.Host{cards("a", 0x2330)}, first: []string{h100Old, h100New},
			then: []event{{what: "the upgrade", do: upgraded, want: []string{h100Old, h100New}}},
		},
		"a chart with a table of its own takes the CR over": {
			spec: theirsOnly, nodes: oneH200, first: []string{v100Entry, h200Entry},
			then: []event{{what: "the release", do: func(r *replay) {
				r.helmRelease(kubeVirtOf("    developerConfiguration: {featureGates: [HostDevices, Snapshot]}\n    permittedHostDevices: {pciHostDevices: [" + theirV100 + "]}\n"))
			}, want: []string{v100Entry, h200Entry}, writes: 1, revert: true}},
		},
		"somebody removes our entry and our record": {
			nodes: oneH200, first: []string{h200Entry},
			then: []event{{what: "kubectl edit", do: func(r *replay) {
				r.put(spec(map[string]any{"configuration": map[string]any{"developerConfiguration": map[string]any{"featureGates": []any{"HostDevices"}}}}))
			}, want: []string{h200Entry}, writes: 1, revert: true}},
		},
		"a tool takes the annotations away that it does not know": {
			nodes: oneH200, first: []string{h200Entry},
			then: []event{{what: "the tool", do: func(r *replay) { r.put(func(*unstructured.Unstructured) {}) }, want: []string{h200Entry}}},
		},
		"our record becomes unreadable": {
			nodes: oneH200, first: []string{h200Entry},
			then: []event{
				{what: "kubectl annotate", do: merges(`{"metadata":{"annotations":{"gpuctl.dev/wired":"{"}}}`), want: []string{h200Entry}},
				{what: "another node", do: func(r *replay) { r.AddNode(gpuNode("b", l40s, 1)) }, want: []string{h200Entry, "10DE:26B9 as " + l40s}, writes: 1},
			},
		},
		"somebody makes KubeVirt the provider of our entry": {
			nodes: oneH200, first: []string{h200Entry},
			then: []event{{what: "kubectl edit", do: edits(func(e map[string]any) { e["externalResourceProvider"] = false }), want: []string{h200Entry + " in-tree"}}},
		},
		"somebody writes our selector in lower case": {
			nodes: oneH200, first: []string{h200Entry},
			then: []event{{what: "kubectl edit", do: edits(func(e map[string]any) { e["pciVendorSelector"] = "10de:2335" }), want: []string{"10de:2335 as " + h200}}},
		},
		"a tool sorts the table": {
			spec: theirsOnly, nodes: oneH200, first: []string{v100Entry, h200Entry},
			then: []event{{what: "the tool", do: rewrites(slices.Reverse[[]any]), want: []string{h200Entry, v100Entry}}},
		},
		"a node comes back with other cards": {
			nodes: oneH200, first: []string{h200Entry},
			then: []event{{what: "the exchange", do: func(r *replay) { r.RemoveNode("a"); r.AddNode(gpuNode("a", l40s, 1)) }, want: []string{"10DE:26B9 as " + l40s}, writes: 2}},
		},
		"the KubeVirt CR is being deleted": {
			nodes: oneH200, first: []string{h200Entry},
			then: []event{{what: "kubectl delete, and its table is emptied", do: deletes, reason: v1alpha1.ReasonNoKubeVirt}},
		},
		"mediated devices are gone after a reboot": {
			nodes: nodes(gpuNode("a", gridT4, 1)), hosts: []gpu.Host{t4s("GRID T4-16Q")}, first: []string{"GRID T4-16Q as " + gridT4},
			then: []event{{what: "the reboot", do: func(r *replay) {
				r.SetAllocatable("a", gridT4, 0)
				after := cards("a", 0x1eb8)
				after.Functions[0].Driver = "nvidia" // and no type that could be made yet
				r.host("a", &after)
			}, want: []string{"GRID T4-16Q as " + gridT4}}},
		},
		"a driver's upgrade renames a profile": {
			nodes: nodes(gpuNode("a", gridT4, 1)), hosts: []gpu.Host{t4s("GRID T4-16Q")}, first: []string{"GRID T4-16Q as " + gridT4},
			then: []event{{what: "the upgrade", do: func(r *replay) {
				after := t4s("NVIDIA T4-16Q")
				r.host("a", &after)
				r.SetAllocatable("a", gridT4, 0)
				r.SetAllocatable("a", vgpuT4, 1)
			}, want: []string{"GRID T4-16Q as " + gridT4, "NVIDIA T4-16Q as " + vgpuT4}, writes: 1}},
		},
		"KubeVirt learns to serve virtual functions": {
			nodes: nodes(testcluster.Node{Name: "a"}), hosts: []gpu.Host{l40sVFs("a")},
			then: []event{
				{what: "KubeVirt 1.9", do: observes("v1.9.0"), want: []string{"10DE:26B9 as " + vgpuL40 + " in-tree"}, writes: 1},
				{what: "a rollback", do: observes("v1.8.4"), want: []string{"10DE:26B9 as " + vgpuL40 + " in-tree"}},
			},
		},
		"HyperConverged's administrator disables our entry": {
			hco: true, spec: "{}", nodes: oneH200, first: []string{h200Entry},
			then: []event{{what: "kubectl edit", do: edits(func(e map[string]any) { e["disabled"] = true }), want: []string{h200Entry + " disabled"}}},
		},
		"a plugin's upgrade renames what is ours in HyperConverged": {
			hco: true, spec: "{}", nodes: nodes(gpuNode("a", drifted, 1)), hosts: []gpu.Host{cards("a", 0x2330)}, first: []string{h100Old},
			then: []event{{what: "the upgrade", do: upgraded, want: []string{h100New}, writes: 1}},
		},
		"HyperConverged's operator rewrites the KubeVirt CR": {
			hco: true, spec: "{}", nodes: oneH200, first: []string{h200Entry},
			then: []event{{what: "its reconciler", do: operates, want: []string{h200Entry}}},
		},
		"a VM needs a name that others serve": {
			nodes: nodes(testcluster.Node{Name: "a", Resources: map[corev1.ResourceName]int64{h200: 1, "intel.com/qat": 1}}),
			vm:    "intel.com/qat", reason: v1alpha1.ReasonHeldBack,
			then: []event{{what: "the VM is deleted", do: func(r *replay) { deleteAnyway(r.t, r.Cluster, machine(r.Cluster, "default", "held", "")) }, want: []string{h200Entry}, writes: 1}},
		},
		"HyperConverged comes": {
			nodes: oneH200, first: []string{h200Entry},
			then: []event{{what: "its installation", do: func(r *replay) {
				r.target = r.manage(map[string]any{}, kubeVirt(r.t, r.Cluster).Object["spec"])
			}, want: []string{h200Entry}, writes: 1}},
		},
		"KubeVirt is installed anew": {
			nodes: oneH200, first: []string{h200Entry},
			then: []event{{what: "the installation", do: func(r *replay) {
				restore := r.withoutKubeVirt()
				r.Eventually(repair, "there is none", r.says(v1alpha1.ConditionWired, v1alpha1.ReasonNoKubeVirt))
				restore()
				r.put(spec(map[string]any{"configuration": map[string]any{}}))
			}, want: []string{h200Entry}, writes: 2}},
		},
	}
}

// meet plays a situation.
func (r *replay) meet(tc *situation) {
	r.t.Helper()
	r.reset()
	for _, n := range tc.nodes {
		r.AddNode(n)
	}
	for i := range tc.hosts {
		r.host(tc.hosts[i].Node, &tc.hosts[i])
	}
	if tc.vm != "" {
		vm := machine(r.Cluster, "default", "held", entries("gpus", tc.vm, 1))
		_ = unstructured.SetNestedField(vm.Object, "Halted", "spec", "runStrategy")
		r.Create(vm)
		r.t.Cleanup(func() { deleteAnyway(r.t, r.Cluster, vm) })
	}
	bare := map[string]any{"configuration": map[string]any{}}
	given := r.Decode("apiVersion: v1\nkind: Any\nspec: " + cmp.Or(tc.spec, "{configuration: {}}")).Object["spec"]
	if tc.hco {
		r.target = r.manage(given, bare)
	} else {
		r.target = r.put(spec(given))
	}
	r.Eventually(repair, "it begins", r.has(tc.reason, tc.first))
	for _, e := range tc.then {
		wrote := r.metric(writes)
		e.do(r)
		r.Eventually(repair, "it follows "+e.what, r.has(e.reason, e.want))
		if e.revert {
			r.reverts++
		}
		r.rests(r.now())
		if got := r.metric(writes) - wrote; got > e.writes || got == 0 && e.writes > 0 {
			r.t.Errorf("the controller writes %d times after %s, want %d", got, e.what, e.writes)
		}
	}
}

// now returns the target as it is.
func (r *replay) now() *unstructured.Unstructured {
	r.t.Helper()
	u, err := r.Resource(r.target).Get(r.t.Context(), r.target.GetName(), metav1.GetOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	return u
}

// has returns a check that the target has exactly the entries, and that the controller
// says so or why not.
func (r *replay) has(reason string, want []string) func(context.Context) error {
	return func(ctx context.Context) error {
		u, err := r.Resource(r.target).Get(ctx, r.target.GetName(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		var have []string
		for _, list := range tables(u) {
			for _, item := range list {
				have = append(have, entryText(item.(map[string]any)))
			}
		}
		if diff := gocmp.Diff(want, have); diff != "" {
			return errorf("entries (-want +got):\n%s", diff)
		}
		return r.says(v1alpha1.ConditionWired, cmp.Or(reason, v1alpha1.ReasonWired))(ctx)
	}
}

// tablePath is where a target has its lists.
func tablePath(u *unstructured.Unstructured) []string {
	if u.GetKind() == patch.KindHyperConverged {
		return []string{"spec", "permittedHostDevices"}
	}
	return []string{"spec", "configuration", "permittedHostDevices"}
}

func tables(u *unstructured.Unstructured) (lists [][]any) {
	for _, name := range []string{"pciHostDevices", "mediatedDevices"} {
		list, _, _ := unstructured.NestedSlice(u.Object, append(tablePath(u), name)...)
		lists = append(lists, list)
	}
	return lists
}

func entryText(e map[string]any) string {
	text := fmt.Sprintf("%s as %s", selectorOf(e), e["resourceName"])
	if e["externalResourceProvider"] != true {
		text += " in-tree"
	}
	if e["disabled"] == true {
		text += " disabled"
	}
	return text
}

// merges returns an event that merges a patch into the target.
func merges(text string) func(*replay) {
	return func(r *replay) {
		_, err := r.Resource(r.target).Patch(r.t.Context(), r.target.GetName(), types.MergePatchType, []byte(text), metav1.PatchOptions{FieldManager: "case"})
		if err != nil {
			r.t.Fatal(err)
		}
	}
}

// edits returns an event that changes the target's first PCI entry.
func edits(change func(entry map[string]any)) func(*replay) {
	return rewrites(func(list []any) { change(list[0].(map[string]any)) })
}

// rewrites returns an event that changes the target's PCI entries.
func rewrites(change func([]any)) func(*replay) {
	return func(r *replay) {
		u := r.now()
		list := tables(u)[0]
		change(list)
		_ = unstructured.SetNestedSlice(u.Object, list, append(tablePath(u), "pciHostDevices")...)
		if _, err := r.Resource(u).Update(r.t.Context(), u, metav1.UpdateOptions{FieldManager: "case"}); err != nil {
			r.t.Fatal(err)
		}
	}
}

// deletes deletes the KubeVirt CR, which a finalizer keeps, and empties its table.
func deletes(r *replay) {
	kv, ref := r.now(), r.Resource(r.target)
	merges(`{"metadata":{"finalizers":["gpuctl.dev/test"]}}`)(r)
	deleteAnyway(r.t, r.Cluster, kv)
	merges(`{"spec":{"configuration":{"permittedHostDevices":null}}}`)(r)
	r.t.Cleanup(func() {
		_, err := ref.Patch(context.Background(), "kubevirt", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		if err != nil {
			r.t.Error(err)
		}
		createAgain(r.Cluster, kv)
	})
}

// observes returns an event by which KubeVirt has another version.
func observes(version string) func(*replay) {
	return func(r *replay) {
		set := func(ctx context.Context, v string) error {
			_, err := r.Resource(r.target).Patch(ctx, "kubevirt", types.MergePatchType, fmt.Appendf(nil, `{"status":{"observedKubeVirtVersion":%q}}`, v), metav1.PatchOptions{}, "status")
			return err
		}
		was, _, _ := unstructured.NestedString(r.now().Object, "status", "observedKubeVirtVersion")
		r.t.Cleanup(func() {
			if err := set(context.Background(), was); err != nil {
				r.t.Error(err)
			}
		})
		if err := set(r.t.Context(), version); err != nil {
			r.t.Fatal(err)
		}
	}
}

// operates plays HyperConverged's operator, which replaces what it manages of the
// KubeVirt CR: nobody but it may write there.
func operates(r *replay) {
	ref := r.Resource(kubeVirtRef(r.Cluster))
	began := kubeVirt(r.t, r.Cluster).GetGeneration()
	for i := range 5 {
		table := fmt.Sprintf(`{"spec":{"configuration":{"permittedHostDevices":{"pciHostDevices":[{"pciVendorSelector":"10DE:2335","resourceName":"nvidia.com/OF-ROUND-%d"}]}}}}`, i)
		if _, err := ref.Patch(r.t.Context(), "kubevirt", types.MergePatchType, []byte(table), metav1.PatchOptions{FieldManager: "hyperconverged"}); err != nil {
			r.t.Fatal(err)
		}
		time.Sleep(120 * time.Millisecond) // longer than the controller gathers
	}
	if now := kubeVirt(r.t, r.Cluster).GetGeneration(); now != began+5 {
		r.t.Errorf("the KubeVirt CR has changed %d times, want 5", now-began)
	}
}

// cards returns a host with one card for VMs.
func cards(node string, device gpu.DeviceID) gpu.Host {
	return gpu.Host{Node: node, IOMMU: gpu.Present, Functions: []gpu.Function{
		{Address: gpu.Address{Bus: 0x10}, ID: gpu.NVIDIA(device), Class: 0x030200, Driver: "vfio-pci", Group: gpu.InGroup(1)},
	}}
}

// t4s returns node a with a T4 that has a mediated device.
func t4s(profile string) gpu.Host {
	h := cards("a", 0x1eb8)
	card := &h.Functions[0]
	card.Driver, card.MdevTypes = "nvidia", []gpu.MdevType{{ID: "nvidia-231", Name: profile}}
	h.Mdevs = []gpu.Mdev{{UUID: "8e0f4f5e-9a4c-4d36-9d2f-6d2e6a1f0001", TypeID: "nvidia-231", TypeName: profile, Parent: card.Address, Group: gpu.InGroup(2)}}
	return h
}

// l40sVFs returns a host with an L40S of which one virtual function has a vGPU type.
func l40sVFs(node string) gpu.Host {
	h := cards(node, 0x26b9)
	h.Functions[0].Driver, h.Functions[0].TotalVFs, h.Functions[0].NumVFs = "nvidia", 2, 2
	for i := range 2 {
		vf := h.Functions[0]
		vf.PhysFn, vf.VF, vf.TotalVFs, vf.NumVFs, vf.Group = new(h.Functions[0].Address), true, 0, 0, gpu.InGroup(2+i)
		vf.Address.Function = uint8(4 + i)
		h.Functions = append(h.Functions, vf)
	}
	h.Functions[1].CurrentVGPU = "1155"
	h.Functions[2].VGPUTypes = []gpu.VGPUType{{ID: 1155, Name: "NVIDIA L40S-24Q"}}
	return h
}
