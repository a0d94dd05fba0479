package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"
)

// maxFileBytes bounds one input file. A dump of a large cluster's Nodes fits;
// a core file given by mistake does not.
const maxFileBytes = 256 << 20

// Document is one Kubernetes object and where it was read.
type Document struct {
	File   string
	Line   int // of the document's first line in File, from 1
	Object Object
	node   *yamlv3.Node
}

// Kind returns the object's kind.
func (d *Document) Kind() string { return str(d.Object["kind"]) }

// APIVersion returns the object's apiVersion.
func (d *Document) APIVersion() string { return str(d.Object["apiVersion"]) }

// Meta returns a string of the object's metadata, "" when it has none.
func (d *Document) Meta(key string) string {
	meta, _ := d.Object["metadata"].(map[string]any)
	return str(meta[key])
}

// Ref names the object as "Kind namespace/name".
func (d *Document) Ref() string {
	name := d.Meta("name")
	if ns := d.Meta("namespace"); ns != "" {
		name = ns + "/" + name
	}
	return d.Kind() + " " + name
}

// Skipped is a document that is no Kubernetes object, and why.
type Skipped struct {
	File   string
	Line   int
	Reason string
}

// String returns "file.yaml:3: reason".
func (s Skipped) String() string { return fmt.Sprintf("%s:%d: skipped, %s", s.File, s.Line, s.Reason) }

// Load reads every document below the given paths: files, or folders whose
// *.yaml, *.yml and *.json files are read in name order, subfolders included.
// "-" is stdin. Lists are unpacked. A document that is no Kubernetes object is
// returned as skipped; text that is no YAML is an error that names file and line.
func Load(stdin io.Reader, paths ...string) ([]Document, []Skipped, error) {
	var docs []Document
	var skipped []Skipped
	for _, path := range paths {
		files, err := expand(path)
		if err != nil {
			return nil, nil, err
		}
		for _, file := range files {
			data, err := readAll(stdin, file)
			if err != nil {
				return nil, nil, err
			}
			d, s, err := Parse(file, data)
			if err != nil {
				return nil, nil, err
			}
			docs, skipped = append(docs, d...), append(skipped, s...)
		}
	}
	return docs, skipped, nil
}

func expand(path string) ([]string, error) {
	if path == "-" {
		return []string{path}, nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, errors.Unwrap(err))
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	var files []string
	err = filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(p)) {
			files = append(files, p)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read folder %s: %w", path, err)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("read folder %s: it holds no .yaml, .yml or .json file", path)
	}
	return files, nil
}

func readAll(stdin io.Reader, file string) ([]byte, error) {
	r := stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", file, errors.Unwrap(err))
		}
		defer f.Close()
		r = f
	}
	data, err := io.ReadAll(io.LimitReader(r, maxFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	if len(data) > maxFileBytes {
		return nil, fmt.Errorf("read %s: larger than %d MiB; give the objects it needs only", file, maxFileBytes>>20)
	}
	return data, nil
}

// Parse reads every document of one file's text.
func Parse(file string, data []byte) ([]Document, []Skipped, error) {
	var docs []Document
	var skipped []Skipped
	dec := yamlv3.NewDecoder(bytes.NewReader(bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))))
	for {
		var root yamlv3.Node
		err := dec.Decode(&root)
		if errors.Is(err, io.EOF) {
			return docs, skipped, nil
		}
		if err != nil {
			return nil, nil, fmt.Errorf("parse %s: %s", file, strings.TrimPrefix(err.Error(), "yaml: "))
		}
		if len(root.Content) == 0 {
			continue
		}
		node, err := withoutAliases(root.Content[0])
		if err != nil {
			return nil, nil, fmt.Errorf("parse %s: document at line %d: %w", file, root.Content[0].Line, err)
		}
		d, s, err := unpack(file, node)
		if err != nil {
			return nil, nil, err
		}
		docs, skipped = append(docs, d...), append(skipped, s...)
	}
}

// unpack turns one YAML node into documents: itself, or a List's items.
func unpack(file string, node *yamlv3.Node) ([]Document, []Skipped, error) {
	if node.Kind == yamlv3.ScalarNode && node.Tag == "!!null" {
		return nil, nil, nil
	}
	value, err := generic(node)
	if err != nil {
		return nil, nil, fmt.Errorf("parse %s: document at line %d: %w", file, node.Line, err)
	}
	doc := Document{File: file, Line: node.Line, node: node}
	skip := func(reason string) ([]Document, []Skipped, error) {
		return nil, []Skipped{{File: file, Line: node.Line, Reason: reason}}, nil
	}
	obj, ok := value.(map[string]any)
	if !ok {
		return skip("it is no Kubernetes object (not a mapping)")
	}
	doc.Object = obj
	switch kind := doc.Kind(); {
	case kind == "":
		return skip("it is no Kubernetes object (no kind)")
	case kind == "List" || strings.HasSuffix(kind, "List") && isList(obj):
		return unpackItems(file, node, strings.TrimSuffix(kind, "List"), doc.APIVersion())
	}
	return []Document{doc}, nil, nil
}

func isList(obj Object) bool { _, ok := obj["items"].([]any); return ok }

// unpackItems returns the items of a List. The items of a typed list (NodeList)
// carry neither kind nor apiVersion: they are completed from the list's own.
func unpackItems(file string, list *yamlv3.Node, kind, apiVersion string) ([]Document, []Skipped, error) {
	var docs []Document
	var skipped []Skipped
	items := child(list, "items")
	if items == nil {
		return nil, nil, nil
	}
	for _, item := range items.Content {
		if item.Kind == yamlv3.MappingNode && kind != "" && child(item, "kind") == nil {
			item.Content = append(scalars("apiVersion", apiVersion, "kind", kind), item.Content...)
		}
		d, s, err := unpack(file, item)
		if err != nil {
			return nil, nil, err
		}
		docs, skipped = append(docs, d...), append(skipped, s...)
	}
	return docs, skipped, nil
}

// generic decodes a node the way the Kubernetes API server reads YAML.
func generic(node *yamlv3.Node) (any, error) {
	text, err := yamlv3.Marshal(node)
	if err != nil {
		return nil, err
	}
	data, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, errors.New(strings.TrimPrefix(strings.TrimPrefix(err.Error(), "yaml: "), "unmarshal errors:\n  "))
	}
	return decodeJSON(data)
}

func decodeJSON(data []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, fmt.Errorf("decode JSON: %w", err)
	}
	return v, nil
}

func str(v any) string { s, _ := v.(string); return s }
