package manifest

import (
	"fmt"
	"slices"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
)

// textParent is parent for YAML nodes.
func textParent(n *yamlNode, path Path, create bool) (*yamlNode, error) {
	for i, key := range path[:len(path)-1] {
		next := child(n, key)
		switch {
		case next != nil && next.Kind == yamlv3.MappingNode:
		case !isNull(next):
			return nil, wrongShape(path[:i+1], "a mapping")
		case !create:
			return nil, nil
		default:
			next = replaceNull(n, key, next, yamlv3.MappingNode)
		}
		n = next
	}
	return n, nil
}

// replaceNull puts an empty mapping or list where a key is missing or null. A
// comment that stood beside the null goes to the key's line.
func replaceNull(n *yamlNode, key string, old *yamlNode, kind yamlv3.Kind) *yamlNode {
	fresh := &yamlNode{Kind: kind}
	setChild(n, key, fresh)
	if old == nil {
		return fresh
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key && n.Content[i].LineComment == "" {
			n.Content[i].LineComment = old.LineComment
		}
	}
	return fresh
}

func (e Append) text(root *yamlNode) error {
	m, err := textParent(root, e.Path, true)
	if err != nil {
		return err
	}
	key := e.Path[len(e.Path)-1]
	list := child(m, key)
	switch {
	case isNull(list):
		list = replaceNull(m, key, list, yamlv3.SequenceNode)
	case list.Kind != yamlv3.SequenceNode:
		return wrongShape(e.Path, "a list")
	}
	value, err := nodeOf(e.Value)
	if err != nil {
		return err
	}
	if len(list.Content) == 0 {
		list.Style &^= yamlv3.FlowStyle
	}
	list.Content = append(list.Content, value)
	return nil
}

func (e Set) text(root *yamlNode) error {
	m, err := textParent(root, e.Path, true)
	if err != nil {
		return err
	}
	value, err := nodeOf(e.Value)
	if err != nil {
		return err
	}
	setChild(m, e.Path[len(e.Path)-1], value)
	return nil
}

func (e Delete) text(root *yamlNode) error {
	m, err := textParent(root, e.Path, false)
	if err != nil || m == nil {
		return err
	}
	for i := 0; i+1 < len(m.Content); i += 2 {
		if m.Content[i].Value == e.Path[len(e.Path)-1] {
			m.Content = slices.Delete(m.Content, i, i+2)
			return nil
		}
	}
	return nil
}

func (e RemoveItem) text(root *yamlNode) error {
	m, err := textParent(root, e.Path, false)
	if err != nil {
		return err
	}
	list := child(m, e.Path[len(e.Path)-1])
	if list == nil || list.Kind != yamlv3.SequenceNode || e.Index < 0 || e.Index >= len(list.Content) {
		return wrongShape(e.Path, fmt.Sprintf("a list of more than %d items", e.Index))
	}
	list.Content = slices.Delete(list.Content, e.Index, e.Index+1)
	return nil
}

// nodeOf makes YAML of a value. Strings with a colon are quoted: a selector such
// as 10DE:1E07 must stay text for every YAML reader.
func nodeOf(v any) (*yamlNode, error) {
	if fields, ok := v.(Fields); ok {
		return fieldsNode(fields)
	}
	text, err := yamlv3.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode YAML: %w", err)
	}
	var root yamlNode
	if err := yamlv3.Unmarshal(text, &root); err != nil {
		return nil, fmt.Errorf("encode YAML: %w", err)
	}
	quoteColons(root.Content[0])
	return root.Content[0], nil
}

func fieldsNode(fields Fields) (*yamlNode, error) {
	n := &yamlNode{Kind: yamlv3.MappingNode}
	for _, f := range fields {
		value, err := nodeOf(f.Value)
		if err != nil {
			return nil, err
		}
		setChild(n, f.Key, value)
	}
	return n, nil
}

func quoteColons(n *yamlNode) {
	if n.Kind == yamlv3.ScalarNode && n.ShortTag() == "!!str" && strings.Contains(n.Value, ":") && n.Style == 0 {
		n.Style = yamlv3.DoubleQuotedStyle
	}
	for _, c := range n.Content {
		quoteColons(c)
	}
}
