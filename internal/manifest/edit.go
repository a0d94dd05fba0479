package manifest

import (
	"fmt"
	"slices"
	"strings"
)

// Path leads through mappings to a value, one key an element.
type Path []string

// String returns "spec.configuration.permittedHostDevices".
func (p Path) String() string { return strings.Join(p, ".") }

// Edit is one change of an object. Edits are applied in order, and apply alike
// to the generic form and to YAML text.
type Edit interface {
	object(Object) error
	// reach says of which values something is changed: those that the first depth
	// keys of the path lead to.
	reach() (path Path, depth int)
	// replaces returns the value that goes, nil when none does.
	replaces(s *source) *node
	// splice returns the change of a text in which these values are blocks.
	splice(s *source) ([]cut, error)
}

// Append adds Value at the end of the list at Path. Missing or null mappings
// and lists on the way are created. Value is of the generic form, or Fields.
type Append struct {
	Path  Path
	Value any
}

// Fields is a mapping that keeps its order when it is written as text.
type Fields []Field

// Field is one key of a Fields mapping.
type Field struct {
	Key   string
	Value any
}

// Map returns the mapping in its generic form.
func (f Fields) Map() Object {
	out := make(Object, len(f))
	for _, x := range f {
		out[x.Key] = plain(x.Value)
	}
	return out
}

// plain returns the generic form of an edit's value.
func plain(v any) any {
	switch t := v.(type) {
	case Fields:
		return t.Map()
	case []any:
		out := make([]any, len(t))
		for i, x := range t {
			out[i] = plain(x)
		}
		return out
	}
	return DeepCopy(v)
}

// Set writes Value at Path, creating missing or null mappings on the way. Value is
// of the generic form, or Fields.
type Set struct {
	Path  Path
	Value any
}

// Delete removes the key at Path. A missing key is no error.
type Delete struct{ Path Path }

// RemoveItem removes item Index of the list at Path.
type RemoveItem struct {
	Path  Path
	Index int
}

// ApplyTo returns a copy of obj with the edits applied. An edit that meets a
// value of another shape than it needs is an error that names the path.
func ApplyTo(obj Object, edits []Edit) (Object, error) {
	out, _ := DeepCopy(obj).(map[string]any)
	for _, e := range edits {
		if err := e.object(out); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Lookup returns the value at path; ok is false when a key on the way is
// missing or is no mapping.
func Lookup(obj Object, path Path) (v any, ok bool) {
	v = obj
	for _, key := range path {
		m, isMap := v.(map[string]any)
		if !isMap {
			return nil, false
		}
		if v, ok = m[key]; !ok {
			return nil, false
		}
	}
	return v, true
}

// parent returns the mapping that holds the last key of path. With create,
// missing and null mappings on the way are made.
func parent(obj Object, path Path, create bool) (Object, error) {
	for i, key := range path[:len(path)-1] {
		next, ok := obj[key].(map[string]any)
		switch {
		case ok:
		case obj[key] != nil:
			return nil, wrongShape(path[:i+1], "a mapping")
		case !create:
			return nil, nil
		default:
			next = Object{}
			obj[key] = next
		}
		obj = next
	}
	return obj, nil
}

func wrongShape(path Path, want string) error {
	return fmt.Errorf("change %s: it is not %s; correct it by hand first", path, want)
}

func (e Append) object(obj Object) error {
	m, err := parent(obj, e.Path, true)
	if err != nil {
		return err
	}
	key := e.Path[len(e.Path)-1]
	list, ok := m[key].([]any)
	if !ok && m[key] != nil {
		return wrongShape(e.Path, "a list")
	}
	m[key] = append(slices.Clip(list), plain(e.Value))
	return nil
}

func (e Set) object(obj Object) error {
	m, err := parent(obj, e.Path, true)
	if err != nil {
		return err
	}
	m[e.Path[len(e.Path)-1]] = plain(e.Value)
	return nil
}

func (e Delete) object(obj Object) error {
	m, err := parent(obj, e.Path, false)
	if err == nil && m != nil {
		delete(m, e.Path[len(e.Path)-1])
	}
	return err
}

func (e RemoveItem) object(obj Object) error {
	m, err := parent(obj, e.Path, false)
	if err != nil {
		return err
	}
	key := e.Path[len(e.Path)-1]
	list, ok := m[key].([]any)
	if !ok || e.Index < 0 || e.Index >= len(list) {
		return wrongShape(e.Path, fmt.Sprintf("a list of more than %d items", e.Index))
	}
	m[key] = append(append([]any{}, list[:e.Index]...), list[e.Index+1:]...)
	return nil
}
