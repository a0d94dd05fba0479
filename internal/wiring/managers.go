package wiring

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/gpuctl/gpuctl/internal/manifest"
)

// Manager is the field manager of what the controller writes.
const Manager = "gpuctl-controller"

// writer is one entry of an object's managedFields.
type writer struct {
	name, operation string
	at              time.Time
	fields          string // canonical JSON
	wiring          bool   // it owns some of what gpuctl writes
}

// managersOf reads an object's managedFields, without those of its status.
func managersOf(obj manifest.Object) []writer {
	v, _ := manifest.Lookup(obj, manifest.Path{"metadata", "managedFields"})
	list, _ := v.([]any)
	var out []writer
	for _, item := range list {
		m, _ := item.(map[string]any)
		if m["subresource"] != nil {
			continue
		}
		text := func(key string) string { s, _ := m[key].(string); return s }
		at, _ := time.Parse(time.RFC3339, text("time"))
		fields, _ := json.Marshal(m["fieldsV1"])
		out = append(out, writer{
			name: text("manager"), operation: text("operation"), at: at, fields: string(fields), wiring: ownsWiring(m["fieldsV1"]),
		})
	}
	return out
}

// ownsWiring reports fields of the host device table or of the gates.
func ownsWiring(fields any) bool {
	m, _ := fields.(map[string]any)
	for key, below := range m {
		switch key {
		case "f:permittedHostDevices", "f:featureGates":
			return true
		case "f:spec", "f:configuration", "f:developerConfiguration", "f:virtualization":
			if ownsWiring(below) {
				return true
			}
		}
	}
	return false
}

// culprit returns who changed the wiring between two looks: the field manager of some of
// its fields, now or before, whose entry is not as it was, the latest of them. It is ""
// when there is none: an update that only takes fields away leaves no trace.
func culprit(before, after []writer) string {
	had := func(m writer) bool {
		return slices.ContainsFunc(before, func(old writer) bool {
			return old.wiring && old.name == m.name && old.operation == m.operation
		})
	}
	changed := slices.DeleteFunc(slices.Clone(after), func(m writer) bool {
		return m.name == Manager || slices.Contains(before, m) || !m.wiring && !had(m)
	})
	// Of a server-side apply that leaves a field out, the entry that shrank tells.
	for _, old := range before {
		still := func(m writer) bool { return m.name == old.name && m.operation == old.operation }
		if old.name != Manager && old.wiring && old.operation == "Apply" && !slices.ContainsFunc(after, still) {
			changed = append(changed, old)
		}
	}
	if len(changed) == 0 {
		return ""
	}
	latest := slices.MaxFunc(changed, func(a, b writer) int {
		switch {
		case a.wiring != b.wiring && a.wiring:
			return 1
		case a.wiring != b.wiring:
			return -1
		case !a.at.Equal(b.at):
			return a.at.Compare(b.at)
		}
		return strings.Compare(a.name, b.name)
	})
	return latest.name
}
