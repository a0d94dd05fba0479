package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Parse reads every document of one file's text. The documents keep a hold of
// data, which must not be changed any more.
func Parse(file string, data []byte) ([]Document, []Skipped, error) {
	p := parser{file: file, texts: interned{}}
	err := checkEncoding(data)
	if err == nil {
		for _, c := range documents(data) {
			if err = p.chunk(c); err != nil {
				break
			}
		}
	}
	if err != nil && described(data) {
		return nil, nil, fmt.Errorf("parse %s: %w: this is what kubectl describe prints; give what kubectl get -o yaml does", file, err)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("parse %s: %w", file, err)
	}
	return p.docs, p.skipped, nil
}

// described reports text of kubectl describe, which is much like YAML.
func described(data []byte) bool {
	return bytes.HasPrefix(data, []byte("Name:  ")) && bytes.Contains(data, []byte("\nEvents:"))
}

func checkEncoding(data []byte) error {
	if bytes.HasPrefix(data, []byte("\xff\xfe")) || bytes.HasPrefix(data, []byte("\xfe\xff")) {
		return errors.New("it is UTF-16 text; save it as UTF-8")
	}
	if utf8.Valid(data) {
		return nil
	}
	line := 1
	for at := 0; at < len(data); line++ {
		next := nextLine(data, at)
		if !utf8.Valid(data[at:next]) {
			break
		}
		at = next
	}
	return &lineError{line, "it is no UTF-8 text"}
}

// parser collects the documents of one file.
type parser struct {
	file    string
	texts   interned
	lines   itemLines
	docs    []Document
	skipped []Skipped
}

// chunk reads what stands between two document marks: one YAML document or any
// number of JSON values. A long List is read item by item where that is possible:
// the nodes of the whole need ten times the memory of its text.
func (p *parser) chunk(c chunk) error {
	p.lines = itemLines{}
	var asJSON error
	if looksJSON(c.text) {
		done, err := p.json(c)
		if done {
			return err
		}
		asJSON = err
	}
	if p.list(c) {
		return nil
	}
	err := p.yaml(c)
	if err != nil && asJSON != nil && bytes.HasPrefix(bytes.TrimLeft(c.text, " \t\r\n[{"), []byte(`"`)) {
		return asJSON // what starts like JSON was meant as JSON
	}
	return err
}

// json reads a chunk as JSON values; done is false when it is something else.
func (p *parser) json(c chunk) (done bool, err error) {
	docs, skipped := len(p.docs), len(p.skipped)
	r := newJSONReader(c, p.texts, p.lines)
	for {
		v, line, err := r.next()
		switch {
		case errors.Is(err, io.EOF):
			return true, nil
		case errors.As(err, new(*lineError)):
			return true, err
		case err != nil:
			p.docs, p.skipped = p.docs[:docs], p.skipped[:skipped]
			return false, r.problem(err)
		}
		p.unpack(v, Document{File: p.file, Line: line})
	}
}

// list reads a chunk that is a List, item by item; false when it is none, or its
// items cannot be read alone.
func (p *parser) list(c chunk) bool {
	rest, items, ok := listItems(c)
	if !ok {
		return false
	}
	head, _, ok := p.single(chunk{text: rest, line: c.line})
	list, _ := head.(map[string]any)
	if kind := str(list["kind"]); !ok || !strings.HasSuffix(kind, "List") || list["items"] != nil {
		return false
	}
	docs, skipped := len(p.docs), len(p.skipped)
	for _, item := range items {
		v, root, ok := p.single(item)
		seq, _ := v.([]any)
		if !ok || len(seq) != 1 {
			p.docs, p.skipped = p.docs[:docs], p.skipped[:skipped]
			return false
		}
		line := item.line - 1 + root.Content[0].Line
		p.unpackItem(seq[0], list, Document{File: p.file, Line: line, src: item.src, item: true})
	}
	return true
}

// single reads a chunk that holds exactly one YAML document.
func (p *parser) single(c chunk) (v any, root *node, ok bool) {
	roots, err := decode(c)
	if err != nil || len(roots) != 1 {
		return nil, nil, false
	}
	v, err = p.value(c, roots[0])
	return v, roots[0], err == nil
}

// yaml reads a chunk as YAML.
func (p *parser) yaml(c chunk) error {
	roots, err := decode(c)
	if err != nil {
		return err
	}
	for _, root := range roots {
		v, err := p.value(c, root)
		if err != nil {
			return err
		}
		doc := Document{File: p.file, Line: c.line - 1 + root.Line}
		if len(roots) == 1 {
			doc.src = c.src
		}
		p.unpack(v, doc)
	}
	return nil
}

func (p *parser) value(c chunk, root *node) (any, error) {
	b := builder{above: c.line - 1, texts: p.texts, lines: p.lines}
	return b.value(root)
}
