package manifest

import (
	"bytes"
	"errors"
	"slices"
	"sort"
	"strings"
	"unicode/utf8"

	yamlv3 "go.yaml.in/yaml/v3"
)

// errNoSplice means that a text is written in a way that edits cannot be put into.
var errNoSplice = errors.New("the text cannot be edited in place")

// source is a YAML text of one document and its nodes. The text ends in a line
// break. Offsets count bytes, columns and lines count from 0.
type source struct {
	text  []byte
	lines []int // the offset of each line, and the end of the text
	root  *node
}

func newSource(text []byte) (*source, error) {
	roots, err := decode(chunk{text: text, line: 1})
	if err != nil {
		return nil, err
	}
	if len(roots) != 1 {
		return nil, errNoSplice
	}
	s := &source{text: text, root: roots[0]}
	for at := 0; at < len(text); at = nextLine(text, at) {
		s.lines = append(s.lines, at)
	}
	s.lines = append(s.lines, len(text))
	return s, nil
}

// offset returns where a node starts, its anchor or tag included.
func (s *source) offset(n *node) int {
	if n.Line < 1 || n.Line >= len(s.lines) {
		return len(s.text)
	}
	at := s.lines[n.Line-1]
	for range n.Column - 1 {
		_, size := utf8.DecodeRune(s.text[at:])
		at += size
	}
	return at
}

// lineAt returns the line that holds an offset.
func (s *source) lineAt(off int) int {
	return max(0, sort.SearchInts(s.lines, off+1)-1)
}

// line returns a line with its line break.
func (s *source) line(i int) []byte { return s.text[s.lines[i]:s.lines[i+1]] }

// lineEnd returns the offset of the line break after off.
func (s *source) lineEnd(off int) int {
	i := s.lineAt(off)
	return s.lines[i] + len(withoutBreak(s.line(i)))
}

// cut replaces a part of a text.
type cut struct {
	from, to int
	with     string
}

// apply returns the text with the cuts made, which must not overlap.
func (s *source) apply(cuts []cut) ([]byte, error) {
	slices.SortStableFunc(cuts, func(a, b cut) int { return a.from - b.from })
	var out bytes.Buffer
	at := 0
	for _, c := range cuts {
		if c.from < at || c.to < c.from || c.to > len(s.text) {
			return nil, errNoSplice
		}
		out.Write(s.text[at:c.from])
		out.WriteString(c.with)
		at = c.to
	}
	out.Write(s.text[at:])
	return out.Bytes(), nil
}

// instead returns the cut that puts other lines in the place of those from first
// up to, not including, last.
func (s *source) instead(first, last int, lines []string) cut {
	end := len(s.lines) - 1
	c := cut{from: s.lines[min(first, end)], to: s.lines[min(last, end)]}
	if len(lines) > 0 {
		c.with = strings.Join(append(lines, ""), eolOf(s.text))
	}
	return c
}

// pastComments returns the line below the value that ends on a line, and below
// the comments that follow and stand in further than the key it belongs to.
func (s *source) pastComments(line, column int) int {
	past := line + 1
	for i := past; i < len(s.lines)-1; i++ {
		text := s.line(i)
		if isComment(text) && indentOf(text) > column {
			past = i + 1
		} else if !isEmpty(text) {
			break
		}
	}
	return past
}

// entry is a key of a block mapping and its value.
type entry struct {
	mapping, key, value *node
	index               int // among the mapping's entries
}

// column returns the column of the keys of a block mapping.
func column(mapping *node) int { return mapping.Content[0].Column - 1 }

// child returns the entry of a key; ok is false when the mapping has none of its
// own.
func child(n *node, key string) (e entry, ok bool) {
	for i := 0; n.Kind == yamlv3.MappingNode && i+1 < len(n.Content); i += 2 {
		name, err := new(builder).key(n.Content[i])
		if err == nil && name == key && !isMerge(n.Content[i]) {
			return entry{n, n.Content[i], n.Content[i+1], i / 2}, true
		}
	}
	return entry{}, false
}

func isFlow(n *node) bool { return n.Style&yamlv3.FlowStyle != 0 }

func isContainer(n *node) bool {
	return n.Kind == yamlv3.MappingNode || n.Kind == yamlv3.SequenceNode
}

// isLiteral reports whether a node is a literal or folded block.
func isLiteral(n *node) bool { return n.Style&(yamlv3.LiteralStyle|yamlv3.FoldedStyle) != 0 }

// lastIn returns the last node in n, or n.
func lastIn(n *node) *node {
	for len(n.Content) > 0 {
		n = n.Content[len(n.Content)-1]
	}
	return n
}
