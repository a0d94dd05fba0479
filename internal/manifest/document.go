package manifest

import "fmt"

// Document is one Kubernetes object and where it was read.
type Document struct {
	File   string
	Line   int // of the document's first line in File, from 1
	Object Object

	src  []byte // the document's lines in the file; nil: it has none of its own
	item bool   // src is an item of a List, with its dash
	head string // lines that the List's kind implies, to stand before src
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

// Live makes a document of an object that was read from a cluster; its text is
// the object's canonical form.
func Live(source string, obj Object) Document { return Document{File: source, Object: obj} }

// Skipped is a document that is no Kubernetes object, and why.
type Skipped struct {
	File   string
	Line   int
	Reason string
	Object Object // its content when that is a mapping
}

// String returns "file.yaml:3: reason".
func (s Skipped) String() string { return fmt.Sprintf("%s:%d: skipped, %s", s.File, s.Line, s.Reason) }

func str(v any) string { s, _ := v.(string); return s }
