// Package manifest reads Kubernetes objects from YAML or JSON text and writes
// changed ones back without losing anything: comments, key order, unknown
// fields and the spelling of scalars stay as they are. It is the only package
// that imports a YAML library.
//
// An edit is put into the lines of the text at the places that the nodes of
// yaml.v3 have; no text is encoded anew. What comes out is read again and held
// against the object it stands for before anybody gets it.
package manifest

import (
	"fmt"

	"sigs.k8s.io/yaml"
)

// Object is the generic form of a Kubernetes object: maps, slices, strings,
// bools, nil and json.Number. Scalars mean what they mean to sigs.k8s.io/yaml
// and so to the API server, but no number loses digits.
type Object = map[string]any

// Marshal returns v as YAML, by its JSON tags.
func Marshal(v any) ([]byte, error) {
	out, err := yaml.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("marshal YAML: %w", err)
	}
	return out, nil
}

// DeepCopy returns a copy of a generic value that shares nothing with it.
func DeepCopy(v any) any { return Map(v, func(scalar any) any { return scalar }) }

// Map is DeepCopy with each scalar as scalar returns it.
func Map(v any, scalar func(any) any) any {
	switch t := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(t))
		for k, x := range t {
			out[k] = Map(x, scalar)
		}
		return out
	case []any:
		out := make([]any, len(t))
		for i, x := range t {
			out[i] = Map(x, scalar)
		}
		return out
	default:
		return scalar(v)
	}
}
