// Package manifest reads Kubernetes objects from YAML or JSON text and writes
// changed ones back without losing a value; comments, key order and spelling
// stay as far as the text can be laid out anew with them. It is the only package
// that imports a YAML library.
package manifest

import (
	"encoding/json"
	"fmt"

	"sigs.k8s.io/yaml"
)

// Object is the generic form of a Kubernetes object: maps, slices, strings,
// bools, nil and json.Number, as Kubernetes itself reads YAML.
type Object = map[string]any

// Marshal returns v as YAML, by its JSON tags.
func Marshal(v any) ([]byte, error) {
	out, err := yaml.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("marshal YAML: %w", err)
	}
	return out, nil
}

// Unmarshal reads YAML into v, by its JSON tags; unknown fields are errors.
func Unmarshal(data []byte, v any) error {
	if err := yaml.UnmarshalStrict(data, v); err != nil {
		return fmt.Errorf("unmarshal YAML: %w", err)
	}
	return nil
}

// DeepCopy returns a copy of a generic value that shares nothing with it.
func DeepCopy(v any) any {
	switch t := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(t))
		for k, x := range t {
			out[k] = DeepCopy(x)
		}
		return out
	case []any:
		out := make([]any, len(t))
		for i, x := range t {
			out[i] = DeepCopy(x)
		}
		return out
	default:
		return v
	}
}

// Generic turns any JSON-marshalable value into its generic form.
func Generic(v any) (any, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("marshal JSON: %w", err)
	}
	return decodeJSON(data)
}
