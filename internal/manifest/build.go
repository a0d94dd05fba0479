package manifest

import (
	"fmt"

	yamlv3 "go.yaml.in/yaml/v3"
)

type node = yamlv3.Node

const (
	// maxAliased bounds how many values of a document may come from aliases. A
	// few lines can otherwise stand for billions of values.
	maxAliased = 100_000
	// maxDepth bounds how deep values may lie in each other.
	maxDepth = 1000
)

// lineError is a problem and the line where it is.
type lineError struct {
	line    int
	problem string
}

func (e *lineError) Error() string { return fmt.Sprintf("line %d: %s", e.line, e.problem) }

// itemLines holds, for the items of lists named "items", the lines where they
// start. Its keys point to the lists' first items.
type itemLines map[*any][]int

// builder makes generic values of YAML nodes. The zero builder is ready for use.
type builder struct {
	above   int // how many lines of the file stand above the nodes' first
	texts   interned
	lines   itemLines
	depth   int
	aliased int            // values made so far inside of aliases
	within  int            // how many aliases the current value is in
	open    map[*node]bool // what these aliases stand for
}

// interned holds one copy of every short text. Nodes repeat the same few
// thousand keys and values a million times.
type interned map[string]string

func (in interned) get(s string) string {
	if in == nil || len(s) > 64 {
		return s
	}
	if t, ok := in[s]; ok {
		return t
	}
	if len(in) < 1<<16 {
		in[s] = s
	}
	return s
}

func (b *builder) errorf(n *node, format string, args ...any) error {
	return &lineError{b.above + n.Line, fmt.Sprintf(format, args...)}
}

// value returns the generic form of a node.
func (b *builder) value(n *node) (any, error) {
	if b.within > 0 {
		b.aliased++
		if b.aliased > maxAliased {
			return nil, b.errorf(n, "aliases stand for more than %d values", maxAliased)
		}
	}
	if b.depth >= maxDepth {
		return nil, b.errorf(n, "nested deeper than %d levels", maxDepth)
	}
	b.depth++
	defer func() { b.depth-- }()
	switch n.Kind {
	case yamlv3.AliasNode:
		return b.alias(n, b.value)
	case yamlv3.MappingNode:
		out := make(Object, len(n.Content)/2)
		return out, b.fill(n, out)
	case yamlv3.SequenceNode:
		return b.list(n.Content)
	}
	v, text, err := b.scalar(n)
	if err != nil {
		return nil, err
	}
	if v, err = generic(v, text); err != nil {
		return nil, b.errorf(n, "%v", err)
	}
	return v, nil
}

// alias makes what an alias stands for.
func (b *builder) alias(n *node, of func(*node) (any, error)) (any, error) {
	if b.open[n.Alias] {
		return nil, b.errorf(n, "anchor %q contains itself", n.Value)
	}
	if b.open == nil {
		b.open = map[*node]bool{}
	}
	b.open[n.Alias] = true
	b.within++
	v, err := of(n.Alias)
	b.within--
	delete(b.open, n.Alias)
	return v, err
}

func (b *builder) list(items []*node) (any, error) {
	out := make([]any, len(items))
	for i, item := range items {
		var err error
		if out[i], err = b.value(item); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// scalar resolves a scalar and returns its text too.
func (b *builder) scalar(n *node) (v any, text string, err error) {
	plain := n.Style&(yamlv3.DoubleQuotedStyle|yamlv3.SingleQuotedStyle|yamlv3.LiteralStyle|yamlv3.FoldedStyle) == 0
	tag := ""
	if n.Style&yamlv3.TaggedStyle != 0 {
		tag = n.ShortTag()
	}
	if v, err = resolve(tag, n.Value, plain); err != nil {
		return nil, "", b.errorf(n, "%v", err)
	}
	if s, ok := v.(string); ok {
		v = b.texts.get(s)
	}
	return v, n.Value, nil
}
