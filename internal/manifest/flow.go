package manifest

import (
	"bytes"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
)

// flowEnd returns where a flow mapping or list ends whose text starts at an
// offset.
func (s *source) flowEnd(n *node, at int) int {
	if at < len(s.text) && s.text[at] != '{' && s.text[at] != '[' { // [key: value]
		if last := n.Content[len(n.Content)-1]; !isVoid(last) {
			return s.inFlowEnd(last)
		}
		return s.inFlowEnd(n.Content[0])
	}
	depth := 0
	for ; at < len(s.text); at++ {
		switch c := s.text[at]; {
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			depth--
			if depth == 0 {
				return at + 1
			}
		case (c == '"' || c == '\'') && s.startsToken(at):
			at = s.quoteEnd(at, c) - 1
		case c == '#':
			at = max(at, s.skipSpace(at)-1)
		}
	}
	return len(s.text)
}

// startsToken reports whether a quote in a flow text opens a scalar and is not a
// part of a plain one.
func (s *source) startsToken(at int) bool {
	return at == 0 || isBreak(s.text, at-1) || strings.IndexByte(" \t[{,:", s.text[at-1]) >= 0
}

// inFlowEnd returns where a node ends that is in a flow mapping or list.
func (s *source) inFlowEnd(n *node) int {
	if n.Kind != yamlv3.ScalarNode || n.Style&(yamlv3.DoubleQuotedStyle|yamlv3.SingleQuotedStyle) != 0 {
		return s.end(n, -1)
	}
	at := s.pastProperties(n)
	end := at
	for ; at < len(s.text); at++ {
		c := s.text[at]
		blank := at > 0 && (isBlank(s.text[at-1]) || isBreak(s.text, at-1))
		ends := at+1 == len(s.text) || bytes.IndexByte([]byte(" \t\r\n,[]{}"), s.text[at+1]) >= 0
		if strings.IndexByte(",[]{}", c) >= 0 || c == ':' && ends || c == '#' && blank {
			break
		}
		if !isBlank(c) && c != '\n' && c != '\r' {
			end = at + 1
		}
	}
	return end
}

// isVoid reports whether a node is a null of no characters.
func isVoid(n *node) bool {
	return n.Kind == yamlv3.ScalarNode && n.Value == "" && n.Anchor == "" && n.Style == 0
}

// flowChild is an item of a flow list or an entry of a flow mapping.
type flowChild struct {
	from, to int
	text     string
}

func (s *source) flowChildren(n *node) []flowChild {
	var out []flowChild
	if n.Kind == yamlv3.SequenceNode {
		for _, item := range n.Content {
			c := flowChild{from: s.offset(item), to: s.inFlowEnd(item)}
			c.text = string(s.text[c.from:max(c.from, c.to)])
			out = append(out, c)
		}
		return out
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		c := flowChild{from: s.offset(key), to: s.inFlowEnd(key)}
		c.text = string(s.text[c.from:max(c.from, c.to)]) + ":"
		if !isVoid(value) {
			from := s.offset(value)
			c.to = s.inFlowEnd(value)
			c.text += " " + string(s.text[from:max(from, c.to)])
		}
		out = append(out, c)
	}
	return out
}

// flowToBlock returns the lines of a flow mapping or list as a block at a column.
// Only this one level is unfolded: what is in it keeps its spelling. Comments go
// along.
func (s *source) flowToBlock(n *node, column int, l layout) []string {
	var lines []string
	add := func(comments []string) {
		for _, c := range comments {
			lines = append(lines, spaces(column)+c)
		}
	}
	start := s.pastProperties(n)
	at, children := start+1, s.flowChildren(n)
	for i, c := range children {
		next := s.flowEnd(n, start) - 1
		if i+1 < len(children) {
			next = children[i+1].from
		}
		first, above := s.comments(at, c.from)
		if i == 0 && first != "" {
			add([]string{first})
		}
		add(above)
		beside, below := s.comments(c.to, next)
		lines = append(lines, blockLines(n, c.text, beside, column, l)...)
		if i+1 == len(children) {
			add(below)
		}
		at = c.to
	}
	return lines
}

// comments returns the comments in what stands between two values: the one in
// its first line, and those below.
func (s *source) comments(from, to int) (first string, below []string) {
	between := s.text[from:max(from, to)]
	for at, line := 0, 0; at < len(between); line++ {
		next := nextLine(between, at)
		text := withoutBreak(between[at:next])
		if i := bytes.IndexByte(text, '#'); i >= 0 {
			if comment := string(bytes.TrimRight(text[i:], " \t")); line == 0 {
				first = comment
			} else {
				below = append(below, comment)
			}
		}
		at = next
	}
	return first, below
}

// blockLines returns the lines of one child of an unfolded flow value.
func blockLines(n *node, text, comment string, column int, l layout) []string {
	if n.Kind == yamlv3.SequenceNode {
		text = "-" + spaces(l.item-1) + text
	}
	if comment != "" {
		text += " " + comment
	}
	lines := strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n")
	for i, line := range lines {
		in := column
		if i > 0 {
			in += 2 * l.mapping
			line = strings.Trim(line, " \t")
		}
		if line != "" {
			lines[i] = spaces(in) + line
		}
	}
	return lines
}
