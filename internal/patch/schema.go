package patch

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/internal/manifest"
)

// gate is the feature gate that hostDevices need; gpus need none since 1.4.
const gate = "HostDevices"

// schema says where a kind keeps its host device table and its gates.
type schema struct {
	table       manifest.Path
	lists       map[gpu.List]string
	pciSelector string
	gates       manifest.Path // nil: the kind turns HostDevices on by itself
	disabled    manifest.Path
	keyed       bool // the PCI list is a map keyed by its selector
}

func schemaOf(t *Target) schema {
	if t.Kind() == KindKubeVirt {
		dev := manifest.Path{"spec", "configuration", "developerConfiguration"}
		return schema{
			table:       manifest.Path{"spec", "configuration", "permittedHostDevices"},
			lists:       map[gpu.List]string{gpu.ListPCI: "pciHostDevices", gpu.ListMdev: "mediatedDevices", gpu.ListUSB: "usb"},
			pciSelector: "pciVendorSelector",
			gates:       join(dev, "featureGates"),
			disabled:    join(dev, "disabledFeatureGates"),
		}
	}
	s := schema{
		table:       manifest.Path{"spec", "permittedHostDevices"},
		lists:       map[gpu.List]string{gpu.ListPCI: "pciHostDevices", gpu.ListMdev: "mediatedDevices", gpu.ListUSB: "usbHostDevices"},
		pciSelector: "pciDeviceSelector",
		keyed:       true,
	}
	if strings.HasSuffix(t.APIVersion(), "/v1") {
		s.table = manifest.Path{"spec", "virtualization", "permittedHostDevices"}
	}
	return s
}

// TableOf returns the host device table of the target as obj has it.
func TableOf(t *Target, obj manifest.Object) (gpu.Table, error) {
	table, _, err := schemaOf(t).read(obj, t.Ref())
	return table, err
}

func join(p manifest.Path, keys ...string) manifest.Path {
	return append(slices.Clone(p), keys...)
}

func (s schema) list(l gpu.List) manifest.Path { return join(s.table, s.lists[l]) }

// entryKeys returns the fields an entry of a list may have.
func (s schema) entryKeys(l gpu.List) []string {
	keys := []string{"resourceName", "externalResourceProvider"}
	switch l {
	case gpu.ListPCI:
		keys = append(keys, s.pciSelector)
	case gpu.ListMdev:
		keys = append(keys, "mdevNameSelector")
	default:
		keys = append(keys, "selectors")
	}
	if s.keyed {
		keys = append(keys, "disabled")
	}
	return keys
}

// selectorKey returns the field that selects a list's devices, "" for USB.
func (s schema) selectorKey(l gpu.List) string {
	return map[gpu.List]string{gpu.ListPCI: s.pciSelector, gpu.ListMdev: "mdevNameSelector"}[l]
}

// read returns the target's table. A list or mapping of another shape is an
// error that names its path; an entry of another shape is left out of the table
// and reported.
func (s schema) read(obj manifest.Object, object string) (gpu.Table, []diagnose.Finding, error) {
	for i := range s.table {
		v, ok := manifest.Lookup(obj, s.table[:i+1])
		if !ok || v == nil {
			return gpu.Table{}, nil, nil
		}
		if _, isMap := v.(map[string]any); !isMap {
			return gpu.Table{}, nil, shapeError(s.table[:i+1], "mapping", v)
		}
	}
	t := gpu.Table{Set: true}
	var findings []diagnose.Finding
	for _, l := range []gpu.List{gpu.ListPCI, gpu.ListMdev, gpu.ListUSB} {
		v, _ := manifest.Lookup(obj, s.list(l))
		items, ok := v.([]any)
		if !ok && v != nil {
			return gpu.Table{}, nil, shapeError(s.list(l), "list", v)
		}
		for i, item := range items {
			e, bad := s.entry(l, i, item)
			for _, problem := range bad {
				findings = append(findings, diagnose.New("GPU0330", object, diagnose.Values{"problem": problem}))
			}
			if e != nil {
				t.Entries = append(t.Entries, *e)
			}
		}
	}
	return t, findings, nil
}

// entry reads one entry of a list; nil when it is no entry at all.
func (s schema) entry(l gpu.List, i int, item any) (*gpu.Entry, []string) {
	where := fmt.Sprintf("%s[%d]", s.list(l), i)
	m, ok := item.(map[string]any)
	if !ok {
		return nil, []string{where + " is no mapping"}
	}
	var bad []string
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if !slices.Contains(s.entryKeys(l), key) {
			bad = append(bad, fmt.Sprintf("%s.%s is no field of an entry; the fields are %s", where, key, strings.Join(s.entryKeys(l), ", ")))
		}
	}
	text := func(key string) string {
		v, ok := m[key].(string)
		if !ok && m[key] != nil {
			bad = append(bad, fmt.Sprintf("%s.%s is %s, no text: quote it", where, key, kindOf(m[key])))
		}
		return v
	}
	flag := func(key string) bool {
		v, ok := m[key].(bool)
		if !ok && m[key] != nil {
			bad = append(bad, fmt.Sprintf("%s.%s is %s, not true or false", where, key, kindOf(m[key])))
		}
		return v
	}
	e := &gpu.Entry{List: l, Index: i, Name: gpu.ResourceName(text("resourceName"))}
	if key := s.selectorKey(l); key != "" {
		e.Selector = text(key)
	}
	e.External = flag("externalResourceProvider")
	e.Disabled = s.keyed && flag("disabled")
	e.Odd = len(bad) > 0
	return e, bad
}

// kindOf says what kind of value v is, with the value where it is short.
func kindOf(v any) string {
	switch t := v.(type) {
	case nil:
		return "null"
	case map[string]any:
		return "a mapping"
	case []any:
		return "a list"
	case string:
		return fmt.Sprintf("the text %q", t)
	case bool:
		return fmt.Sprintf("the truth value %t", t)
	default:
		return fmt.Sprintf("the number %v", t)
	}
}

func shapeError(p manifest.Path, want string, got any) error {
	return fmt.Errorf("%s is %s, not a %s", p, kindOf(got), want)
}

// strings returns a list of texts at a path: what is there, nil for none.
func (s schema) strings(obj manifest.Object, p manifest.Path) ([]string, error) {
	if p == nil {
		return nil, nil
	}
	for i := range p[:len(p)-1] {
		v, ok := manifest.Lookup(obj, p[:i+1])
		if _, isMap := v.(map[string]any); ok && v != nil && !isMap {
			return nil, shapeError(p[:i+1], "mapping", v)
		}
	}
	v, _ := manifest.Lookup(obj, p)
	items, ok := v.([]any)
	if !ok && v != nil {
		return nil, shapeError(p, "list", v)
	}
	var out []string
	for _, item := range items {
		if text, ok := item.(string); ok {
			out = append(out, text)
		}
	}
	return out, nil
}
