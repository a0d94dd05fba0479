package patch

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/internal/manifest"
)

// RecordKey is the annotation in which gpuctl remembers what it wrote, so that
// it removes exactly that and nothing else.
const RecordKey = "gpuctl.dev/wired"

// recordVersion is the version of the record's format.
const recordVersion = 1

// record is the annotation's value.
type record struct {
	Version int      `json:"version"`
	Entries []wired  `json:"entries,omitempty"`
	Gate    bool     `json:"gate,omitempty"`    // HostDevices was added
	Created []string `json:"created,omitempty"` // paths that did not exist, outermost of each chain
	Nulls   []string `json:"nulls,omitempty"`   // paths that held null
}

// wired is one entry that gpuctl added.
type wired struct {
	List     gpu.List         `json:"list"`
	Selector string           `json:"selector"`
	Name     gpu.ResourceName `json:"resourceName"`
	// InTree is set for an entry that KubeVirt serves itself. Records of earlier
	// releases know no such entries.
	InTree bool `json:"inTree,omitempty"`
	// Explicit is set for an entry that somebody named: it is never stale.
	Explicit bool `json:"explicit,omitempty"`
}

var annotations = manifest.Path{"metadata", "annotations"}

// add notes an entry, once: one that somebody took away and gpuctl wrote again is
// still one entry.
func (r *record) add(w wired) {
	for i := range r.Entries {
		if have := &r.Entries[i]; have.List == w.List && have.Selector == w.Selector && have.Name == w.Name && have.InTree == w.InTree {
			have.Explicit = have.Explicit || w.Explicit
			return
		}
	}
	r.Entries = append(r.Entries, w)
}

// readRecord returns the target's record; an empty one when there is none. An
// error says why it cannot be read; the record is then empty too.
func readRecord(obj manifest.Object) (record, error) {
	v, _ := manifest.Lookup(obj, join(annotations, RecordKey))
	text, _ := v.(string)
	if text == "" {
		return record{Version: recordVersion}, nil
	}
	var r record
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return record{Version: recordVersion}, fmt.Errorf("it is no JSON record: %w", err)
	}
	if r.Version != recordVersion {
		return record{Version: recordVersion}, fmt.Errorf("it has version %d, and this gpuctl reads %d", r.Version, recordVersion)
	}
	return r, nil
}

// noteMissing records which parts of the path an edit will have to create.
func (r *record) noteMissing(obj manifest.Object, p manifest.Path) {
	for i := range p {
		v, ok := manifest.Lookup(obj, p[:i+1])
		switch {
		case !ok:
			r.Created = appendNew(r.Created, p[:i+1].String())
			return
		case v == nil:
			r.Nulls = appendNew(r.Nulls, p[:i+1].String())
			return
		}
	}
}

func appendNew(list []string, s string) []string {
	if slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}
