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
	switch l {
	case gpu.ListPCI:
		return []string{s.pciSelector, "resourceName", "externalResourceProvider", "disabled"}
	case gpu.ListMdev:
		return []string{"mdevNameSelector", "resourceName", "externalResourceProvider", "disabled"}
	default:
		return []string{"resourceName", "selectors", "externalResourceProvider", "disabled"}
	}
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
				findings = append(findings, diagnose.New("GPU0321", object, diagnose.Values{"object": object, "problem": problem}))
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
			bad = append(bad, fmt.Sprintf("%s.%s is %v, no text: quote it", where, key, m[key]))
		}
		return v
	}
	e := &gpu.Entry{List: l, Index: i, Name: gpu.ResourceName(text("resourceName"))}
	if key := s.selectorKey(l); key != "" {
		e.Selector = text(key)
	}
	e.External, _ = m["externalResourceProvider"].(bool)
	e.Disabled, _ = m["disabled"].(bool)
	return e, bad
}

func shapeError(p manifest.Path, want string, got any) error {
	return fmt.Errorf("%s is %T, not a %s", p, got, want)
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
