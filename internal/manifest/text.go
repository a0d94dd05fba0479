package manifest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	yamlv3 "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"
)

type yamlNode = yamlv3.Node

// Text returns the document's YAML with the edits applied. What the edits do
// not touch keeps its comments, its order and its spelling. It is laid out anew,
// and where that would change a value (some folded texts) or the text uses
// aliases, the object is written in its canonical form instead: its values are
// always those of the object.
func (d *Document) Text(edits []Edit) ([]byte, error) {
	want, err := ApplyTo(d.Object, edits)
	if err != nil {
		return nil, err
	}
	out, err := d.edited(edits)
	if err != nil {
		return nil, err
	}
	again, _, err := Parse(d.File, out)
	if err == nil && len(again) == 1 && sameJSON(again[0].Object, want) {
		return out, nil
	}
	return canonical(want)
}

// canonical writes an object in Kubernetes' own form.
func canonical(obj Object) ([]byte, error) {
	text, err := Marshal(obj)
	if err != nil {
		return nil, err
	}
	var root yamlNode
	if err := yamlv3.Unmarshal(text, &root); err != nil {
		return nil, fmt.Errorf("encode YAML: %w", err)
	}
	quoteColons(root.Content[0])
	return encode(root.Content[0])
}

// sameJSON compares values as JSON: a number is one however it was decoded.
func sameJSON(a, b any) bool {
	x, err1 := json.Marshal(a)
	y, err2 := json.Marshal(b)
	return err1 == nil && err2 == nil && bytes.Equal(x, y)
}

// edited applies the edits to the YAML nodes.
func (d *Document) edited(edits []Edit) ([]byte, error) {
	if d.node == nil {
		parsed, err := FromObject(d.File, d.Object)
		if err != nil {
			return nil, err
		}
		d.node = parsed.node
	}
	root := cloneNode(d.node)
	for _, e := range edits {
		if err := e.text(root); err != nil {
			return nil, err
		}
	}
	return encode(root)
}

// Live makes a document of an object that was read from a cluster; its text is
// the object's canonical form.
func Live(source string, obj Object) Document { return Document{File: source, Object: obj} }

// FromObject makes a document of a generic object, as if it had been read from
// a file that holds it in canonical form.
func FromObject(source string, obj Object) (Document, error) {
	text, err := Marshal(obj)
	if err != nil {
		return Document{}, err
	}
	docs, _, err := Parse(source, text)
	if err != nil || len(docs) != 1 {
		return Document{}, fmt.Errorf("read back %s: it is no single object: %w", source, err)
	}
	return docs[0], nil
}

func encode(root *yamlNode) ([]byte, error) {
	if root.Style&yamlv3.FlowStyle != 0 { // JSON input: show it as readable YAML
		blockStyle(root)
	}
	var buf bytes.Buffer
	enc := yamlv3.NewEncoder(&buf)
	indent, compact := layout(root)
	enc.SetIndent(indent)
	if compact {
		enc.CompactSeqIndent()
	}
	if err := enc.Encode(root); err != nil {
		return nil, fmt.Errorf("encode YAML: %w", err)
	}
	return buf.Bytes(), nil
}

// layout returns the indentation the text was written with: columns a level,
// and whether the dash of a list stands below its key ("compact").
func layout(root *yamlNode) (indent int, compact bool) {
	indent = 2
	dash := 0 // columns from a key to the dashes below it
	seenMap, seenList := false, false
	var walk func(n *yamlNode)
	walk = func(n *yamlNode) {
		for i := 0; n.Kind == yamlv3.MappingNode && i+1 < len(n.Content); i += 2 {
			key, value := n.Content[i], n.Content[i+1]
			in := value.Column - key.Column
			switch block := value.Style&yamlv3.FlowStyle == 0 && value.Line > key.Line && key.Line > 0; {
			case block && value.Kind == yamlv3.MappingNode && !seenMap && in >= 2 && in <= 8:
				indent, seenMap = in, true
			case block && value.Kind == yamlv3.SequenceNode && !seenList:
				dash, seenList = in, true
			}
		}
		for _, c := range n.Content {
			walk(c)
		}
	}
	walk(root)
	return indent, dash < indent
}

func blockStyle(n *yamlNode) {
	n.Style &^= yamlv3.FlowStyle
	for _, c := range n.Content {
		blockStyle(c)
	}
}

// withoutAliases returns the node itself, or, when anchors and aliases are used
// in it, an equal node in canonical form with all of them spelt out: an edit must
// not reach other places through an alias. Comments and order are lost then.
func withoutAliases(n *yamlNode) (*yamlNode, error) {
	if !hasAlias(n) {
		return n, nil
	}
	text, err := yamlv3.Marshal(n)
	if err != nil {
		return nil, fmt.Errorf("spell out aliases: %w", err)
	}
	data, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, fmt.Errorf("spell out aliases: %w", err)
	}
	var out yamlNode
	if err := yamlv3.Unmarshal(data, &out); err != nil {
		return nil, fmt.Errorf("spell out aliases: %w", err)
	}
	root := out.Content[0]
	root.Line = n.Line
	blockStyle(root)
	return root, nil
}

func hasAlias(n *yamlNode) bool {
	return n.Kind == yamlv3.AliasNode || slices.ContainsFunc(n.Content, hasAlias)
}

func cloneNode(n *yamlNode) *yamlNode {
	out := *n
	out.Content = make([]*yamlNode, len(n.Content))
	for i, c := range n.Content {
		out.Content[i] = cloneNode(c)
	}
	return &out
}

// child returns the value of a mapping's key, or nil.
func child(n *yamlNode, key string) *yamlNode {
	if n == nil || n.Kind != yamlv3.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

func setChild(n *yamlNode, key string, value *yamlNode) {
	if len(n.Content) == 0 { // "{}" would force flow style on what is added
		n.Style &^= yamlv3.FlowStyle
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			n.Content[i+1] = value
			return
		}
	}
	n.Content = append(n.Content, append(scalars(key), value)...)
}

// scalars returns string nodes that are quoted where YAML needs it.
func scalars(values ...string) []*yamlNode {
	out := make([]*yamlNode, len(values))
	for i, v := range values {
		out[i] = new(yamlNode)
		out[i].SetString(v)
	}
	return out
}

func isNull(n *yamlNode) bool {
	return n == nil || n.Kind == yamlv3.ScalarNode && n.ShortTag() == "!!null"
}
