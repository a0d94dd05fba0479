package manifest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// Text returns the document's YAML with the edits applied. The lines that the
// edits do not concern are those of the file, byte for byte: comments, blank
// lines, order, quotes and line breaks. For an item of a List these are its lines
// without the dash and its indentation.
//
// Flow mappings and lists ("{}", "[]") that something is put into become blocks;
// aliases and merge keys on the way to it are spelt out. Objects that have no YAML
// text of their own, from JSON or a cluster, get a canonical one with sorted keys.
// That is also what a text becomes into which the edits cannot be put: the text
// always reads back as ApplyTo's object.
func (d *Document) Text(edits []Edit) ([]byte, error) {
	text, _, err := d.render(edits)
	return text, err
}

// render is Text. Anew tells that the text had to be written anew, which loses
// comments and order.
func (d *Document) render(edits []Edit) (text []byte, anew bool, err error) {
	want, err := ApplyTo(d.Object, edits)
	if err != nil {
		return nil, false, err
	}
	own := d.own()
	if own == nil {
		base, err := canonical(d.Object)
		if err != nil {
			return nil, false, fmt.Errorf("write %s: %w", d.Ref(), err)
		}
		own = [][]byte{base}
	}
	for _, base := range own {
		if out, ok := edited(base, edits, want); ok {
			return out, false, nil
		}
	}
	text, err = canonical(want)
	if err == nil && !readsAs(text, want) {
		err = fmt.Errorf("it holds a value that YAML cannot")
	}
	if err != nil {
		return nil, true, fmt.Errorf("write %s: %w", d.Ref(), err)
	}
	return text, true, nil
}

// edited returns a text with the edits in it; false when they cannot be put there.
func edited(text []byte, edits []Edit, want Object) ([]byte, bool) {
	body, _ := bytes.CutPrefix(text, []byte(utf8BOM))
	mark := text[:len(text)-len(body)]
	if !isOpen(body) || len(edits) == 0 {
		out, err := splice(body, edits)
		return slices.Concat(mark, out), err == nil && readsAs(out, want)
	}
	for _, strip := range []bool{false, true} {
		out, err := splice(closed(body, strip), edits)
		if err != nil {
			continue
		}
		for _, out := range [][]byte{withoutBreak(out), out} {
			if readsAs(out, want) {
				return slices.Concat(mark, out), true
			}
		}
	}
	return nil, false
}

// isOpen reports whether the last line of a text has no line break.
func isOpen(text []byte) bool { return len(withoutBreak(text)) == len(text) }

// closed returns an open text with a line break at its end, so that lines can be
// put behind it. A literal block there would get the break too, which strip keeps
// from it.
func closed(text []byte, strip bool) []byte {
	text = append(bytes.Clone(text), eolOf(text)...)
	s, err := newSource(text)
	if !strip || err != nil {
		return text
	}
	last := lastIn(s.root)
	if !isLiteral(last) {
		return text
	}
	at := s.pastProperties(last)
	header := literalHeader(text[at:])
	short := strings.Trim(string(header), "+-")
	return slices.Concat(text[:at], []byte(short+"-"), text[at+len(header):])
}

// own returns the document's own text in the forms that it may be written in, the
// best first; nil when it has none.
func (d *Document) own() [][]byte {
	switch {
	case d.src == nil:
		return nil
	case !d.item:
		return [][]byte{d.src}
	}
	text := dedent(d.src)
	head := []byte(d.head)
	short := bytes.TrimRight(text, " \t\r\n") // the blank lines before the next item
	short = text[:min(len(text), nextLine(text, len(short)))]
	return [][]byte{append(bytes.Clone(head), short...), append(bytes.Clone(head), text...)}
}

// readsAs reports whether a text is YAML for exactly one document, which equals
// the given one.
func readsAs(text []byte, want Object) bool {
	c := chunk{text: bytes.TrimPrefix(text, []byte(utf8BOM)), line: 1}
	got, _, ok := new(parser).single(c)
	return ok && same(got, want)
}
