package manifest

import (
	"slices"

	yamlv3 "go.yaml.in/yaml/v3"
)

// layout is how a text is indented, in columns: how far a mapping stands in from
// the key it belongs to, the dashes of a list from theirs, and an item from its
// dash. 0 dashes are "compact". Unknown is -1.
type layout struct{ mapping, dash, item int }

// canonicalLayout is that of kubectl.
func canonicalLayout() layout { return layout{mapping: 2, dash: 0, item: 2} }

// layout returns how the text is indented around a node: as in it, or else as in
// the closest value around that shows it.
func (s *source) layout(n *node) layout {
	l := layout{-1, -1, -1}
	for _, around := range slices.Backward(lineage(s.root, n)) {
		s.survey(around, &l)
	}
	std := canonicalLayout()
	if l.mapping < 0 {
		l.mapping = std.mapping
	}
	if l.dash < 0 {
		l.dash = std.dash
	}
	if l.item < 0 {
		l.item = std.item
	}
	return l
}

// lineage returns the nodes from root to n, both included.
func lineage(root, n *node) []*node {
	if root == n {
		return []*node{root}
	}
	for _, c := range root.Content {
		if below := lineage(c, n); below != nil {
			return append([]*node{root}, below...)
		}
	}
	return nil
}

// survey takes what is not known yet from the first block in n that shows it.
func (s *source) survey(n *node, l *layout) {
	for i := 0; n.Kind == yamlv3.MappingNode && i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if isFlow(value) || !isContainer(value) {
			continue
		}
		first := value.Content[0]
		switch value.Kind {
		case yamlv3.MappingNode:
			l.mapping = known(l.mapping, first.Column-key.Column, 1)
		case yamlv3.SequenceNode:
			dash := s.dash(value, 0) + 1
			l.dash = known(l.dash, dash-key.Column, 0)
			if s.lineAt(s.dashOffset(first)) == first.Line-1 {
				l.item = known(l.item, first.Column-dash, 2)
			}
		}
	}
	for _, c := range n.Content {
		s.survey(c, l)
	}
}

// known returns what was known of a width, or else what is seen if it can be one.
func known(was, seen, atLeast int) int {
	if was < 0 && seen >= atLeast {
		return seen
	}
	return was
}
