package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// looksJSON reports whether text may be JSON: its first character opens an
// object or a list.
func looksJSON(text []byte) bool {
	rest := bytes.TrimLeft(text, " \t\r\n")
	return len(rest) > 0 && (rest[0] == '{' || rest[0] == '[')
}

// jsonReader makes generic values of JSON text. YAML is nearly a superset of
// JSON, but YAML 1.1 knows no "\/", no surrogate pairs and no two objects behind
// each other.
type jsonReader struct {
	text  []byte
	above int // how many lines of the file stand above the text
	dec   *json.Decoder
	texts interned
	lines itemLines
	depth int
	last  place // up to which lines are counted
}

func newJSONReader(c chunk, texts interned, lines itemLines) *jsonReader {
	dec := json.NewDecoder(bytes.NewReader(c.text))
	dec.UseNumber()
	return &jsonReader{text: c.text, above: c.line, dec: dec, texts: texts, lines: lines}
}

// next returns the next value of the text and the line where it starts; io.EOF
// at the end. Other errors are *lineError where a key stands twice, and
// *json.SyntaxError.
func (r *jsonReader) next() (v any, line int, err error) {
	line = r.line()
	v, err = r.value(false)
	return v, line, err
}

// token is the decoder's, which tells the end of the text in a value from the end
// behind one not at all.
func (r *jsonReader) token() (json.Token, error) {
	token, err := r.dec.Token()
	if errors.Is(err, io.EOF) && r.depth > 0 {
		err = io.ErrUnexpectedEOF
	}
	return token, err
}

// value reads one value. Items: it is what a key "items" holds.
func (r *jsonReader) value(items bool) (any, error) {
	token, err := r.token()
	if err != nil {
		return nil, err
	}
	if r.depth >= maxDepth {
		return nil, &lineError{r.line(), fmt.Sprintf("nested deeper than %d levels", maxDepth)}
	}
	r.depth++
	defer func() { r.depth-- }()
	switch token {
	case json.Delim('{'):
		return r.object()
	case json.Delim('['):
		return r.list(items)
	}
	if s, ok := token.(string); ok {
		token = r.texts.get(s)
	}
	return token, nil
}

func (r *jsonReader) object() (any, error) {
	out := Object{}
	for r.dec.More() {
		token, err := r.token()
		if err != nil {
			return nil, err
		}
		key := r.texts.get(str(token))
		if _, ok := out[key]; ok {
			return nil, &lineError{r.line(), fmt.Sprintf("key %q already set in map", key)}
		}
		if out[key], err = r.value(key == "items"); err != nil {
			return nil, err
		}
	}
	_, err := r.token()
	return out, err
}

func (r *jsonReader) list(items bool) (any, error) {
	out := []any{}
	var lines []int
	for r.dec.More() {
		if items {
			lines = append(lines, r.line())
		}
		v, err := r.value(false)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	if len(lines) > 0 {
		r.lines[&out[0]] = lines
	}
	_, err := r.token()
	return out, err
}

// line returns the line of the next token, or of the last one of the text.
func (r *jsonReader) line() int {
	off := int(r.dec.InputOffset())
	for off < len(r.text) && bytes.IndexByte([]byte(" \t\r\n,:"), r.text[off]) >= 0 {
		off++
	}
	return r.lineAt(off)
}

// lineAt counts on from where it was asked before, so that the many items of a
// large list cost one pass.
func (r *jsonReader) lineAt(off int) int {
	if off < r.last.off {
		r.last = place{}
	}
	r.last.line += bytes.Count(r.text[r.last.off:off], []byte("\n"))
	r.last.off = off
	return r.above + r.last.line
}

// problem names the line of an error of the decoder.
func (r *jsonReader) problem(err error) error {
	syntax := (*json.SyntaxError)(nil)
	switch {
	case errors.As(err, &syntax):
		return &lineError{r.lineAt(min(int(syntax.Offset), len(r.text))), syntax.Error()}
	case errors.Is(err, io.ErrUnexpectedEOF):
		return &lineError{r.lineAt(len(r.text)), "the JSON text ends too early"}
	}
	return err
}
