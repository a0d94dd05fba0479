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
	"regexp"
	"slices"
	"strconv"
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
	root, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, fmt.Errorf("read folder %s: %w", path, err)
	}
	err = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.HasPrefix(d.Name(), "..") && p != root {
			return fs.SkipDir // a mounted ConfigMap's own copies, linked from beside them
		}
		if err == nil && !d.IsDir() && !strings.HasPrefix(d.Name(), "..") && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(p)) {
			files = append(files, filepath.Join(path, strings.TrimPrefix(p, root)))
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

// Parse reads every document of one file's text. Documents are told apart by
// lines that start with "---", as Kubernetes' own reader does.
func Parse(file string, data []byte) ([]Document, []Skipped, error) {
	var docs []Document
	var skipped []Skipped
	for _, part := range split(data) {
		d, s, err := part.parse(file)
		if err != nil {
			return nil, nil, err
		}
		docs, skipped = append(docs, d...), append(skipped, s...)
	}
	return docs, skipped, nil
}

// part is the text of one document and the line before it.
type part struct {
	text   []byte
	offset int
}

// split cuts a file into documents.
func split(data []byte) []part {
	var out []part
	current, line := part{}, 0
	for text := range bytes.Lines(bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))) {
		line++
		if rest, ok := bytes.CutPrefix(text, []byte("---")); ok && (len(rest) == 0 || bytes.ContainsRune([]byte(" \t\r\n"), rune(rest[0]))) {
			out = append(out, current)
			current = part{offset: line - 1}
			text = append([]byte("   "), rest...) // "--- # comment" and "--- {a: b}" go on behind it
			if len(bytes.TrimSpace(rest)) == 0 {
				text = []byte("\n")
			}
		}
		current.text = append(current.text, text...)
	}
	return append(out, current)
}

// parse reads one document: itself, or the items of a List.
func (p part) parse(file string) ([]Document, []Skipped, error) {
	var root yamlv3.Node
	if err := yamlv3.Unmarshal(p.text, &root); err != nil {
		return nil, nil, fmt.Errorf("parse %s: %s", file, p.relocate(err))
	}
	if len(root.Content) == 0 || isNull(root.Content[0]) {
		return nil, nil, nil
	}
	data, err := yaml.YAMLToJSONStrict(p.text)
	if err != nil {
		return nil, nil, fmt.Errorf("parse %s: %s", file, p.relocate(err))
	}
	value, err := decodeJSON(data)
	if err != nil {
		return nil, nil, fmt.Errorf("parse %s: document at line %d: %w", file, root.Content[0].Line+p.offset, err)
	}
	node, err := withoutAliases(root.Content[0])
	if err != nil {
		return nil, nil, fmt.Errorf("parse %s: document at line %d: %w", file, root.Content[0].Line+p.offset, err)
	}
	keepComments(node, &root)
	return unpack(file, p.offset, node, value)
}

// keepComments gives a document's first node the comments that stand before and
// behind it, apart by blank lines.
func keepComments(node, root *yamlv3.Node) {
	node.HeadComment = joinComments(root.HeadComment, node.HeadComment)
	node.FootComment = joinComments(node.FootComment, root.FootComment)
}

func joinComments(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "\n\n" + b
}

var lineNumber = regexp.MustCompile(`line (\d+)`)

// relocate returns a YAML library's error with the file's line numbers instead of
// the document's, and without the library's own prefixes.
func (p part) relocate(err error) string {
	text := err.Error()
	for _, prefix := range []string{"error converting YAML to JSON: ", "yaml: ", "unmarshal errors:\n  "} {
		text = strings.TrimPrefix(text, prefix)
	}
	return lineNumber.ReplaceAllStringFunc(text, func(m string) string {
		n, _ := strconv.Atoi(strings.TrimPrefix(m, "line "))
		return "line " + strconv.Itoa(n+p.offset)
	})
}

// unpack turns one YAML node and its value into documents: itself, or a List's
// items.
func unpack(file string, offset int, node *yamlv3.Node, value any) ([]Document, []Skipped, error) {
	line := node.Line + offset
	skip := func(reason string) ([]Document, []Skipped, error) {
		return nil, []Skipped{{File: file, Line: line, Reason: reason}}, nil
	}
	obj, ok := value.(map[string]any)
	if value == nil {
		return nil, nil, nil
	}
	if !ok {
		return skip("it is no Kubernetes object (not a mapping)")
	}
	doc := Document{File: file, Line: line, Object: obj, node: node}
	switch kind := doc.Kind(); {
	case kind == "":
		return skip("it is no Kubernetes object (no kind)")
	case strings.HasSuffix(kind, "List") && (kind == "List" || isList(obj)):
		return unpackItems(file, offset, node, obj, strings.TrimSuffix(kind, "List"), doc.APIVersion())
	}
	return []Document{doc}, nil, nil
}

func isList(obj Object) bool { _, ok := obj["items"].([]any); return ok }

// unpackItems returns the items of a List. The items of a typed list (NodeList)
// carry neither kind nor apiVersion: they are completed from the list's own.
func unpackItems(file string, offset int, list *yamlv3.Node, obj Object, kind, apiVersion string) ([]Document, []Skipped, error) {
	items, _ := obj["items"].([]any)
	nodes := child(list, "items")
	if len(items) == 0 {
		return nil, nil, nil
	}
	var docs []Document
	var skipped []Skipped
	for i, item := range items {
		node := nodes.Content[i]
		if m, ok := item.(map[string]any); ok && kind != "" && m["kind"] == nil {
			m["kind"], m["apiVersion"] = kind, apiVersion
			node.Content = append(scalars("apiVersion", apiVersion, "kind", kind), node.Content...)
		}
		d, s, err := unpack(file, offset, node, item)
		if err != nil {
			return nil, nil, err
		}
		docs, skipped = append(docs, d...), append(skipped, s...)
	}
	return docs, skipped, nil
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
