package manifest

import (
	"bytes"

	yamlv3 "go.yaml.in/yaml/v3"
)

// end returns where a node's text ends. Column is that of the block mapping's
// keys or the block list's dashes it is in.
func (s *source) end(n *node, column int) int {
	if n.Kind == yamlv3.AliasNode {
		return s.offset(n) + len("*") + len(n.Value)
	}
	at := s.pastProperties(n)
	switch {
	case isContainer(n) && isFlow(n):
		return s.flowEnd(n, at)
	case n.Kind == yamlv3.MappingNode:
		return s.end(n.Content[len(n.Content)-1], n.Content[0].Column-1)
	case n.Kind == yamlv3.SequenceNode:
		return s.end(n.Content[len(n.Content)-1], s.dash(n, 0))
	case n.Style&yamlv3.DoubleQuotedStyle != 0:
		return s.quoteEnd(at, '"')
	case n.Style&yamlv3.SingleQuotedStyle != 0:
		return s.quoteEnd(at, '\'')
	case isLiteral(n):
		return s.literalEnd(at, column)
	case n.Value == "":
		return at
	}
	return s.plainEnd(at, column)
}

// hasProperties reports whether an anchor or a tag stands before a node's text.
func hasProperties(n *node) bool {
	return n.Anchor != "" || n.Style&yamlv3.TaggedStyle != 0
}

// pastProperties returns where a node's text starts behind its anchor and tag.
func (s *source) pastProperties(n *node) int {
	at := s.offset(n)
	if !hasProperties(n) {
		return at
	}
	end := s.propertiesEnd(at)
	if n.Kind == yamlv3.ScalarNode && n.Value == "" && n.Style&^yamlv3.TaggedStyle == 0 {
		return end
	}
	for next := s.skipSpace(end); ; next = s.skipSpace(end) {
		end = s.propertiesEnd(next)
		if end == next {
			return end
		}
	}
}

// propertiesEnd returns where the anchor and the tag at an offset end, as far as
// they stand in one line.
func (s *source) propertiesEnd(at int) int {
	end := at
	for at < len(s.text) && (s.text[at] == '&' || s.text[at] == '!') {
		for at < len(s.text) && !isBlank(s.text[at]) && !isBreak(s.text, at) {
			at++
		}
		end = at
		for at < len(s.text) && isBlank(s.text[at]) {
			at++
		}
	}
	return end
}

// skipSpace returns the offset of what follows blanks, line breaks and comments.
func (s *source) skipSpace(at int) int {
	for at < len(s.text) {
		switch {
		case isBlank(s.text[at]) || s.text[at] == '\n' || s.text[at] == '\r':
			at++
		case s.text[at] == '#' && (at == 0 || isBlank(s.text[at-1]) || s.text[at-1] == '\n' || s.text[at-1] == '\r'):
			at = s.lineEnd(at)
		default:
			return at
		}
	}
	return at
}

// dash returns the column of the dash of item i of a block list, -1 where it
// cannot be told.
func (s *source) dash(list *node, i int) int {
	at := s.dashOffset(list.Content[i])
	if at < 0 {
		return -1
	}
	return at - s.lines[s.lineAt(at)]
}

// dashOffset returns where the dash before an item is: on its line, or on one
// above that ends in the dash.
func (s *source) dashOffset(item *node) int {
	at := s.offset(item)
	line := s.lineAt(at)
	before := bytes.TrimRight(s.text[s.lines[line]:at], " \t")
	for len(before) == 0 && line > 0 {
		line--
		text := s.line(line)
		if noContent(text) {
			continue
		}
		if i := bytes.IndexByte(text, '#'); i > 0 {
			text = text[:i]
		}
		before = bytes.TrimRight(withoutBreak(text), " \t")
	}
	if len(before) == 0 || before[len(before)-1] != '-' {
		return -1
	}
	return s.lines[line] + len(before) - 1
}

// quoteEnd returns where a quoted scalar ends that starts at an offset.
func (s *source) quoteEnd(at int, quote byte) int {
	for at++; at < len(s.text); at++ {
		switch {
		case quote == '"' && s.text[at] == '\\':
			at++
		case s.text[at] != quote:
		case quote == '\'' && at+1 < len(s.text) && s.text[at+1] == quote:
			at++
		default:
			return at + 1
		}
	}
	return len(s.text)
}

// plainEnd returns where a plain scalar of a block ends. It goes on on following
// lines that stand in further than the block, up to a comment.
func (s *source) plainEnd(at, column int) int {
	end := at
	for line := s.lineAt(at); line < len(s.lines)-1; line++ {
		from := max(at, s.lines[line])
		text := withoutBreak(s.text[from:s.lines[line+1]])
		if from > at && !isEmpty(text) && (indentOf(text) <= column || isComment(text)) {
			break
		}
		comment := commentIn(text)
		if content := bytes.TrimRight(text[:comment], " \t"); len(bytes.TrimLeft(content, " \t")) > 0 {
			end = from + len(content)
		}
		if comment < len(text) {
			break
		}
	}
	return end
}

// commentIn returns where the comment of a line without quotes starts, or its end.
func commentIn(text []byte) int {
	for i := 1; i < len(text); i++ {
		if text[i] == '#' && isBlank(text[i-1]) {
			return i
		}
	}
	return len(text)
}

// literalEnd returns where a literal or folded scalar ends whose header starts at
// an offset. The empty lines that follow belong to it where the header keeps them.
func (s *source) literalEnd(at, column int) int {
	first := s.lineAt(at)
	head := literalHeader(s.text[at:])
	end := at + len(head)
	in := -1 // column of the scalar's lines
	if i := bytes.IndexAny(head, "123456789"); i > 0 {
		in = max(0, column) + int(head[i]-'0')
	}
	for line := first + 1; line < len(s.lines)-1; line++ {
		text := withoutBreak(s.line(line))
		spaces := indentOf(text)
		switch {
		case spaces == len(text) && (in < 0 || spaces <= in):
			if bytes.IndexByte(head, '+') > 0 {
				end = s.lines[line] + len(text)
			}
			continue
		case in < 0:
			in = spaces
		}
		if spaces < in || spaces <= column {
			break
		}
		end = s.lines[line] + len(text)
	}
	return end
}

// literalHeader returns the header that a literal or folded scalar starts with,
// such as "|2-".
func literalHeader(text []byte) []byte {
	return text[:len(text)-len(bytes.TrimLeft(text[1:], "+-0123456789"))]
}
