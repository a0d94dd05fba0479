package manifest

import (
	"bytes"

	yamlv3 "go.yaml.in/yaml/v3"
)

// appendItem puts an item behind the last one of a block list, in a line with it.
func (s *source) appendItem(list entry, v any) ([]cut, error) {
	items := list.value.Content
	last := items[len(items)-1]
	dash := s.dashOffset(last)
	if dash < 0 {
		return nil, errNoSplice
	}
	line := s.lineAt(dash)
	in := dash - s.lines[line]
	l := s.layout(list.value)
	if gap := s.offset(last) - dash; s.lineAt(s.offset(last)) == line && gap > 1 {
		l.item = gap
	}
	lines, err := l.listItem(v, in)
	if err != nil {
		return nil, err
	}
	below := s.pastComments(s.lineAt(s.end(last, in)), column(list.mapping))
	return []cut{s.instead(below, below, lines)}, nil
}

// addKey puts a key behind the last one of a block mapping.
func (s *source) addKey(m entry, key string, v any) ([]cut, error) {
	in := column(m.value)
	owner := in
	if m.key != nil {
		owner = column(m.mapping)
	}
	lines, err := s.layout(m.value).entry(key, v, in)
	if err != nil {
		return nil, err
	}
	below := s.pastComments(s.lineAt(s.end(m.value, owner)), owner)
	return []cut{s.instead(below, below, lines)}, nil
}

// replace puts a value in the place of an entry's. What is no block goes beside
// the key. A comment beside the key or the old value stays beside the key.
func (s *source) replace(e entry, v any) ([]cut, error) {
	colon, err := s.colon(e.key)
	if err != nil {
		return nil, err
	}
	switch {
	case isBlock(v):
		l := s.layout(e.mapping)
		lines, err := l.block(v, column(e.mapping)+l.below(v))
		return s.replaceText(e, colon+1, "", lines), err
	case v == nil: // an empty value is null, and what most nulls in files look like
		return s.replaceText(e, colon+1, "", nil), nil
	}
	text, err := inline(v)
	return s.replaceText(e, colon+1, " "+text, nil), err
}

// replaceText takes away an entry's value, and what stands before it from an
// offset on, and puts text beside the key and lines below.
func (s *source) replaceText(e entry, from int, beside string, below []string) []cut {
	in := column(e.mapping)
	start, end := s.pastProperties(e.value), max(from, s.end(e.value, in))
	upTo := from                                  // what goes in the key's line
	first, last := s.lineAt(start), s.lineAt(end) // what goes below it
	switch {
	case first > s.lineAt(from):
		if at := s.offset(e.value); from < at && at < s.lineEnd(from) { // an anchor or tag
			upTo = s.propertiesEnd(at)
		}
	case isLiteral(e.value):
		upTo = start + len(literalHeader(s.text[start:]))
		first++
	default: // comments can stand below it that are not the next key's
		upTo = end
		first = s.pastComments(last, in)
		last = first - 1
	}
	return []cut{{from, upTo, beside}, s.instead(first, last+1, below)}
}

// without returns the cut that takes lines away which follow the given siblings.
// Where the text above keeps its empty lines, those below go too: they would
// become a part of it.
func (s *source) without(first, end int, before []*node, column int) cut {
	if len(before) > 0 {
		above := before[len(before)-1]
		last := lastIn(above)
		kept := isLiteral(last) && bytes.IndexByte(literalHeader(s.text[s.pastProperties(last):]), '+') > 0
		for kept && s.lineAt(s.end(above, column)) == first-1 && end < len(s.lines)-1 && isEmpty(s.line(end)) {
			end++
		}
	}
	return s.instead(first, end, nil)
}

// emptied returns the cuts that take the last child of an entry away, and put
// text beside its key.
func (s *source) emptied(e entry, text string, first, end int) ([]cut, error) {
	from, err := s.valueStart(e)
	return []cut{{from, from, text}, s.instead(first, end, nil)}, err
}

// valueStart returns where the value of an entry may start: behind the colon, and
// an anchor or tag beside it.
func (s *source) valueStart(e entry) (int, error) {
	colon, err := s.colon(e.key)
	if at := s.offset(e.value); err == nil && hasProperties(e.value) && s.lineAt(at) == s.lineAt(colon) {
		return s.propertiesEnd(at), nil
	}
	return colon + 1, err
}

// colon returns where the colon behind a key of a block mapping is. The key must
// be the first thing in its line, and the colon in the same.
func (s *source) colon(key *node) (int, error) {
	at := s.offset(key)
	start := s.lines[s.lineAt(at)]
	if key.Kind != yamlv3.ScalarNode || hasProperties(key) || len(bytes.Trim(s.text[start:at], " ")) > 0 {
		return 0, errNoSplice
	}
	switch {
	case key.Style&yamlv3.DoubleQuotedStyle != 0:
		at = s.quoteEnd(at, '"')
	case key.Style&yamlv3.SingleQuotedStyle != 0:
		at = s.quoteEnd(at, '\'')
	case bytes.HasPrefix(s.text[at:], []byte(key.Value)):
		at += len(key.Value)
	}
	for at < len(s.text) && isBlank(s.text[at]) {
		at++
	}
	if at == len(s.text) || s.text[at] != ':' {
		return 0, errNoSplice
	}
	return at, nil
}

// entryLines returns the lines of an entry, and of the comments that belong to it.
func (s *source) entryLines(e entry) (first, end int, err error) {
	if _, err := s.colon(e.key); err != nil {
		return 0, 0, err
	}
	in := column(e.mapping)
	return s.lineAt(s.offset(e.key)), s.pastComments(s.lineAt(s.end(e.value, in)), in), nil
}
