package manifest

import (
	"maps"
	"slices"
	"strconv"

	yamlv3 "go.yaml.in/yaml/v3"
)

// fill adds the entries of a mapping to out. A key that stands twice is an error;
// a merge key ("<<") and the keys beside it may give the same key, and the later
// wins, as it does for sigs.k8s.io/yaml.
func (b *builder) fill(n *node, out Object) error {
	var own map[string]bool // needed where merged keys may stand in the way only
	if hasMerge(n) {
		own = map[string]bool{}
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if isMerge(key) {
			if err := b.merge(value, out); err != nil {
				return err
			}
			continue
		}
		name, err := b.key(key)
		if err != nil {
			return err
		}
		_, twice := out[name]
		if own != nil {
			twice = own[name]
			own[name] = true
		}
		if twice {
			return b.errorf(key, "key %q already set in map", name)
		}
		v, err := b.value(value)
		if err != nil {
			return err
		}
		if list, ok := v.([]any); ok && name == "items" && len(list) > 0 && value.Kind == yamlv3.SequenceNode {
			b.noteItems(list, value.Content)
		}
		out[name] = v
	}
	return nil
}

func (b *builder) noteItems(list []any, nodes []*node) {
	if b.lines == nil {
		return
	}
	lines := make([]int, len(nodes))
	for i, n := range nodes {
		lines[i] = b.above + n.Line
	}
	b.lines[&list[0]] = lines
}

func isMerge(key *node) bool { return key.Kind == yamlv3.ScalarNode && key.ShortTag() == "!!merge" }

func hasMerge(n *node) bool {
	for i := 0; i < len(n.Content); i += 2 {
		if isMerge(n.Content[i]) {
			return true
		}
	}
	return false
}

// merge adds what a merge key's value holds: a mapping, or a list of mappings of
// which the first that has a key wins.
func (b *builder) merge(value *node, out Object) error {
	sources := []*node{value}
	if value.Kind == yamlv3.SequenceNode {
		sources = value.Content
	}
	for _, source := range slices.Backward(sources) {
		if err := b.mergeOne(source, out); err != nil {
			return err
		}
	}
	return nil
}

func (b *builder) mergeOne(n *node, out Object) error {
	switch n.Kind {
	case yamlv3.MappingNode:
		v, err := b.value(n)
		if err != nil {
			return err
		}
		merged, _ := v.(map[string]any)
		maps.Copy(out, merged)
		return nil
	case yamlv3.AliasNode:
		_, err := b.alias(n, func(target *node) (any, error) {
			if target.Kind != yamlv3.MappingNode {
				return nil, b.errorf(n, "a merge key needs a mapping, or a list of mappings")
			}
			return nil, b.mergeOne(target, out)
		})
		return err
	}
	return b.errorf(n, "a merge key needs a mapping, or a list of mappings")
}

// key returns the name that a key gets in JSON. Numbers and booleans become text
// the way sigs.k8s.io/yaml makes it.
func (b *builder) key(n *node) (string, error) {
	if n.Kind == yamlv3.AliasNode {
		n = n.Alias
	}
	if n.Kind != yamlv3.ScalarNode {
		return "", b.errorf(n, "a key must be text, it is a mapping or a list")
	}
	v, _, err := b.scalar(n)
	if err != nil {
		return "", err
	}
	switch t := v.(type) {
	case string:
		return t, nil
	case bool:
		return strconv.FormatBool(t), nil
	case int64:
		return strconv.FormatInt(t, 10), nil
	case float64:
		return floatKey(t), nil
	}
	return "", b.errorf(n, "a key must be text, it is %q", n.Value)
}

func floatKey(f float64) string {
	switch s := strconv.FormatFloat(f, 'g', -1, 32); s {
	case "+Inf":
		return ".inf"
	case "-Inf":
		return "-.inf"
	case "NaN":
		return ".nan"
	default:
		return s
	}
}
