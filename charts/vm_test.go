package charts_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v3/pkg/chartutil"
	"k8s.io/apimachinery/pkg/util/validation"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
)

// vmChart is the example of a tenant's VM.
const vmChart = "gpu-vm"

// trainer is a release of it.
var trainer = chartutil.ReleaseOptions{Name: "trainer", Namespace: "tenant-acme", Revision: 1, IsInstall: true}

const vmEverything = `
runStrategy: Manual
gpus:
  orders: [{name: a, class: h200, count: 4}, {name: b, class: l40s}]
  devices: [kept]
  templates: [{class: h200, count: 2}, {class: h200}]
instancetype: {name: u1.xlarge}
preference: {name: ubuntu, kind: VirtualMachinePreference}
disk: {persistentVolumeClaim: root}
cloudInit: {userData: "#cloud-config\nhostname: \"it's {{ .x }}\"\n"}
`

// machine is what was rendered, each kind read as strictly as it can be.
type machine struct {
	vm      *kubevirtv1.VirtualMachine
	devices []v1alpha1.GPUDevice
	secret  map[string]string // its data
}

func readMachine(t *testing.T, files map[string]string) (m machine) {
	t.Helper()
	for file, content := range files {
		if !strings.HasSuffix(file, ".yaml") {
			continue
		}
		for document := range strings.SplitSeq("\n"+content, "\n---") {
			var o object
			err := yaml.Unmarshal([]byte(document), &o)
			switch {
			case err != nil:
			case o.Kind == "VirtualMachine":
				m.vm = &kubevirtv1.VirtualMachine{}
				err = strictly(document, m.vm)
			case o.Kind == "GPUDevice":
				var d v1alpha1.GPUDevice
				err = strictly(document, &d)
				m.devices = append(m.devices, d)
			case o.Kind == "Secret":
				var s struct{ StringData map[string]string }
				err = yaml.Unmarshal([]byte(document), &s)
				m.secret = s.StringData
			}
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			if o.Kind != "" && o.Metadata.Namespace != trainer.Namespace {
				t.Errorf("%s %s is in namespace %q", o.Kind, o.Metadata.Name, o.Metadata.Namespace)
			}
		}
	}
	if m.vm == nil {
		t.Fatal("there is no VM")
	}
	return m
}

// strictly reads YAML as an API server does, which takes no number for a string.
func strictly(document string, out any) error {
	data, err := yaml.YAMLToJSONStrict([]byte(document))
	if err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	return d.Decode(out)
}

func TestVMTemplates(t *testing.T) {
	for name, values := range map[string]string{"vm": "{}", "vm-template": "gpus: {templates: [{class: h200, count: 4}]}", "vm-everything": vmEverything} {
		t.Run(name, func(t *testing.T) {
			files, err := renderAs(t, loadChart(t, vmChart), values, trainer)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, name, text(files))
		})
	}
}

// What the chart writes is what gpuctl reads.
func TestVMReferences(t *testing.T) {
	order := func(class string, count int32) v1alpha1.GPUDeviceSpec {
		return v1alpha1.GPUDeviceSpec{ClassName: class, Count: count}
	}
	for name, tc := range map[string]struct {
		release, values string
		orders          map[string]v1alpha1.GPUDeviceSpec
		want            *v1alpha1.References // nil: none
	}{
		"no GPUs":     {"trainer", "{}", map[string]v1alpha1.GPUDeviceSpec{}, nil},
		"orders":      {"trainer", "gpus: {orders: [{name: a, class: h200, count: 4}, {name: b, class: l40s}]}", map[string]v1alpha1.GPUDeviceSpec{"trainer-a": order("h200", 4), "trainer-b": order("l40s", 1)}, &v1alpha1.References{Devices: []string{"trainer-a", "trainer-b"}}},
		"another one": {"trainer", "gpus: {devices: [kept, trainer-a]}", map[string]v1alpha1.GPUDeviceSpec{}, &v1alpha1.References{Devices: []string{"kept", "trainer-a"}}},
		"templates":   {"trainer", "gpus: {templates: [{class: h200, count: 64}, {class: h200}]}", map[string]v1alpha1.GPUDeviceSpec{}, &v1alpha1.References{Templates: []v1alpha1.Template{{Class: "h200", Count: 64}, {Class: "h200", Count: 1}}}},
		"all": {"trainer", vmEverything, map[string]v1alpha1.GPUDeviceSpec{"trainer-a": order("h200", 4), "trainer-b": order("l40s", 1)}, &v1alpha1.References{
			Devices: []string{"trainer-a", "trainer-b", "kept"}, Templates: []v1alpha1.Template{{Class: "h200", Count: 2}, {Class: "h200", Count: 1}},
		}},
		"a name of its own": {"trainer", "{name: vm1, gpus: {orders: [{name: a, class: h200}]}}", map[string]v1alpha1.GPUDeviceSpec{"vm1-a": order("h200", 1)}, &v1alpha1.References{Devices: []string{"vm1-a"}}},
		"a release with dots, of a long name": {
			strings.Repeat("a.b-", 12), "gpus: {orders: [{name: nineteen-characters, class: h200}]}",
			map[string]v1alpha1.GPUDeviceSpec{strings.Repeat("a-b-", 9) + "a-b-nineteen-characters": order("h200", 1)},
			&v1alpha1.References{Devices: []string{strings.Repeat("a-b-", 9) + "a-b-nineteen-characters"}},
		},
		"a release that is cut off within dashes": {
			strings.Repeat("a", 37) + "---b", "gpus: {orders: [{name: a, class: h200}]}",
			map[string]v1alpha1.GPUDeviceSpec{strings.Repeat("a", 37) + "-a": order("h200", 1)},
			&v1alpha1.References{Devices: []string{strings.Repeat("a", 37) + "-a"}},
		},
		"a release that YAML takes for a number": {"123", "gpus: {orders: [{name: '1', class: '200'}]}", map[string]v1alpha1.GPUDeviceSpec{"123-1": order("200", 1)}, &v1alpha1.References{Devices: []string{"123-1"}}},
		"a release that YAML takes for a truth":  {"true", "{}", map[string]v1alpha1.GPUDeviceSpec{}, nil},
		"a VM that YAML takes for nothing":       {"trainer", "{name: 'null', gpus: {orders: [{name: e3, class: h200}]}}", map[string]v1alpha1.GPUDeviceSpec{"null-e3": order("h200", 1)}, &v1alpha1.References{Devices: []string{"null-e3"}}},
	} {
		t.Run(name, func(t *testing.T) {
			release := trainer
			release.Name = tc.release
			files, err := renderAs(t, loadChart(t, vmChart), tc.values, release)
			if err != nil {
				t.Fatal(err)
			}
			m := readMachine(t, files)
			if problems := validation.IsDNS1123Label(m.vm.Name); len(problems) > 0 || m.vm.Labels["app.kubernetes.io/instance"] != tc.release {
				t.Errorf("the VM has the name %q and the labels %v: %q", m.vm.Name, m.vm.Labels, problems)
			}
			orders := map[string]v1alpha1.GPUDeviceSpec{}
			for i := range m.devices {
				orders[m.devices[i].Name] = m.devices[i].Spec
			}
			if diff := cmp.Diff(tc.orders, orders); diff != "" {
				t.Errorf("orders (-want +got):\n%s", diff)
			}
			metadata := m.vm.Spec.Template.ObjectMeta
			annotation, annotated := metadata.Annotations[v1alpha1.AnnotationDevices]
			label, labelled := metadata.Labels[v1alpha1.LabelDeviceReference]
			if wanted := tc.want != nil; annotated != wanted || labelled != wanted || wanted && label != v1alpha1.ValueTrue {
				t.Fatalf("labels %v, annotations %v", metadata.Labels, metadata.Annotations)
			}
			if tc.want == nil {
				return
			}
			got, err := v1alpha1.DecodeReferences(annotation)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(*tc.want, got); diff != "" {
				t.Errorf("references (-want +got):\n%s", diff)
			}
		})
	}
}

// The VM names no GPU: gpuctl's webhook does, and adds to what is there.
func TestVMBootsFromWhatItIsGiven(t *testing.T) {
	files, err := renderAs(t, loadChart(t, vmChart), vmEverything, trainer)
	if err != nil {
		t.Fatal(err)
	}
	m := readMachine(t, files)
	spec := m.vm.Spec.Template.Spec
	if len(spec.Domain.Devices.GPUs) > 0 || spec.Domain.CPU != nil || spec.Domain.Memory != nil || spec.Domain.Firmware != nil {
		t.Errorf("what gpuctl, the instancetype or the preference says is said by the chart: %+v", spec.Domain)
	}
	if m.vm.Spec.Instancetype.Name != "u1.xlarge" || m.vm.Spec.Preference.Kind != "VirtualMachinePreference" {
		t.Errorf("instancetype %+v, preference %+v", m.vm.Spec.Instancetype, m.vm.Spec.Preference)
	}
	if len(spec.Volumes) != 2 || spec.Volumes[0].PersistentVolumeClaim.ClaimName != "root" || spec.Volumes[1].CloudInitNoCloud.UserDataSecretRef.Name != "trainer-cloud-init" {
		t.Errorf("volumes %+v", spec.Volumes)
	}
	if want := map[string]string{"userdata": "#cloud-config\nhostname: \"it's {{ .x }}\"\n"}; !cmp.Equal(want, m.secret) {
		t.Errorf("the Secret has %q, want %q", m.secret, want)
	}
}

// Nobody may change a device, and a VM whose template changes wants to be restarted: so
// another version of the chart changes neither.
func TestVMOfAnotherVersionIsTheSame(t *testing.T) {
	before, err := renderAs(t, loadChart(t, vmChart), vmEverything, trainer)
	if err != nil {
		t.Fatal(err)
	}
	c := loadChart(t, vmChart)
	c.Metadata.Version = "99.0.0"
	second := trainer
	second.Revision, second.IsInstall, second.IsUpgrade = 2, false, true
	after, err := renderAs(t, c, vmEverything, second)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("an upgrade changes (-before +after):\n%s", diff)
	}
}

// A value that cannot be meant is refused, and the key named.
func TestVMRefuses(t *testing.T) {
	for name, tc := range map[string]struct{ values, want string }{
		"a misspelt key":           {"gpu: {}", "gpu"},
		"an order without a class": {"gpus: {orders: [{name: a}]}", "class"},
		"an order of none":         {"gpus: {orders: [{name: a, class: h200, count: 0}]}", "gpus.orders.0.count"},
		"a count as text":          {`gpus: {templates: [{class: h200, count: "4"}]}`, "gpus.templates.0.count"},
		"more than a device has":   {"gpus: {templates: [{class: h200, count: 65}]}", "gpus.templates.0.count"},
		"a name with a dot":        {"gpus: {orders: [{name: a.b, class: h200}]}", "gpus.orders.0.name"},
		"a name too long":          {"gpus: {orders: [{name: twenty-characters-xy, class: h200}]}", "gpus.orders.0.name"},
		"an order twice":           {"gpus: {orders: [{name: a, class: h200}, {name: a, class: h200}]}", "a device is there twice"},
		"an order and a device":    {"gpus: {orders: [{name: a, class: h200}], devices: [b, trainer-a, c]}", "a device is there twice: trainer-a\n"},
		"a template with a name":   {"gpus: {templates: [{name: a, class: h200}]}", "name"},
		"a VM's name":              {"name: Trainer", "name"},
		"run strategy":             {"runStrategy: Sometimes", "runStrategy"},
		"no disk":                  {"disk: {containerDisk: ''}", "disk: give a containerDisk or a persistentVolumeClaim"},
		"memory":                   {"memory: 16", "memory"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := renderAs(t, loadChart(t, vmChart), tc.values, trainer)
			if err == nil || !strings.Contains(strings.ReplaceAll(err.Error()+"\n", "/", "."), tc.want) {
				t.Errorf("the error is %v, want one about %s", err, tc.want)
			}
		})
	}
}
