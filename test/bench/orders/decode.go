package main

import (
	"bytes"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// decode reads a manifest.
func decode(text []byte, u *unstructured.Unstructured) error {
	return yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), len(text)).Decode(&u.Object)
}
