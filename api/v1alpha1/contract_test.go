package v1alpha1_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
)

// What others have written down: charts, manifests and quotas of users.
func TestContract(t *testing.T) {
	for got, want := range map[string]string{
		v1alpha1.AnnotationDevices:                "gpuctl.dev/devices",
		v1alpha1.LabelDeviceReference:             "gpuctl.dev/device-reference",
		v1alpha1.LabelTemplateDevice:              "gpuctl.dev/template-device",
		v1alpha1.AnnotationRequestID:              "gpuctl.dev/request-id",
		v1alpha1.AnnotationLedger:                 "gpuctl.dev/ledger",
		v1alpha1.ControllerLease:                  "gpuctl-controller",
		v1alpha1.LedgerName:                       "gpuctl-ledger",
		v1alpha1.LedgerKey:                        "ledger",
		v1alpha1.LabelParent:                      "gpuctl.dev/parent",
		v1alpha1.LabelEntitlement("vgpu"):         "gpuctl.dev/entitlement.vgpu",
		v1alpha1.BudgetAll:                        "gpuctl.dev/gpus",
		v1alpha1.BudgetOfClass("h200"):            "class.gpuctl.dev/h200",
		v1alpha1.BudgetOfResource("nvidia.com/A"): "requests.nvidia.com/A",
		v1alpha1.FinalizerUnits:                   "gpuctl.dev/units",
		v1alpha1.SettingsName:                     "gpuctl-settings",
		v1alpha1.SettingResourceNames:             "resourceNames",
		v1alpha1.EncodeResourceNames(nil):         `[]`,
		v1alpha1.EncodeResourceNames([]string{"b.c/D", "a.b/C", "b.c/D"}):      `["a.b/C","b.c/D"]`,
		v1alpha1.EncodeReferences(v1alpha1.References{Devices: []string{"a"}}): `{"devices":["a"]}`,
		v1alpha1.EncodeReferences(v1alpha1.References{
			Devices: []string{"a"}, Templates: []v1alpha1.Template{{Class: "h200", Count: 4}},
		}): `{"devices":["a"],"templates":[{"class":"h200","count":4}]}`,
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestDecodeResourceNames(t *testing.T) {
	for name, tc := range map[string]struct {
		data  map[string]string
		want  []string
		wrong []string // parts of the error
	}{
		"none":         {data: value(`[]`), want: []string{}},
		"two, as they": {data: value(` ["b.c/D", "a.b/C"] `), want: []string{"b.c/D", "a.b/C"}},

		"no key":               {data: map[string]string{"other": "x"}, wrong: []string{"ConfigMap gpuctl-settings", `no key "resourceNames"`}},
		"empty":                {data: value(``), wrong: []string{"resourceNames of ConfigMap gpuctl-settings", "want a JSON list of strings", "it is empty"}},
		"null":                 {data: value(`null`), wrong: []string{"want a JSON list of strings", "it is null"}},
		"a string":             {data: value(`"nvidia.com/A"`), wrong: []string{"want a JSON list of strings: a string where a list is expected"}},
		"YAML":                 {data: value("- nvidia.com/A"), wrong: []string{"want a JSON list of strings"}},
		"a number":             {data: value(`[1]`), wrong: []string{"want a JSON list of strings: [0]: the number 1 where a string is expected"}},
		"cut off":              {data: value(`["nvidia.com/A"`), wrong: []string{"want a JSON list of strings"}},
		"something follows":    {data: value(`["nvidia.com/A"] ["nvidia.com/B"]`), wrong: []string{"something follows"}},
		"garbage follows":      {data: value(`["nvidia.com/A"]]`), wrong: []string{"something follows"}},
		"no domain, and space": {data: value(`["nvidia.com/A", "A10", "nvidia.com/A 10"]`), wrong: []string{`entry 1: "A10" has no domain`, `entry 2: "nvidia.com/A 10"`}},
		"a null":               {data: value(`["nvidia.com/A", null]`), wrong: []string{"want a JSON list of strings", "[1] is null"}},
		"empty name":           {data: value(`[""]`), wrong: []string{`entry 0: ""`}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := v1alpha1.DecodeResourceNames(tc.data)
			says(t, err, tc.wrong)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("names (-want +got):\n%s", diff)
			}
		})
	}
}

func value(text string) map[string]string { return map[string]string{"resourceNames": text} }

// says fails the test unless err has all parts, or is nil where there are none.
func says(t *testing.T, err error, parts []string) {
	t.Helper()
	if (err != nil) != (len(parts) > 0) {
		t.Fatalf("error %v, want %q", err, parts)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not in the error: %v", part, err)
		}
	}
}

func TestResourceNamesReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOf(rapid.StringMatching(`[a-c]{1,2}\.d/[A-C][-_.]?[0-9]`)).Draw(t, "names")
		want := slices.Compact(slices.Sorted(slices.Values(names)))
		got, err := v1alpha1.DecodeResourceNames(value(v1alpha1.EncodeResourceNames(names)))
		if err != nil || !slices.Equal(want, got) {
			t.Fatalf("%q, %v; want %q", got, err, want)
		}
	})
}

func TestDecodeReferences(t *testing.T) {
	devices := make([]string, 65)
	for i := range devices {
		devices[i] = fmt.Sprintf("d%d", i)
	}
	for name, tc := range map[string]struct {
		text  string
		want  v1alpha1.References
		wrong []string // parts of the error
	}{
		"both": {
			text: `{"devices":["train-a"],"templates":[{"class":"h200","count":4},{"class":"h200"}]}`,
			want: v1alpha1.References{Devices: []string{"train-a"}, Templates: []v1alpha1.Template{{Class: "h200", Count: 4}, {Class: "h200", Count: 1}}},
		},
		"64": {text: v1alpha1.EncodeReferences(v1alpha1.References{Devices: devices[:64]}), want: v1alpha1.References{Devices: devices[:64]}},

		"65":                {text: v1alpha1.EncodeReferences(v1alpha1.References{Devices: devices}), wrong: []string{"it names 65", "a VM can have 64"}},
		"empty":             {text: ``, wrong: []string{"annotation gpuctl.dev/devices", `want {"devices":["NAME"]`, "it is empty"}},
		"null":              {text: `null`, wrong: []string{"it is null"}},
		"no object":         {text: `["a"]`, wrong: []string{`want {"devices":["NAME"]`}},
		"a name":            {text: `train-a`, wrong: []string{`want {"devices":["NAME"]`}},
		"nothing":           {text: `{}`, wrong: []string{"neither a device nor a template", "gpuctl.dev/device-reference"}},
		"a typo":            {text: `{"device":["a"]}`, wrong: []string{`unknown field "device"`}},
		"a typo inside":     {text: `{"templates":[{"className":"h200"}]}`, wrong: []string{`unknown field "className"`}},
		"twice":             {text: `{"devices":["a","b","a"]}`, wrong: []string{`devices[2]: "a" is there twice`}},
		"dot":               {text: `{"devices":["a.b"]}`, wrong: []string{`devices[0]: "a.b" is not the name of a GPUDevice`}},
		"long":              {text: `{"devices":["` + strings.Repeat("d", 61) + `"]}`, wrong: []string{"devices[0]", "is not the name of a GPUDevice"}},
		"no class":          {text: `{"templates":[{"count":1}]}`, wrong: []string{`templates[0].class: "" is not the name of a GPUClass`}},
		"resource as class": {text: `{"templates":[{"class":"nvidia.com/A"}]}`, wrong: []string{`templates[0].class: "nvidia.com/A"`}},
		"65 units":          {text: `{"templates":[{"class":"h200","count":65}]}`, wrong: []string{"templates[0].count: 65 is not between 1 and 64"}},
		"negative":          {text: `{"templates":[{"class":"h200","count":-1}]}`, wrong: []string{"templates[0].count: -1"}},
		"0 units":           {text: `{"templates":[{"class":"h200"},{"class":"h200","count":0}]}`, wrong: []string{"templates[1].count: 0 is not between 1 and 64"}},
		"something follows": {text: `{"devices":["a"]}{}`, wrong: []string{"something follows"}},

		"in capitals":                {text: `{"Devices":["a"]}`, wrong: []string{`want {"devices":["NAME"]`, `Devices: the field is written "devices"`}},
		"in capitals inside":         {text: `{"templates":[{"class":"h200"},{"CLASS":"h200"}]}`, wrong: []string{`templates[1].CLASS: the field is written "class"`}},
		"devices twice":              {text: `{"devices":["a"],"devices":["b"]}`, wrong: []string{"devices is there twice"}},
		"devices twice, with long s": {text: `{"devices":["a"],"deviceſ":["b"]}`, wrong: []string{`deviceſ: the field is written "devices"`}},
		"templates twice":            {text: `{"templates":[{"class":"h200","count":8}],"templates":[{"class":"l40s"}]}`, wrong: []string{"templates is there twice"}},
		"count twice":                {text: `{"templates":[{"class":"h200","count":8,"count":1}]}`, wrong: []string{"templates[0].count is there twice"}},
		"devices are null":           {text: `{"devices":null,"templates":[{"class":"h200"}]}`, wrong: []string{"devices is null"}},
		"a device is null":           {text: `{"devices":["a",null]}`, wrong: []string{"devices[1] is null"}},
		"a template is null":         {text: `{"templates":[null]}`, wrong: []string{"templates[0] is null"}},
		"count is null":              {text: `{"templates":[{"class":"h200","count":null}]}`, wrong: []string{"templates[0].count is null"}},

		"count is a string":     {text: `{"templates":[{"class":"h200"},{"class":"x","count":"4"}]}`, wrong: []string{":1}]}: templates[1].count: a string where a whole number is expected"}},
		"count is a fraction":   {text: `{"templates":[{"class":"x","count":1.5}]}`, wrong: []string{":1}]}: templates[0].count: the number 1.5 where a whole number is expected"}},
		"count is written 4.0":  {text: `{"templates":[{"class":"x","count":4.0}]}`, wrong: []string{"templates[0].count: the number 4.0 where a whole number is expected"}},
		"count is far too much": {text: `{"templates":[{"class":"x","count":4294967297}]}`, wrong: []string{"templates[0].count: the number 4294967297 is out of range"}},
		"count is true":         {text: `{"templates":[{"class":"x","count":true}]}`, wrong: []string{"templates[0].count: true or false where a whole number is expected"}},
		"count is a list":       {text: `{"templates":[{"class":"x","count":[4]}]}`, wrong: []string{"templates[0].count: a list where a whole number is expected"}},
		"a number as device":    {text: `{"devices":["a",7]}`, wrong: []string{"devices[1]: the number 7 where a string is expected"}},
		"an object as device":   {text: `{"devices":[{"name":"a"}]}`, wrong: []string{"devices[0]: an object where a string is expected"}},
		"devices are a string":  {text: `{"devices":"a"}`, wrong: []string{"devices: a string where a list is expected"}},
		"devices are an object": {text: `{"devices":{"a":1}}`, wrong: []string{"devices: an object where a list is expected"}},
		"a string as template":  {text: `{"templates":["h200"]}`, wrong: []string{"templates[0]: a string where an object is expected"}},
		"templates are one":     {text: `{"templates":{"class":"h200"}}`, wrong: []string{"templates: an object where a list is expected"}},
		"class is a number":     {text: `{"templates":[{"class":200}]}`, wrong: []string{"templates[0].class: the number 200 where a string is expected"}},
		"a list":                {text: `["a"]`, wrong: []string{":1}]}: a list where an object is expected"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := v1alpha1.DecodeReferences(tc.text)
			says(t, err, tc.wrong)
			if err != nil && strings.Contains(err.Error(), "Go ") {
				t.Errorf("a word for programmers in the error: %v", err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("references (-want +got):\n%s", diff)
			}
		})
	}
}

// Units of different devices of a namespace never have one name, and each is a DNS label.
func TestGPUNamesDiffer(t *testing.T) {
	device := rapid.StringMatching(`[a-b](-?[0-1a-b]){0,3}`)
	unit := rapid.IntRange(0, v1alpha1.MaxUnitsPerDevice-1)
	rapid.Check(t, func(t *rapid.T) {
		a, b := device.Draw(t, "a"), device.Draw(t, "b")
		i, j := unit.Draw(t, "i"), unit.Draw(t, "j")
		if same := a == b && i == j; same != (v1alpha1.GPUName(a, i) == v1alpha1.GPUName(b, j)) {
			t.Fatalf("%s %d and %s %d: %s", a, i, b, j, v1alpha1.GPUName(a, i))
		}
	})
	if longest := v1alpha1.GPUName(strings.Repeat("d", v1alpha1.MaxDeviceName), v1alpha1.MaxUnitsPerDevice-1); len(longest) != 63 {
		t.Errorf("%d characters", len(longest))
	}
}
